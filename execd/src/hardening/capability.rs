//! Capabilities: their names, and giving them up.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set,
        configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    },
};

/// The set of these `CAP_*` names.
///
/// # Errors
/// The first name that means nothing.
pub(super) fn set(names: &[String]) -> Result<CapabilitySet, &str> {
    names.iter().try_fold(CapabilitySet::empty(), |set, name| {
        let known = name.strip_prefix("CAP_").and_then(CapabilitySet::from_name);
        known.map(|known| set | known).ok_or(name.as_str())
    })
}

/// The names of a set.
pub(super) fn names(set: CapabilitySet) -> String {
    let names = set.iter_names().map(|(name, _)| format!("CAP_{name}"));
    names.collect::<Vec<_>>().join(", ")
}

fn each() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit))
}

/// Makes sure that starting a program brings none but these back. Takes `CAP_SETPCAP`. Allocates
/// nothing.
pub(super) fn cut_bounding(keep: CapabilitySet) -> rustix::io::Result<()> {
    for capability in each().filter(|one| !keep.contains(*one)) {
        match remove_capability_from_bounding_set(capability) {
            // Beyond the last one that this kernel knows.
            Err(Errno::INVAL) => break,
            cut => cut?,
        }
    }
    Ok(())
}

/// Gives up all but these, which the program that is started next gets too. They must be there.
/// There is no way back. Allocates nothing.
pub(super) fn reduce_to(keep: CapabilitySet) -> rustix::io::Result<()> {
    match clear_ambient_capability_set() {
        // A kernel that knows no such set has nothing in it.
        Err(Errno::INVAL) => {}
        cleared => cleared?,
    }
    let kept = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable: keep,
    };
    set_capabilities(None, kept)?;
    for capability in each().filter(|one| keep.contains(*one)) {
        match configure_capability_in_ambient_set(capability, true) {
            // Without such a set root keeps them all the same, and others cannot.
            Err(Errno::INVAL) => {}
            raised => raised?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            set(&names).map_err(str::to_owned)
        };
        assert_eq!(of(&[]), Ok(CapabilitySet::empty()));
        let both = CapabilitySet::NET_RAW | CapabilitySet::CHOWN;
        assert_eq!(of(&["CAP_NET_RAW", "CAP_CHOWN"]), Ok(both));
        assert_eq!(names(both), "CAP_CHOWN, CAP_NET_RAW");
        for bad in ["NET_RAW", "cap_net_raw", "CAP_", "CAP_ALL", "CAP_0x1", ""] {
            assert_eq!(of(&["CAP_CHOWN", bad]), Err(bad.to_owned()));
        }
    }
}

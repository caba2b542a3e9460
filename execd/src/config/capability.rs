//! Names of capabilities.

use rustix::thread::CapabilitySet;

/// Parses `CAP_*` names into a set.
///
/// # Errors
/// The first unknown name.
pub(crate) fn capabilities_of(names: &[String]) -> Result<CapabilitySet, &str> {
    names.iter().try_fold(CapabilitySet::empty(), |set, name| {
        let known = name.strip_prefix("CAP_").and_then(CapabilitySet::from_name);
        known.map(|known| set | known).ok_or(name.as_str())
    })
}

/// Names of the capabilities in a set.
pub(crate) fn capability_names(set: CapabilitySet) -> String {
    let names = set.iter_names().map(|(name, _)| format!("CAP_{name}"));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_names_match_the_kernel() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            capabilities_of(&names).map_err(str::to_owned)
        };
        assert_eq!(of(&[]), Ok(CapabilitySet::empty()));
        let both = CapabilitySet::NET_RAW | CapabilitySet::CHOWN;
        assert_eq!(of(&["CAP_NET_RAW", "CAP_CHOWN"]), Ok(both));
        assert_eq!(capability_names(both), "CAP_CHOWN, CAP_NET_RAW");
        for bad in ["NET_RAW", "cap_net_raw", "CAP_", "CAP_ALL", "CAP_0x1", ""] {
            assert_eq!(of(&["CAP_CHOWN", bad]), Err(bad.to_owned()));
        }
    }
}

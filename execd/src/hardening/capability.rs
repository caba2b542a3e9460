//! Giving capabilities up.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set,
        configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    },
};

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

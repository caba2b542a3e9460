//! Reduction of capabilities.

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

/// Removes everything but `keep` from the bounding set, so that no program regains it by `execve`.
/// Needs `CAP_SETPCAP`. Allocates nothing.
pub(super) fn cut_bounding(keep: CapabilitySet) -> rustix::io::Result<()> {
    for capability in each().filter(|one| !keep.contains(*one)) {
        match remove_capability_from_bounding_set(capability) {
            // Past the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            cut => cut?,
        }
    }
    Ok(())
}

/// Drops all capabilities but `keep`, which the next program inherits as ambient ones. The process
/// must hold them. The change is permanent. Allocates nothing.
pub(super) fn reduce_to(keep: CapabilitySet) -> rustix::io::Result<()> {
    match clear_ambient_capability_set() {
        // A kernel without ambient capabilities has none to clear.
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
            // Without ambient capabilities root keeps `keep` anyway, and other users cannot.
            Err(Errno::INVAL) => {}
            raised => raised?,
        }
    }
    Ok(())
}

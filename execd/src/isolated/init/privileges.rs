//! Transition from the identity that sets up a session to the one that runs in it (contract: execd
//! A6.3).

use std::io;

use rustix::{
    io::Errno,
    process::{Gid, Resource, Rlimit, Uid, getegid, geteuid, setrlimit},
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
        set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::{hardening::seccomp::Filter, isolated::plan::Plan};

/// Assumes the session's user and group. In a user namespace that has already happened.
pub(super) fn assume(plan: &Plan) -> rustix::io::Result<()> {
    if plan.userns {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(plan.uid), Gid::from_raw(plan.gid));
    let same = (uid, gid) == (geteuid(), getegid());
    match set_thread_groups(&[]) {
        // Keeping the daemon's own identity needs no privilege, and then keeps its groups.
        Err(Errno::PERM) if same => {}
        cleared => cleared?,
    }
    if !same {
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    Ok(())
}

/// Prevents root in the session from regaining capabilities through `execve`. Needs capabilities.
pub(super) fn disarm_root() {
    // A process that may not do this cannot gain capabilities either, because of `no_new_privs`.
    let _no_right = set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    );
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        let _unknown_or_no_right = remove_capability_from_bounding_set(capability);
    }
}

/// Drops all privileges. The change is permanent.
pub(super) fn drop_all(plan: &Plan) -> io::Result<()> {
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    clear_ambient_capability_set()?;
    set_capabilities(None, nothing)?;
    set_no_new_privs(true)?;
    // The limit counts all processes of this user; the kernel does not count those of root.
    let processes = Some(plan.processes.into());
    setrlimit(
        Resource::Nproc,
        Rlimit {
            current: processes,
            maximum: processes,
        },
    )?;
    Filter::new(&plan.deny).install()
}

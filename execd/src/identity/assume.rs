//! Change of identity of a child process.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Gid, Uid, geteuid};

use super::Credentials;

/// Credentials in the form that a child uses between fork and exec.
#[derive(Debug)]
pub(crate) struct Identity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    /// Converts credentials.
    pub(crate) fn of(credentials: &Credentials) -> Self {
        let groups = credentials.groups.iter();
        Self {
            uid: Uid::from_raw(credentials.uid),
            gid: Gid::from_raw(credentials.gid),
            groups: groups.copied().map(Gid::from_raw).collect(),
        }
    }

    /// Assumes the identity. Makes three system calls and allocates nothing.
    ///
    /// # Errors
    /// When the process lacks the privileges.
    pub(crate) fn assume(&self) -> io::Result<()> {
        rustix::thread::set_thread_groups(&self.groups)?;
        rustix::thread::set_thread_gid(self.gid)?;
        rustix::thread::set_thread_uid(self.uid)?;
        Ok(())
    }
}

/// Runs a command with these credentials. The command then starts by fork instead of vfork, so
/// commands with the daemon's own identity do not use this (contract: execd A2.2).
pub(crate) fn run_as(command: &mut Command, credentials: &Credentials) {
    let identity = Identity::of(credentials);
    #[expect(
        unsafe_code,
        reason = "supplementary groups can only be set between fork and exec"
    )]
    // SAFETY: the closure makes raw system calls on memory prepared before the fork; it neither
    // allocates nor takes a lock. The child has a single thread after the fork, so per-thread ids
    // apply to the whole process.
    unsafe {
        command.pre_exec(move || identity.assume());
    }
}

/// Explains to the client why the kernel does not let this process take another identity.
pub(crate) fn refusal_hint() -> String {
    hint_for(geteuid().as_raw())
}

fn hint_for(own: u32) -> String {
    match own {
        0 => "running as another user needs the capabilities SETUID and SETGID, which the server may \
              have dropped (docker.drop_capabilities)"
            .to_owned(),
        own => format!(
            "execd runs as uid {own}, the USER of the image, and only root can take another user or \
             group"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_the_cause() {
        for (own, named, other) in [
            (0, "docker.drop_capabilities", "USER"),
            (1000, "uid 1000, the USER of the image", "capabilities"),
        ] {
            let hint = hint_for(own);
            assert!(hint.contains(named) && !hint.contains(other), "{hint}");
        }
    }
}

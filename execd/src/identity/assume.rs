//! Running a child as somebody else.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Gid, Uid};

use super::Credentials;

/// Credentials in the form in which a child takes them on between fork and exec.
#[derive(Debug)]
pub(crate) struct Identity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    /// Of these credentials.
    pub(crate) fn of(credentials: &Credentials) -> Self {
        let groups = credentials.groups.iter();
        Self {
            uid: Uid::from_raw(credentials.uid),
            gid: Gid::from_raw(credentials.gid),
            groups: groups.copied().map(Gid::from_raw).collect(),
        }
    }

    /// Takes it on. Makes three system calls and allocates nothing.
    ///
    /// # Errors
    /// When the rights for that are missing.
    pub(crate) fn assume(&self) -> io::Result<()> {
        rustix::thread::set_thread_groups(&self.groups)?;
        rustix::thread::set_thread_gid(self.gid)?;
        rustix::thread::set_thread_uid(self.uid)?;
        Ok(())
    }
}

/// Makes a command run with these credentials. It then starts by fork instead of vfork, so commands
/// that keep the daemon's own identity never come here (contract: execd A2.2).
pub(crate) fn run_as(command: &mut Command, credentials: &Credentials) {
    let identity = Identity::of(credentials);
    #[expect(
        unsafe_code,
        reason = "supplementary groups can only be set between fork and exec"
    )]
    // SAFETY: the closure makes raw system calls on memory prepared before the fork; it neither
    // allocates nor takes a lock. After the fork there is one thread, so the identity of the thread
    // is that of the process.
    unsafe {
        command.pre_exec(move || identity.assume());
    }
}

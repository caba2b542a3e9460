//! Running a child as somebody else.
#![expect(
    unsafe_code,
    reason = "supplementary groups can only be set between fork and exec"
)]

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Gid, Uid};

use crate::identity::Credentials;

/// Makes a command run with these credentials. It then starts by fork instead of vfork, so commands
/// that keep the daemon's own identity never come here (contract: execd A2.2).
pub fn run_as(command: &mut Command, credentials: &Credentials) {
    let uid = Uid::from_raw(credentials.uid);
    let gid = Gid::from_raw(credentials.gid);
    let groups: Vec<Gid> = credentials
        .groups
        .iter()
        .copied()
        .map(Gid::from_raw)
        .collect();
    let switch = move || -> io::Result<()> {
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_gid(gid)?;
        rustix::thread::set_thread_uid(uid)?;
        Ok(())
    };
    // SAFETY: the closure makes three raw system calls on memory prepared before the fork; it
    // neither allocates nor takes a lock. After the fork there is one thread, so the identity of
    // the thread is that of the process.
    unsafe {
        command.pre_exec(switch);
    }
}

//! Giving a child a descriptor at a number of our choice.
#![expect(
    unsafe_code,
    reason = "a descriptor can only be put in its place between fork and exec"
)]

use std::{
    os::{
        fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

/// Makes a command start with `fd` open at `number`, which must be none of its standard streams.
pub fn inherit(command: &mut Command, fd: OwnedFd, number: RawFd) {
    debug_assert!(number > 2, "standard streams have their own way");
    let place = move || {
        // SAFETY: whatever had this number in the forked child is replaced; it is not closed twice,
        // because ownership is given up right after.
        let mut target = unsafe { OwnedFd::from_raw_fd(number) };
        let placed = rustix::io::dup2(&fd, &mut target);
        let _number = target.into_raw_fd();
        Ok(placed?)
    };
    // SAFETY: the closure makes one raw system call; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(place);
    }
}

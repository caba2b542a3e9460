//! Giving a child a descriptor at a number of our choice.
#![expect(
    unsafe_code,
    reason = "a descriptor can only be put in its place between fork and exec"
)]

use std::{
    io,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
};

/// Keeps a number from being given to anything else, for as long as the process lives. In a child
/// the number is replaced, which would else hit what the child still needs, such as the rules of its
/// hardening. What has the number already keeps it, too.
///
/// # Errors
/// What the system said, for example that there are fewer numbers.
pub fn reserve(number: RawFd) -> io::Result<()> {
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let placed = fcntl_dupfd_cloexec(&null, number)?;
    if placed.as_raw_fd() == number {
        // Held to the end.
        let _number = placed.into_raw_fd();
    }
    Ok(())
}

/// Makes a command start with `fd` open at `number`, which must be none of its standard streams.
pub fn inherit(command: &mut Command, fd: OwnedFd, number: RawFd) {
    debug_assert!(number > 2, "standard streams have their own way");
    let place = move || {
        if fd.as_raw_fd() == number {
            // It is in its place already, but would be closed.
            return Ok(fcntl_setfd(&fd, FdFlags::empty())?);
        }
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

//! Children of init and of its keepers: notice of their end, and reaping.

use std::{io, os::fd::AsFd};

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{WaitOptions, WaitStatus},
};

/// Descriptor that signals the end of children.
pub(super) fn children() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&mask, flags)?)
}

/// Waits for a message or the end of a child, and returns which of them arrived.
pub(super) fn wait(socket: impl AsFd, children: &SignalFd) -> io::Result<(bool, bool)> {
    let mut fds = [
        PollFd::new(&socket, PollFlags::IN),
        PollFd::new(children, PollFlags::IN),
    ];
    rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
    let [message, reap] = fds.map(|fd| !fd.revents().is_empty());
    if reap {
        while let Ok(Some(_)) = children.read_signal() {}
    }
    Ok((message, reap))
}

/// Reaps an ended child, if any. Does not use `nix`, which rejects real-time signals: a child that
/// ended by one would be an error.
pub(super) fn ended() -> Option<(rustix::process::Pid, WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}

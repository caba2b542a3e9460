//! What init does all day: it starts keepers and file workers, and reaps.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use nix::{
    sys::{
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{ForkResult, Pid, fork},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{WaitOptions, WaitStatus},
};

use super::{files, keeper};
use crate::isolated::wire;

/// Serves until the socket closes.
pub(super) fn serve(socket: &UnixStream) -> io::Result<()> {
    let children = children()?;
    loop {
        let (message, reap) = wait(socket.as_fd(), &children)?;
        if reap {
            while let Some(_ended) = ended() {}
        }
        if !message {
            continue;
        }
        let Some((what, fds)) = wire::receive(socket)? else {
            return Ok(());
        };
        match what {
            wire::RUN => apart(socket, &children, || keeper::keep(fds)),
            wire::FILES => apart(socket, &children, || files::work(fds)),
            wire::CLEAR => {
                // As process 1 this means everybody else.
                let _none_left = kill(Pid::from_raw(-1), Signal::SIGKILL);
            }
            _ => {}
        }
    }
}

/// Ends of children, as something to wait for.
pub(super) fn children() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&mask, flags)?)
}

/// Waits for a message or the end of a child; says which of the two came.
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

/// A child that ended, if there is one. Not by way of `nix`, which knows no real-time signals: an end
/// by one of them would be an error.
pub(super) fn ended() -> Option<(rustix::process::Pid, WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}

/// Does something in a process of its own, which ends with it. When there is none to be had, the
/// descriptors close, and the daemon sees that.
fn apart(socket: &UnixStream, children: &SignalFd, work: impl FnOnce() -> io::Result<()>) {
    #[expect(unsafe_code, reason = "a child without an exec is the point of this")]
    // SAFETY: this process has one thread, so the child has everything that it could need.
    if let Ok(ForkResult::Child) = unsafe { fork() } {
        // Only the daemon may keep this open: its end is the end of everything here.
        close(socket.as_fd());
        close(children.as_fd());
        let code = i32::from(work().is_err());
        finish(code);
    }
}

/// Closes a descriptor that its owner will not use again in this process.
fn close(fd: std::os::fd::BorrowedFd<'_>) {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::empty(),
    );
    if let Ok(null) = null {
        let _kept = replace(fd, null);
    }
}

fn replace(fd: std::os::fd::BorrowedFd<'_>, by: OwnedFd) -> io::Result<()> {
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
    #[expect(unsafe_code, reason = "the descriptor is put where another was")]
    // SAFETY: ownership is given up right after; the number stays open, so its owner may close it.
    let mut target = unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) };
    let done = rustix::io::dup3(by, &mut target, rustix::io::DupFlags::CLOEXEC);
    let _number = target.into_raw_fd();
    Ok(done?)
}

/// Ends this process at once, without what its parent would do at its end.
#[expect(
    clippy::disallowed_methods,
    reason = "a forked child has nothing to drain and must not return into its parent's code"
)]
pub(super) fn finish(code: i32) -> ! {
    std::process::exit(code)
}

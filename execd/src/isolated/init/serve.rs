//! Main loop of init: starts keepers and file workers, and reaps.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use nix::{
    sys::{
        signal::{Signal, kill},
        signalfd::SignalFd,
    },
    unistd::{ForkResult, Pid, fork},
};

use super::{
    children::{children, ended, wait},
    files, keeper,
};
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
                // For process 1 this means every other process of the namespace.
                let _none_left = kill(Pid::from_raw(-1), Signal::SIGKILL);
            }
            _ => {}
        }
    }
}

/// Runs work in a child process that exits after it. If no process can start, the descriptors
/// close, and the daemon notices.
fn apart(socket: &UnixStream, children: &SignalFd, work: impl FnOnce() -> io::Result<()>) {
    #[expect(unsafe_code, reason = "a child without an exec is the point of this")]
    // SAFETY: this process is single-threaded, so the child may run any code.
    if let Ok(ForkResult::Child) = unsafe { fork() } {
        // Only init may keep this open: its close ends the session.
        close(socket.as_fd());
        close(children.as_fd());
        let code = i32::from(work().is_err());
        finish(code);
    }
}

/// Closes a descriptor that its owner does not use again in this process.
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

/// Exits at once, without the parent's exit handlers.
#[expect(
    clippy::disallowed_methods,
    reason = "a forked child has nothing to drain and must not return into its parent's code"
)]
pub(super) fn finish(code: i32) -> ! {
    std::process::exit(code)
}

//! Children: the only code that waits for them.

use std::{
    convert::Infallible,
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{
        Pid, Signal, WaitOptions, WaitStatus, child_subreaper, getpid, kill_process_group, wait,
        waitpid,
    },
};
use tokio::signal::unix::{self, SignalKind, signal};
use tracing::{debug, error};

/// Children of this process.
///
/// Nothing else may wait for them: a child's status can be read only once.
#[derive(Debug)]
pub(super) struct Children {
    /// SIGCHLD.
    ended: unix::Signal,
    /// Whether orphans become children of this process, which then must reap them.
    adopts: bool,
}

impl Children {
    /// Listens for the end of children. Must come before the first one is started.
    ///
    /// # Errors
    /// When the signal handler cannot be installed.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            ended: signal(SignalKind::child())?,
            adopts: getpid() == Pid::INIT || child_subreaper()?.is_some(),
        })
    }

    /// Waits for a child, and reaps orphans meanwhile. Cancellation-safe.
    pub(super) async fn exit_of(&mut self, child: Pid) -> Exit {
        loop {
            if let Some(exit) = self.reap(Some(child)) {
                return exit;
            }
            // A child that ended since the reaping has already made this ready.
            if self.ended.recv().await.is_none() {
                return Exit::Unknown;
            }
        }
    }

    /// Reaps orphans, while no child is awaited. Cancellation-safe.
    pub(super) async fn reap_orphans(&mut self) -> Infallible {
        loop {
            self.reap(None);
            if self.ended.recv().await.is_none() {
                return std::future::pending().await;
            }
        }
    }

    /// Reaps what has ended; returns as soon as the awaited child has.
    fn reap(&self, awaited: Option<Pid>) -> Option<Exit> {
        loop {
            let waited = match (self.adopts, awaited) {
                (true, _) => retry_on_intr(|| wait(WaitOptions::NOHANG)),
                // The process may have other children that are not the supervisor's.
                (false, Some(_)) => retry_on_intr(|| waitpid(awaited, WaitOptions::NOHANG)),
                (false, None) => return None,
            };
            match waited {
                Ok(Some((pid, status))) if Some(pid) == awaited => return Some(Exit::of(status)),
                Ok(Some((pid, _))) => debug!(pid = pid.as_raw_nonzero(), "reaped an orphan"),
                Ok(None) => return None,
                Err(errno) => {
                    if errno != Errno::CHILD || awaited.is_some() {
                        error!(%errno, "waiting for children failed");
                    }
                    return awaited.map(|_| Exit::Unknown);
                }
            }
        }
    }
}

/// Starts a child as the leader of its own process group.
///
/// # Errors
/// When the program cannot be started.
pub(super) fn start(command: &mut Command, input: Stdio) -> io::Result<Pid> {
    let child = command.stdin(input).process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

/// Sends a signal to the process group of a child that has not been reaped.
pub(super) fn signal_group(leader: Pid, signal: Signal) {
    if let Err(errno) = kill_process_group(leader, signal) {
        error!(%errno, ?signal, pid = leader.as_raw_nonzero(), "a signal cannot be sent");
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// With a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The kernel has no status of it.
    Unknown,
}

impl Exit {
    fn of(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// Exit code; -1 if there is none.
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(_) | Self::Unknown => -1,
        }
    }

    /// Name of the signal, such as `killed`.
    pub(super) fn signal(self) -> Option<String> {
        let Self::Signal(number) = self else {
            return None;
        };
        let name = osb_service::signal::name(number);
        Some(name.map_or_else(|| format!("signal {number}"), ToOwned::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(script: &str) -> Exit {
        let mut children = Children::listen().unwrap();
        let child = start(Command::new("sh").args(["-c", script]), Stdio::null()).unwrap();
        children.exit_of(child).await
    }

    #[tokio::test]
    async fn children_end_with_a_code_or_by_a_signal() {
        let exit = ended("exit 7").await;
        assert_eq!((exit, exit.code(), exit.signal()), (Exit::Code(7), 7, None));
        let exit = ended("kill -KILL $$").await;
        assert_eq!(
            (exit.code(), exit.signal().as_deref()),
            (-1, Some("killed"))
        );
        let exit = ended("kill -34 $$").await;
        assert_eq!(exit.signal().as_deref(), Some("signal 34"));
        assert_eq!(Exit::Signal(15).signal().as_deref(), Some("terminated"));
        assert_eq!((Exit::Unknown.code(), Exit::Unknown.signal()), (-1, None));
    }

    #[tokio::test]
    async fn a_child_without_a_status_has_ended() {
        let mut children = Children::listen().unwrap();
        let child = start(Command::new("sh").args(["-c", "exit 1"]), Stdio::null()).unwrap();
        assert_eq!(children.exit_of(child).await, Exit::Code(1));
        assert_eq!(children.exit_of(child).await, Exit::Unknown);
    }
}

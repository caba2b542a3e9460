//! The daemon's side of a session's init: starts it and sends it work.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream as Pair, process::CommandExt},
    },
    process::{Command, Stdio},
};

use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    net::UnixStream,
    time::timeout,
};
use tracing::{info, warn};

use super::{
    init,
    plan::{Plan, Ready, Refusal},
    wire,
};
use crate::{base::Base, limits, process::Process, view::View};

/// The running executable, even if its file was replaced or deleted.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Connection to a session's init. The session ends with the init.
#[derive(Debug)]
pub(super) struct Link {
    socket: Pair,
    process: Process,
}

/// Reason why a session did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The init refused.
    #[error("{message}")]
    Refused { why: Refusal, message: String },
    /// The init ended, or did not reply in time.
    #[error("the session ended while it was set up")]
    Ended,
    /// The system is out of resources.
    #[error("cannot start the session: {0}")]
    System(#[from] io::Error),
}

impl Link {
    /// Starts an init and waits until its session is ready.
    pub(super) async fn start(base: &Base, plan: &Plan) -> Result<Self, StartError> {
        let (ours, theirs) = Pair::pair()?;
        let mut command = Command::new(THIS_PROGRAM);
        command
            .arg0("execd")
            .arg(init::SUBCOMMAND)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let process = base.processes.spawn_own(&mut command)?;
        // The command holds the child's end of the socket.
        drop(command);
        ours.set_nonblocking(true)?;
        let reader = UnixStream::from_std(ours.try_clone()?)?;
        let link = Self {
            socket: ours,
            process,
        };
        link.send(wire::PLAN, &[wire::packed(plan)?.as_fd()])?;
        let ready = timeout(limits::ISOLATED_START, line(&mut BufReader::new(reader))).await;
        match ready {
            Ok(Some(Ready::Yes { without })) => {
                let pid = link.process.pid().as_raw_nonzero();
                info!(pid, ?without, "isolated session started");
                Ok(link)
            }
            Ok(Some(Ready::No { why, message })) => Err(StartError::Refused { why, message }),
            Ok(None) | Err(_) => Err(StartError::Ended),
        }
    }

    pub(super) fn send(&self, what: u8, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(&self.socket, what, fds)
    }

    /// Opens a connection that carries one file request.
    pub(super) fn files(&self, view: View) -> io::Result<UnixStream> {
        let (ours, theirs) = Pair::pair()?;
        let order = wire::packed(&super::plan::FileOrder { view })?;
        self.send(wire::FILES, &[order.as_fd(), theirs.as_fd()])?;
        ours.set_nonblocking(true)?;
        UnixStream::from_std(ours)
    }

    /// Kills every process of the session but its init.
    pub(super) fn clear(&self) {
        if let Err(error) = self.send(wire::CLEAR, &[]) {
            warn!(%error, "a session's processes were not killed");
        }
    }

    /// Waits until no process of the session is left.
    pub(super) async fn ended(&self) {
        self.process.exited().await;
    }

    /// Kills every process of the session. Returns whether all have ended.
    pub(super) async fn end(&self) -> bool {
        // The outer process stays: it exits once the namespace is empty. If killed too, it would
        // not wait for that.
        self.process.kill_descendants();
        let ended = timeout(limits::ISOLATED_END, self.ended()).await.is_ok();
        if !ended {
            self.process.kill_tree();
        }
        ended
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.process.kill_tree();
    }
}

/// Reads the next message line, if it is valid. Code in the session may have written it, so its
/// length is limited.
pub(super) async fn line<T: DeserializeOwned>(
    reader: &mut BufReader<impl AsyncRead + Unpin>,
) -> Option<T> {
    let mut text = Vec::new();
    let mut bounded = reader.take(limits::ISOLATED_LINE);
    bounded.read_until(b'\n', &mut text).await.ok()?;
    serde_json::from_slice(text.strip_suffix(b"\n")?).ok()
}

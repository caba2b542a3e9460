//! The daemon's side of a run in a session: events from its keeper, and its termination.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::net::UnixStream as Pair},
};

use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    link::{Link, line},
    plan::{KeeperEvent, Order},
    wire,
};
use crate::{
    base::Base,
    limits,
    output::{OutputPipes, Pipes, Subject},
    process::Exit,
};

/// Run in a session. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    end: watch::Receiver<Option<How>>,
    stop: CancellationToken,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The shell ended.
    Exited(Exit),
    /// The session ended.
    Lost,
}

/// Reason why a run did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("the workspace is not writable by the session uid")]
    NotWritable,
    #[error("{0}")]
    NotStarted(String),
    #[error("the session process has exited")]
    Lost,
    #[error("cannot start the run: {0}")]
    System(#[from] io::Error),
}

/// Files for the state of the shell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct States<'a> {
    /// State to restore.
    pub(super) before: Option<&'a File>,
    /// File for the state after the run.
    pub(super) after: Option<&'a File>,
}

impl Guest {
    /// Starts a run and waits until its shell runs.
    pub(super) async fn start(
        base: &Base,
        link: &Link,
        order: &Order,
        states: States<'_>,
        merged: bool,
    ) -> Result<(Self, OutputPipes), RunError> {
        debug_assert_eq!(
            (order.restore, order.report),
            (states.before.is_some(), states.after.is_some())
        );
        let (pipes, theirs) = Pipes::new(merged)?;
        let (ours, control) = Pair::pair()?;
        let packed = wire::packed(order)?;
        let mut fds = vec![
            packed.as_fd(),
            control.as_fd(),
            theirs.stdout.as_fd(),
            theirs.stderr.as_fd(),
        ];
        fds.extend(states.before.map(AsFd::as_fd));
        fds.extend(states.after.map(AsFd::as_fd));
        link.send(wire::RUN, &fds).map_err(|_| RunError::Lost)?;
        drop(fds);
        drop((control, theirs));
        ours.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(ours)?.into_split();
        let mut reader = BufReader::new(reader);
        match line(&mut reader).await {
            Some(KeeperEvent::Started) => {}
            Some(KeeperEvent::NotWritable) => return Err(RunError::NotWritable),
            Some(KeeperEvent::NotStarted(why)) => return Err(RunError::NotStarted(why)),
            _ => return Err(RunError::Lost),
        }
        let (sender, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let guest = Self { end, stop };
        base.tasks.spawn_abortable(
            "isolated run",
            run_to_end(guest.clone(), reader, writer, sender),
        );
        Ok((guest, pipes))
    }

    /// Waits for the end of the run and returns how it ended.
    pub(super) async fn how(&self) -> How {
        let mut seen = self.end.clone();
        let end = seen.wait_for(Option::is_some).await;
        end.ok().and_then(|end| *end).unwrap_or(How::Lost)
    }
}

impl Subject for Guest {
    async fn exited(&self) -> Exit {
        match self.how().await {
            How::Exited(exit) => exit,
            How::Lost => Exit::Signal {
                number: 9,
                core: false,
            },
        }
    }

    fn end(&self) {
        self.stop.cancel();
    }
}

/// Waits for the end of the run. On request sends SIGINT, SIGTERM and SIGKILL to every process of
/// the run.
async fn run_to_end(
    guest: Guest,
    mut reader: BufReader<OwnedReadHalf>,
    mut writer: OwnedWriteHalf,
    sender: watch::Sender<Option<How>>,
) {
    let wait = async {
        let how = match line(&mut reader).await {
            Some(KeeperEvent::Exited(code)) => How::Exited(Exit::Code(code)),
            Some(KeeperEvent::Signalled { number, core }) => {
                How::Exited(Exit::Signal { number, core })
            }
            _ => How::Lost,
        };
        sender.send_replace(Some(how));
    };
    let escalate = async {
        guest.stop.cancelled().await;
        let steps = [
            (wire::INTERRUPT, limits::ISOLATED_INTERRUPT),
            (wire::TERMINATE, limits::ISOLATED_TERMINATE),
        ];
        for (signal, grace) in steps {
            // The keeper may have ended.
            let _gone = writer.write_all(&[signal]).await;
            if timeout(grace, guest.how()).await.is_ok() {
                break;
            }
        }
        // For processes that ignored the other signals, or outlived the shell.
        let _gone = writer.write_all(&[wire::KILL]).await;
        guest.how().await;
    };
    tokio::pin!(escalate);
    tokio::select! {
        () = wait => {
            if guest.stop.is_cancelled() {
                escalate.await;
            }
        }
        () = &mut escalate => {}
    }
}

//! One run in a session, as the daemon sees it: what its keeper tells, and how it is ended.

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
    plan::{Order, Told},
    wire,
};
use crate::{
    base::Base,
    limits,
    output::{Pipe, Pipes, Subject},
    process::Exit,
};

/// A run. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    end: watch::Receiver<Option<How>>,
    stop: CancellationToken,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Its shell did.
    Exited(Exit),
    /// Its session did.
    Lost,
}

/// Why a run did not start.
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
    /// To begin with.
    pub(super) before: Option<&'a File>,
    /// For what is left.
    pub(super) after: Option<&'a File>,
}

impl Guest {
    /// Starts a run and waits until its shell does.
    pub(super) async fn start(
        base: &Base,
        link: &Link,
        order: &Order,
        states: States<'_>,
        merged: bool,
    ) -> Result<(Self, Vec<Pipe>), RunError> {
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
            Some(Told::Started) => {}
            Some(Told::NotWritable) => return Err(RunError::NotWritable),
            Some(Told::NotStarted(why)) => return Err(RunError::NotStarted(why)),
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

    /// How it ended; waits for that.
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

/// Waits for the end, and brings it about when it is asked for: SIGINT, SIGTERM, SIGKILL to all
/// that the run started.
async fn run_to_end(
    guest: Guest,
    mut reader: BufReader<OwnedReadHalf>,
    mut writer: OwnedWriteHalf,
    sender: watch::Sender<Option<How>>,
) {
    let wait = async {
        let how = match line(&mut reader).await {
            Some(Told::Exited(code)) => How::Exited(Exit::Code(code)),
            Some(Told::Signalled { number, core }) => How::Exited(Exit::Signal { number, core }),
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
            // It may be gone.
            let _gone = writer.write_all(&[signal]).await;
            if timeout(grace, guest.how()).await.is_ok() {
                break;
            }
        }
        // What ignored the others, and what the shell left behind.
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

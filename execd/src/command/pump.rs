//! Moving a command's output from its pipes to where it is read, and telling its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use jiff::Timestamp;
use rustix::io::retry_on_intr;
use tokio::{net::unix::pipe::Receiver, time::sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    log::Log,
    run::{End, Outcome},
    spool::{Chunk, Source, Spool},
    store::{Commands, Record},
};
use crate::{limits, process::Process};

/// Where the output goes.
#[derive(Clone, Debug)]
pub(super) enum Sink {
    /// To the one reader of a foreground command.
    Spool(Arc<Spool>),
    /// To the log of a background command.
    Log(Arc<Log>),
}

impl Sink {
    async fn take(&self, source: Source, bytes: Bytes) {
        match self {
            Self::Spool(spool) => {
                let at = Timestamp::now().as_millisecond();
                spool.push(Chunk { source, at, bytes }).await;
            }
            Self::Log(log) => log.append(bytes).await,
        }
    }
}

/// The daemon's end of a pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    source: Source,
    receiver: Option<Receiver>,
    buffer: BytesMut,
}

impl Pipe {
    pub(super) fn new(source: Source, receiver: Receiver) -> Self {
        Self {
            source,
            receiver: Some(receiver),
            buffer: BytesMut::new(),
        }
    }

    /// What is there, or an empty piece when nothing is; `None` at the end. Never waits.
    fn read_now(&mut self) -> Option<Bytes> {
        let receiver = self.receiver.as_ref()?;
        if self.buffer.capacity() - self.buffer.len() < limits::READ_CHUNK / 16 {
            self.buffer.reserve(limits::READ_CHUNK);
        }
        match receiver.try_read_buf(&mut self.buffer) {
            Ok(0) => {}
            Ok(_) => return Some(self.buffer.split().freeze()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Some(Bytes::new());
            }
            Err(error) => warn!(%error, "reading a command's output failed"),
        }
        self.receiver = None;
        None
    }

    /// The next output; `None` at the end, and from then on forever pending. Safe to cancel.
    async fn read(&mut self) -> Option<Bytes> {
        let Some(receiver) = &self.receiver else {
            return std::future::pending().await;
        };
        match receiver.readable().await {
            Ok(()) => self.read_now(),
            Err(error) => {
                warn!(%error, "waiting for a command's output failed");
                self.receiver = None;
                None
            }
        }
    }

    /// Bytes in the pipe right now.
    fn waiting(&self) -> u64 {
        let receiver = self.receiver.as_ref();
        receiver
            .and_then(|receiver| rustix::io::ioctl_fionread(receiver).ok())
            .unwrap_or(0)
    }

    /// Up to `most` bytes of what is in the pipe. Asks the kernel: what the runtime knows of the
    /// pipe may be older than the end of the process, and would say that nothing is there.
    fn take_waiting(&self, most: u64) -> Option<Bytes> {
        let receiver = self.receiver.as_ref()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut piece = vec![0; most.min(limits::READ_CHUNK)];
        let len = retry_on_intr(|| rustix::io::read(receiver, piece.as_mut_slice())).ok()?;
        piece.truncate(len);
        (len > 0).then(|| Bytes::from(piece))
    }
}

/// The task of one command.
pub(super) struct Pump {
    pub(super) process: Process,
    pub(super) sink: Sink,
    pub(super) pipes: Vec<Pipe>,
    pub(super) record: Arc<Record>,
    pub(super) began: Instant,
    pub(super) timeout: Option<Duration>,
    pub(super) commands: Commands,
    pub(super) stopping: CancellationToken,
}

impl Pump {
    pub(super) async fn run(mut self) {
        let end = self.until_exit().await;
        // What the process wrote before it ended is in the pipes now. A child of it that keeps a
        // pipe open may go on writing: that is not waited for.
        for pipe in &mut self.pipes {
            let mut left = pipe.waiting();
            while left > 0 {
                let Some(bytes) = pipe.take_waiting(left) else {
                    break;
                };
                left = left.saturating_sub(bytes.len() as u64);
                self.sink.take(pipe.source, bytes).await;
            }
        }
        info!(id = self.record.id(), ?end, "command ended");
        let outcome = Outcome::now(end, self.began.elapsed());
        self.commands.finish(&self.record, &outcome);
        if let Sink::Spool(spool) = &self.sink {
            spool.finish(outcome);
        }
        self.linger().await;
    }

    async fn until_exit(&mut self) -> End {
        let deadline = self
            .timeout
            .and_then(|timeout| self.began.checked_add(timeout));
        let mut alarm = std::pin::pin!(async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        });
        let process = self.process.clone();
        let mut exited = std::pin::pin!(process.exited());
        let mut timed_out = None;
        let (first, rest) = self.pipes.split_first_mut().expect("there is a pipe");
        let mut none = Pipe {
            source: Source::Stderr,
            receiver: None,
            buffer: BytesMut::new(),
        };
        let second = rest.first_mut().unwrap_or(&mut none);
        loop {
            let (source, bytes) = tokio::select! {
                bytes = first.read() => (first.source, bytes),
                bytes = second.read() => (second.source, bytes),
                exit = &mut exited => return End::Exited { exit, timed_out },
                () = &mut alarm, if timed_out.is_none() => {
                    timed_out = self.timeout;
                    process.kill_tree();
                    continue;
                }
            };
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
                self.sink.take(source, bytes).await;
            }
        }
    }

    /// Reads on while children of the command hold its pipes: closed pipes would kill them. The log
    /// of a background command goes on; a foreground stream has ended.
    async fn linger(mut self) {
        self.pipes.retain(|pipe| pipe.receiver.is_some());
        if self.pipes.is_empty() {
            return;
        }
        let Some(_permit) = self.commands.may_linger() else {
            warn!(
                id = self.record.id(),
                "too many ended commands hold pipes open; closing"
            );
            return;
        };
        let log = match &self.sink {
            Sink::Log(log) => Some(log),
            Sink::Spool(_) => None,
        };
        let drains = self.pipes.iter_mut().map(|pipe| async move {
            while let Some(bytes) = pipe.read().await {
                if let Some(log) = log {
                    log.append(bytes).await;
                }
            }
        });
        tokio::select! {
            _ = join_all(drains) => {}
            () = self.stopping.cancelled() => {}
        }
    }
}

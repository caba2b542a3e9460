//! Transfer of a process's output from its pipes to a sink, and the report of its end.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{End, Log, Outcome, Outputs, Pipe, Source, Writer};
use crate::process::{Exit, Process};

/// Destination of the output.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To the events of a foreground run.
    Events(Writer),
    /// To the log of a background run.
    Log(Arc<Log>),
    /// Discarded: the stream has ended.
    Nowhere,
}

impl Sink {
    async fn take(&mut self, source: Source, bytes: Bytes) {
        match self {
            Self::Events(writer) => writer.write(source, bytes).await,
            Self::Log(log) => log.append(bytes).await,
            Self::Nowhere => {}
        }
    }

    /// Ends the stream of events with how the run ended.
    pub(crate) async fn finish(&mut self, outcome: &Outcome) {
        if let Self::Events(_) = self
            && let Self::Events(writer) = std::mem::replace(self, Self::Nowhere)
        {
            writer.finish(outcome).await;
        }
    }
}

/// Subject of a pump: a process, or a run that behaves like one.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// Waits for its end. All that it wrote before is in its pipes then.
    fn exited(&self) -> impl Future<Output = Exit> + Send;
    /// Ends it.
    fn end(&self);
}

impl Subject for Process {
    fn exited(&self) -> impl Future<Output = Exit> + Send {
        Self::exited(self)
    }

    fn end(&self) {
        self.kill_tree();
    }
}

/// One process with its output.
pub(crate) struct Pump<S = Process> {
    pub(crate) process: S,
    pub(crate) sink: Sink,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) began: Instant,
    pub(crate) timeout: Option<Duration>,
}

impl<S: Subject> Pump<S> {
    /// Moves output until the process ended and everything it wrote is in the sink.
    pub(crate) async fn until_end(&mut self) -> Outcome {
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
        Outcome::now(end, self.began.elapsed())
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
        let mut none = Pipe::closed();
        let second = rest.first_mut().unwrap_or(&mut none);
        loop {
            let (source, bytes) = tokio::select! {
                bytes = first.read() => (first.source, bytes),
                bytes = second.read() => (second.source, bytes),
                exit = &mut exited => return End::Exited { exit, timed_out },
                () = &mut alarm, if timed_out.is_none() => {
                    timed_out = self.timeout;
                    process.end();
                    continue;
                }
            };
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
                self.sink.take(source, bytes).await;
            }
        }
    }

    /// Reads on while children of the process hold its pipes: closed pipes would kill them. A log
    /// goes on; a stream has ended.
    pub(crate) async fn linger(mut self, outputs: &Outputs, stopping: &CancellationToken) {
        self.pipes.retain(Pipe::is_open);
        if self.pipes.is_empty() {
            return;
        }
        let Some(_permit) = outputs.may_linger() else {
            warn!("too many ended commands hold pipes open; closing");
            return;
        };
        let log = match &self.sink {
            Sink::Log(log) => Some(log),
            Sink::Events(_) | Sink::Nowhere => None,
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
            () = stopping.cancelled() => {}
        }
    }
}

//! Transfer of a process's output from its pipes to a sink, until the process ends.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{End, Log, Outcome, OutputPipes, Outputs, Source, Writer};
use crate::process::{Exit, Process};

/// Destination of the output.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Events of a foreground run.
    Events(Writer),
    /// Log of a background run.
    Log(Arc<Log>),
    /// No destination: the stream of events has ended.
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

    /// Ends the stream of events with the outcome of the run.
    pub(crate) async fn finish(&mut self, outcome: &Outcome) {
        if let Self::Events(_) = self
            && let Self::Events(writer) = std::mem::replace(self, Self::Nowhere)
        {
            writer.finish(outcome).await;
        }
    }
}

/// Source of a pump: a process, or an isolated run that behaves like one.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// Waits until it ends. Its pipes then hold everything that it wrote.
    fn exited(&self) -> impl Future<Output = Exit> + Send;
    /// Kills it.
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

/// Process whose output is moved to a sink.
pub(crate) struct Pump<S = Process> {
    pub(crate) process: S,
    pub(crate) sink: Sink,
    pub(crate) pipes: OutputPipes,
    pub(crate) began: Instant,
    pub(crate) timeout: Option<Duration>,
}

impl<S: Subject> Pump<S> {
    /// Moves output until the process has ended and the sink has everything that it wrote.
    pub(crate) async fn until_end(&mut self) -> Outcome {
        let end = self.until_exit().await;
        // The pipes now hold everything that the process wrote. A child process that keeps a pipe
        // open may write more, which this does not wait for.
        let mut rest = self.pipes.waiting();
        while let Some((source, bytes)) = self.pipes.read_rest(&mut rest) {
            self.sink.take(source, bytes).await;
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
        loop {
            tokio::select! {
                // At the end of all output, only the other branches are left.
                Some((source, bytes)) = self.pipes.read() => self.sink.take(source, bytes).await,
                exit = &mut exited => return End::Exited { exit, timed_out },
                () = &mut alarm, if timed_out.is_none() => {
                    timed_out = self.timeout;
                    process.end();
                }
            }
        }
    }

    /// Reads on while child processes hold the pipes open, because closed pipes would kill them. A
    /// log receives their output; a stream of events has ended.
    pub(crate) async fn linger(mut self, outputs: &Outputs, stopping: &CancellationToken) {
        if !self.pipes.is_open() {
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
        let pipes = &mut self.pipes;
        let drained = async {
            while let Some((_, bytes)) = pipes.read().await {
                if let Some(log) = log {
                    log.append(bytes).await;
                }
            }
        };
        tokio::select! {
            () = drained => {}
            () = stopping.cancelled() => {}
        }
    }
}

//! The body of a stream: events in the order in which they happen, pings in between, and the end
//! right after the last event (contract: execd §4).

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{FutureExt, stream};
use jiff::Timestamp;
use osb_protocol::execd::event::COMMAND_ERROR;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{
    End, Outcome, Outputs,
    frame::{self, Long},
    lines::{Budget, Held, Lines},
    spool::{Chunk, Next, Source, Spool},
};
use crate::{limits, server::stream_headers};

/// A run on its way.
#[derive(Debug)]
pub(crate) struct Run {
    /// What its first event tells: the id by which clients interrupt it.
    pub(crate) id: String,
    pub(crate) output: Output,
}

/// Where its events come from.
#[derive(Debug)]
pub(crate) enum Output {
    Foreground(Arc<Spool>),
    /// Background: whether it was launched.
    Background(Outcome),
}

/// The answer that carries the events of a run.
pub(crate) fn response(run: Run, outputs: &Outputs) -> Response {
    let budget = Arc::clone(&outputs.partial_lines);
    let mut opening = Vec::new();
    let now = Timestamp::now().as_millisecond();
    frame::text(&mut opening, "init", run.id.as_bytes(), now);
    frame::text(&mut opening, "ping", b"pong", now);
    let body = match run.output {
        Output::Background(outcome) => {
            last_event(&mut opening, &outcome);
            Body::from(opening)
        }
        Output::Foreground(spool) => {
            let events = Events::new(spool, opening, budget);
            Body::from_stream(stream::unfold(events, |mut events| async move {
                let bytes = events.next().await?;
                Some((Ok::<_, Infallible>(bytes), events))
            }))
        }
    };
    let mut response = Response::new(body);
    *response.headers_mut() = stream_headers();
    response
}

/// The one reader of a spool.
struct Events {
    spool: Arc<Spool>,
    opening: Vec<u8>,
    pending: VecDeque<Chunk>,
    stdout: Lines,
    stderr: Lines,
    /// An event that is written in pieces; nothing else is written before its end.
    long: Option<Long<Held>>,
    ending: Option<(Outcome, u64)>,
    ping: Interval,
    ended: bool,
}

impl Events {
    fn new(spool: Arc<Spool>, opening: Vec<u8>, budget: Arc<Budget>) -> Self {
        let mut ping = interval_at(Instant::now() + limits::PING, limits::PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            spool,
            opening,
            pending: VecDeque::new(),
            stdout: Lines::new(Arc::clone(&budget)),
            stderr: Lines::new(budget),
            long: None,
            ending: None,
            ping,
            ended: false,
        }
    }

    /// Everything there is to send now; waits while there is nothing.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = std::mem::take(&mut self.opening);
        if self.ended {
            return None;
        }
        loop {
            self.fill(&mut out);
            if self.ended || out.len() >= limits::STREAM_WRITE {
                break;
            }
            let next = if out.is_empty() {
                tokio::select! {
                    next = self.spool.next() => next,
                    _ = self.ping.tick() => {
                        let now = Timestamp::now().as_millisecond();
                        frame::text(&mut out, "ping", b"pong", now);
                        break;
                    }
                }
            } else {
                // What is there joins this write; what is not is not waited for.
                match self.spool.next().now_or_never() {
                    Some(next) => next,
                    None => break,
                }
            };
            match next {
                Next::Chunks(chunks) => self.pending = chunks,
                Next::End { outcome, dropped } => self.ending = Some((outcome, dropped)),
            }
        }
        Some(Bytes::from(out))
    }

    /// Writes what is here, until it is enough for now.
    fn fill(&mut self, out: &mut Vec<u8>) {
        while out.len() < limits::STREAM_WRITE && !self.ended {
            if let Some(long) = &mut self.long {
                if long.write(out) {
                    self.long = None;
                }
            } else if let Some(chunk) = self.pending.pop_front() {
                self.write(chunk, out);
            } else if let Some((outcome, dropped)) = self.ending.take() {
                self.end(outcome, dropped, out);
            } else {
                return;
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk, out: &mut Vec<u8>) {
        let lines = match chunk.source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        };
        let (kind, at) = (chunk.source.kind(), chunk.at);
        let held = lines.feed(&mut chunk.bytes, |text| frame::text(out, kind, text, at));
        self.long = held.map(|text| Long::begin(out, kind, text, at));
        if !chunk.bytes.is_empty() {
            self.pending.push_front(chunk);
        }
    }

    /// One step of the end: what was not finished of each stream, then the last events.
    fn end(&mut self, outcome: Outcome, dropped: u64, out: &mut Vec<u8>) {
        for (lines, source) in [
            (&mut self.stdout, Source::Stdout),
            (&mut self.stderr, Source::Stderr),
        ] {
            if let Some(text) = lines.flush() {
                self.long = Some(Long::begin(out, source.kind(), text, outcome.at));
                self.ending = Some((outcome, dropped));
                return;
            }
        }
        if dropped > 0 {
            let text = format!(
                "[execd: {dropped} bytes of output did not fit on the disk and are missing]"
            );
            frame::text(out, "stderr", text.as_bytes(), outcome.at);
        }
        last_event(out, &outcome);
        self.ended = true;
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.spool.abandon();
    }
}

/// Exactly one of `error` and `execution_complete` ends a stream.
fn last_event(out: &mut Vec<u8>, outcome: &Outcome) {
    let reasons = outcome.end.reasons();
    if reasons.is_empty() {
        frame::complete(out, outcome.took.as_millis(), outcome.at);
        return;
    }
    let (name, value) = match &outcome.end {
        End::Exited { exit, .. } => (COMMAND_ERROR, exit.wire_code().to_string()),
        End::NotStarted(reason) => (COMMAND_ERROR, reason.clone()),
        End::Failed { name, value, .. } => (*name, value.clone()),
    };
    frame::error(out, name, &value, &reasons, outcome.at);
}

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
    frame,
    lines::{Budget, Lines},
    run::{End, Outcome, Output, Run},
    spool::{Chunk, Next, Source, Spool},
};
use crate::{limits, server::stream_headers};

/// The answer that carries the events of a run.
pub(super) fn response(run: Run, budget: Arc<Budget>) -> Response {
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
        while !self.ended {
            while out.len() < limits::STREAM_WRITE
                && let Some(chunk) = self.pending.pop_front()
            {
                self.write(&chunk, &mut out);
            }
            if out.len() >= limits::STREAM_WRITE {
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
                Next::End { outcome, dropped } => self.end(&outcome, dropped, &mut out),
            }
        }
        Some(Bytes::from(out))
    }

    fn write(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        let lines = match chunk.source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        };
        let kind = chunk.source.kind();
        lines.feed(&chunk.bytes, |text| frame::text(out, kind, text, chunk.at));
    }

    fn end(&mut self, outcome: &Outcome, dropped: u64, out: &mut Vec<u8>) {
        for (lines, source) in [
            (&mut self.stdout, Source::Stdout),
            (&mut self.stderr, Source::Stderr),
        ] {
            lines.flush(|text| frame::text(out, source.kind(), text, outcome.at));
        }
        if dropped > 0 {
            let text = format!(
                "[execd: {dropped} bytes of output did not fit on the disk and are missing]"
            );
            frame::text(out, "stderr", text.as_bytes(), outcome.at);
        }
        last_event(out, outcome);
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
    let value = match &outcome.end {
        End::Exited { exit, .. } => exit.wire_code().to_string(),
        End::NotStarted(reason) => reason.clone(),
    };
    frame::error(out, COMMAND_ERROR, &value, &reasons, outcome.at);
}

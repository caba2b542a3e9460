//! Passes what a command writes on to a page: the events of one that runs in the foreground, or the log
//! of one in the background.

use std::time::Duration;

use axum::{
    extract::ws::{Message, WebSocket},
    http::StatusCode,
};
use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use osb_app::{
    live::LogStream,
    run::{Ended, RunLine, RunMessage, RunRequest},
};
use osb_client::{
    ExecdClient,
    execd::{Events, Logs},
};
use osb_protocol::execd::{
    command::CommandStatus,
    event::{COMMAND_ERROR, Event, EventKind},
};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};

use super::execd::ExecdError;
use crate::sandbox;

/// Longest event that is passed on, in bytes: a command may print a line of any length.
const EVENT_MAX: usize = 1 << 20;
const LOST: &str = "The connection to the sandbox broke. The command may go on.";
/// Events that are passed on in one message at most.
const BATCH: usize = 64;
/// Interval of pings to the page.
const PING: Duration = Duration::from_secs(30);
/// Longest silence of a page, which at least answers pings.
const SILENCE: Duration = Duration::from_secs(90);
/// Longest time for the page to take one message; then it is gone.
const STUCK: Duration = Duration::from_secs(60);
/// Pause between two reads of a log.
const POLL: Duration = Duration::from_millis(500);
/// Longest time for execd to answer one of them.
const ANSWER: Duration = Duration::from_secs(15);
/// Most bytes of a log that are read at once.
const PART: usize = 256 << 10;
/// Bytes at the end of a log that a page gets: it keeps no more.
const TAIL: u64 = 2 << 20;
/// Longest line of a log; a longer one is cut into several.
const LINE: usize = 64 << 10;
/// What a page says about a command that execd has forgotten, or whose output it has.
const NOT_KEPT: &str = "The sandbox no longer keeps the output of this command.";

/// What becomes of a request to end the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupts {
    /// It is passed on: the connection started the command.
    Obeyed,
    /// Nothing: what ends the commands of others is recorded elsewhere.
    Ignored,
}

impl Interrupts {
    /// Whether this message of the page ends the command.
    fn takes(self, text: &str) -> bool {
        self == Self::Obeyed && matches!(serde_json::from_str(text), Ok(RunRequest::Interrupt))
    }
}

/// Waits until a background command is launched, and then passes its log on.
pub(super) async fn launched(page: &mut WebSocket, execd: &ExecdClient, events: Events) {
    let mut events = events.within(EVENT_MAX);
    let run = async {
        while let Some(Ok(event)) = events.next().await {
            if event.kind == EventKind::Init {
                return Some(event.text);
            }
        }
        None
    };
    match timeout(ANSWER, run).await {
        Ok(Some(run)) => follow_log(page, execd, &run, Interrupts::Obeyed).await,
        _ => refuse(page, LOST).await,
    }
}

/// Why what a command writes cannot be shown, in words.
pub(super) fn why_not(error: &ExecdError) -> String {
    match is_gone(error) {
        true => NOT_KEPT.to_owned(),
        false => error.to_string(),
    }
}

/// Whether execd has forgotten the command, or what it wrote.
fn is_gone(error: &ExecdError) -> bool {
    let is_forgotten = |status| [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&status);
    match error {
        ExecdError::Domain(error) => matches!(error, sandbox::Error::NoSuchCommand(_)),
        error => error.status().is_some_and(is_forgotten),
    }
}

/// Says why nothing more comes.
async fn refuse(page: &mut WebSocket, why: &str) {
    let message = why.to_owned();
    // The page may be gone already.
    let _ = send(page, &RunMessage::Refused { message }).await;
}

/// A log on its way to a page.
#[derive(Default)]
struct Progress {
    /// Whether the page knows that the command was started.
    is_started: bool,
    cursor: u64,
    lines: LineCutter,
    /// Whether the command has ended.
    has_ended: bool,
    /// Where the log ended a moment after the command: what else comes is of processes that the command
    /// left behind, and may never end.
    last: Option<u64>,
}

/// Passes the log of a background command on until it ends or the page leaves.
pub(super) async fn follow_log(
    page: &mut WebSocket,
    execd: &ExecdClient,
    run: &str,
    obeys: Interrupts,
) {
    let mut poll = interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ping = interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut interrupts = FuturesUnordered::new();
    let mut progress = Progress::default();
    loop {
        tokio::select! {
            _ = poll.tick() => {
                let messages = match progress.read(execd, run).await {
                    Ok(messages) => messages,
                    Err(error) => vec![RunMessage::Refused { message: why_not(&error) }],
                };
                for message in messages {
                    let is_last =
                        matches!(message, RunMessage::Ended(_) | RunMessage::Refused { .. });
                    if !send(page, &message).await || is_last {
                        return;
                    }
                }
            }
            message = page.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    heard = Instant::now();
                    if obeys.takes(&text) && interrupts.is_empty() {
                        interrupts.push(execd.interrupt(run));
                    }
                }
                Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                Some(Ok(_)) => heard = Instant::now(),
            },
            // How it ended is in its status.
            Some(_) = interrupts.next() => {}
            _ = ping.tick() => {
                let is_gone = heard.elapsed() > SILENCE;
                let ping = timeout(STUCK, page.send(Message::Ping(Bytes::new()))).await;
                if is_gone || !matches!(ping, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}

impl Progress {
    /// Reads what is new, one part of it at most.
    async fn read(
        &mut self,
        execd: &ExecdClient,
        run: &str,
    ) -> Result<Vec<RunMessage>, ExecdError> {
        let status = timeout(ANSWER, execd.status(run)).await??;
        let mut messages = Vec::new();
        let (mut part, mut end) = log_part(execd, run, self.cursor).await?;
        if !self.is_started {
            self.is_started = true;
            messages.push(RunMessage::Started);
        }
        let first = end.saturating_sub(TAIL);
        if first > self.cursor {
            messages.push(RunMessage::Earlier {
                bytes: first - self.cursor,
            });
            self.lines = LineCutter::default();
            (part, end) = log_part(execd, run, first).await?;
        }
        self.cursor = part.next;
        let mut lines = self.lines.add(&part.bytes);
        if self.has_ended {
            self.last.get_or_insert(end);
        }
        let ended = ended_by(&status);
        self.has_ended = ended.is_some();
        let is_at_end = self.last.is_some_and(|last| self.cursor >= last);
        let over = ended.filter(|_| is_at_end);
        if over.is_some() {
            lines.extend(self.lines.rest());
        }
        if !lines.is_empty() {
            let line = |text| RunLine(LogStream::Output, text);
            let lines = lines.into_iter().map(line).collect();
            messages.push(RunMessage::Output { lines });
        }
        messages.extend(over.map(RunMessage::Ended));
        Ok(messages)
    }
}

/// A part of a log, and where the log ends.
async fn log_part(execd: &ExecdClient, run: &str, cursor: u64) -> Result<(Logs, u64), ExecdError> {
    match timeout(ANSWER, execd.logs_part(run, cursor, PART)).await? {
        // The only status of execd for a log that it dropped (contract: execd §5.7).
        Err(osb_client::Error::Api(refusal)) if refusal.status == StatusCode::BAD_REQUEST => {
            Err(ExecdError::Refused(osb_client::ApiError {
                status: StatusCode::GONE,
                ..refusal
            }))
        }
        read => Ok(read?),
    }
}

/// How a command ended; `None` while it runs.
fn ended_by(status: &CommandStatus) -> Option<Ended> {
    if status.running {
        return None;
    }
    // Without the time of the end it is not known how long it ran.
    let end = status.finished_at.unwrap_or(status.started_at);
    let millis = end.as_millisecond() - status.started_at.as_millisecond();
    Some(Ended {
        exit_code: status.exit_code,
        millis: millis.max(0),
        error: status.error.clone(),
    })
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
struct LineCutter {
    /// The line that has not ended.
    open: Vec<u8>,
}

impl LineCutter {
    /// The lines that end in these bytes.
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            for piece in piece.chunks(LINE) {
                self.open.extend_from_slice(piece);
                if self.open.ends_with(b"\n") || self.open.len() >= LINE {
                    lines.extend(self.rest());
                }
            }
        }
        lines
    }

    /// The line that has not ended, if there is one.
    fn rest(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.open);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        (!line.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

/// Passes the events of a command on until it ends or the page leaves.
pub(super) async fn pass_on(
    page: &mut WebSocket,
    execd: &ExecdClient,
    events: Events,
    obeys: Interrupts,
) {
    let mut batches = events.within(EVENT_MAX).ready_chunks(BATCH);
    let mut ping = interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut run = None::<String>;
    let mut began = None::<i64>;
    let mut interrupts = FuturesUnordered::new();
    loop {
        tokio::select! {
            batch = batches.next() => {
                let mut batch: Vec<_> = batch.unwrap_or_default();
                let is_broken = batch.is_empty() || batch.iter().any(Result::is_err);
                batch.retain(Result::is_ok);
                for event in batch.iter().flatten() {
                    if event.kind == EventKind::Init {
                        run = Some(event.text.clone());
                        began = Some(event.timestamp);
                    }
                }
                let (messages, is_over) = messages(batch.into_iter().flatten(), began);
                for message in messages {
                    if !send(page, &message).await {
                        return;
                    }
                }
                if is_over {
                    return;
                }
                if is_broken {
                    return refuse(page, LOST).await;
                }
            }
            message = page.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    heard = Instant::now();
                    if let Some(run) = run.as_ref().filter(|_| obeys.takes(&text))
                        && interrupts.is_empty()
                    {
                        let run = run.clone();
                        interrupts.push(async move { execd.interrupt(&run).await });
                    }
                }
                Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                Some(Ok(_)) => heard = Instant::now(),
            },
            // How it ended is in the events.
            Some(_) = interrupts.next() => {}
            _ = ping.tick() => {
                let is_gone = heard.elapsed() > SILENCE;
                let ping = timeout(STUCK, page.send(Message::Ping(Bytes::new()))).await;
                if is_gone || !matches!(ping, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}

/// Events of a command that began at this time, in Unix milliseconds, as messages for the page; and
/// whether the last one ends the command.
fn messages(events: impl Iterator<Item = Event>, began: Option<i64>) -> (Vec<RunMessage>, bool) {
    let mut messages = Vec::new();
    let mut lines = Vec::new();
    for event in events {
        let stream = match event.kind {
            EventKind::Init => {
                messages.push(RunMessage::Started);
                continue;
            }
            EventKind::Stdout => LogStream::Output,
            EventKind::Stderr => LogStream::Error,
            EventKind::Error | EventKind::ExecutionComplete => {
                if !lines.is_empty() {
                    messages.push(RunMessage::Output { lines });
                }
                messages.push(RunMessage::Ended(ended(event, began)));
                return (messages, true);
            }
            EventKind::Ping
            | EventKind::Status
            | EventKind::ExecutionCount
            | EventKind::Result
            | EventKind::Unknown => continue,
        };
        lines.push(RunLine(stream, event.text));
    }
    if !lines.is_empty() {
        messages.push(RunMessage::Output { lines });
    }
    (messages, false)
}

fn ended(event: Event, began: Option<i64>) -> Ended {
    // Only the event of a command that ended well has the time.
    let millis = match (event.execution_time, began) {
        (0, Some(began)) => (event.timestamp - began).max(0),
        (millis, _) => millis,
    };
    let exit_code = event.exit_code();
    let error = event.error.map(|error| {
        let why = error.traceback.unwrap_or_default().join("; ");
        match (why.is_empty(), error.ename == COMMAND_ERROR) {
            (false, true) => why,
            (false, false) => format!("{}: {why}", error.ename),
            (true, _) => format!("{}: {}", error.ename, error.evalue),
        }
    });
    Ended {
        exit_code,
        millis,
        error,
    }
}

/// Sends a message; whether the page took it.
pub(super) async fn send(page: &mut WebSocket, message: &RunMessage) -> bool {
    let text = serde_json::to_string(message).expect("this serialises: it has no maps");
    let sent = timeout(STUCK, page.send(Message::Text(text.into()))).await;
    matches!(sent, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(text: &str) -> RunLine {
        RunLine(LogStream::Output, text.to_owned())
    }

    fn event(kind: EventKind, text: &str) -> Event {
        let event = json!({ "type": kind, "text": text, "timestamp": 1 });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn lines_of_one_batch_are_one_message() {
        let batch = [
            event(EventKind::Init, "id"),
            event(EventKind::Stdout, "a"),
            event(EventKind::Ping, ""),
            event(EventKind::Stdout, "b"),
        ];
        let (sent, is_over) = messages(batch.into_iter(), None);
        let lines = vec![line("a"), line("b")];
        assert_eq!(sent, [RunMessage::Started, RunMessage::Output { lines }]);
        assert!(!is_over);
    }

    #[test]
    fn an_end_has_code_and_reason() {
        let event = json!({
            "type": "error", "timestamp": 45,
            "error": { "ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"] }
        });
        let (sent, is_over) = messages(
            std::iter::once(serde_json::from_value(event).unwrap()),
            Some(40),
        );
        let ended = Ended {
            exit_code: Some(3),
            millis: 5,
            error: Some("exit status 3".to_owned()),
        };
        assert_eq!((sent, is_over), (vec![RunMessage::Ended(ended)], true));
    }

    #[test]
    fn a_log_is_cut_into_lines_of_bounded_length() {
        let mut cutter = LineCutter::default();
        assert_eq!(cutter.add(b"a\n\nb"), ["a", ""]);
        assert_eq!(cutter.add("\u{e4}".as_bytes()), [""; 0]);
        assert_eq!(cutter.rest().as_deref(), Some("b\u{e4}"));
        assert_eq!(cutter.rest(), None);
        let long = vec![b'x'; 2 * LINE + 1];
        let lines = cutter.add(&long);
        assert_eq!(
            lines.iter().map(String::len).collect::<Vec<_>>(),
            [LINE, LINE]
        );
        assert_eq!(cutter.add(b"\n"), ["x"]);
    }

    #[test]
    fn only_the_connection_that_started_a_command_ends_it() {
        let stop = r#"{"op":"interrupt"}"#;
        assert!(Interrupts::Obeyed.takes(stop));
        assert!(!Interrupts::Obeyed.takes("{}"));
        assert!(!Interrupts::Ignored.takes(stop));
    }

    #[test]
    fn the_status_says_how_a_command_ended() {
        let mut status: CommandStatus = serde_json::from_value(json!({
            "id": "1", "content": "x", "running": true, "started_at": "2026-01-01T00:00:00Z"
        }))
        .unwrap();
        assert_eq!(ended_by(&status), None);
        status.running = false;
        status.exit_code = Some(3);
        status.finished_at = Some("2026-01-01T00:00:01.5Z".parse().unwrap());
        let ended = ended_by(&status).unwrap();
        assert_eq!((ended.exit_code, ended.millis), (Some(3), 1_500));
        status.finished_at = None;
        let ended = ended_by(&status).unwrap();
        assert_eq!((ended.exit_code, ended.millis), (Some(3), 0));
    }
}

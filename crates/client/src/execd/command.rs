//! Commands (contract: execd §4, §5).

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream::BoxStream};
use osb_protocol::{
    execd::{
        command::{CommandStatus, RunCommand},
        event::{Event, EventKind, ExecutionError},
    },
    headers::COMMAND_TAIL_CURSOR,
};
use reqwest::{Method, Response, header};

use super::{ExecdClient, answer};
use crate::{Error, frames::FrameParser, http};

/// Most bytes of each stream that [`ExecdClient::run_to_end`] keeps.
pub const OUTPUT_MAX: usize = 64 * 1024 * 1024;

impl ExecdClient {
    /// Runs a command and streams its events. The command goes on when the stream is
    /// dropped.
    ///
    /// # Errors
    /// See [`Error`]; 400 when the working directory does not exist.
    pub async fn run(&self, command: &RunCommand) -> Result<Events, Error> {
        let call = self.service.endless(Method::POST, &["command"]);
        let call = call.header(header::ACCEPT, "text/event-stream");
        Events::of(http::send(call.json(command)).await?)
    }

    /// Runs a command in the foreground and collects what it writes.
    ///
    /// # Errors
    /// See [`Error`]. A command that fails is no error but has an exit code.
    pub async fn run_to_end(&self, command: &RunCommand) -> Result<Output, Error> {
        let mut events = self.run(command).await?;
        let mut output = Output::default();
        while let Some(event) = events.next().await {
            output.add(event?);
        }
        // Whether the last line had an end is not on the wire.
        output.stdout.pop();
        output.stderr.pop();
        Ok(output)
    }

    /// Starts a command in the background and returns its id, for status, logs and interrupt.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn start(&self, command: &RunCommand) -> Result<String, Error> {
        let command = RunCommand {
            background: true,
            ..command.clone()
        };
        let mut events = self.run(&command).await?;
        let mut output = Output::default();
        while let Some(event) = events.next().await {
            output.add(event?);
            if output.ended {
                break;
            }
        }
        output.id.ok_or(Error::Unexpected("a run without an id"))
    }

    /// How a command stands.
    ///
    /// # Errors
    /// See [`Error`]; 404 when it is unknown.
    pub async fn status(&self, id: &str) -> Result<CommandStatus, Error> {
        answer(
            self.service
                .request(Method::GET, &["command", "status", id]),
        )
        .await
    }

    /// What a background command wrote since `cursor`, which is 0 or came with earlier logs.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn logs(&self, id: &str, cursor: u64) -> Result<Logs, Error> {
        let response = self.log_response(id, cursor).await?;
        let next = end_of_log(&response);
        let bytes = response.bytes().await?;
        let next = next.unwrap_or_else(|| cursor.saturating_add(bytes.len() as u64));
        Ok(Logs { bytes, next })
    }

    /// The events of a command after this number, 0 for all of them; those that follow are streamed
    /// until it ends.
    ///
    /// # Errors
    /// See [`Error`]; 404 when the command is unknown, 410 when the events are no longer kept.
    pub async fn events(&self, id: &str, since: u64) -> Result<Events, Error> {
        let call = self
            .service
            .endless(Method::GET, &["command", id, "events"]);
        let call = call.header(header::ACCEPT, "text/event-stream");
        Events::of(http::send(call.query(&[("since", since)])).await?)
    }

    /// What a background command wrote since `cursor`, at most about `most` bytes of it; and the cursor
    /// of the end, where there may be more.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn logs_part(
        &self,
        id: &str,
        cursor: u64,
        most: usize,
    ) -> Result<(Logs, u64), Error> {
        let mut response = self.log_response(id, cursor).await?;
        let end = end_of_log(&response);
        let mut bytes = BytesMut::new();
        while bytes.len() < most
            && let Some(chunk) = response.chunk().await?
        {
            bytes.extend_from_slice(&chunk);
        }
        let next = cursor.saturating_add(bytes.len() as u64);
        let bytes = bytes.freeze();
        Ok((Logs { bytes, next }, end.unwrap_or(next)))
    }

    async fn log_response(&self, id: &str, cursor: u64) -> Result<Response, Error> {
        let call = self.service.request(Method::GET, &["command", id, "logs"]);
        http::send(call.query(&[("cursor", cursor)])).await
    }

    /// Ends a running command: a request to its process group, and after three seconds force.
    ///
    /// # Errors
    /// See [`Error`]; 500 when it does not run.
    pub async fn interrupt(&self, id: &str) -> Result<(), Error> {
        let call = self.service.request(Method::DELETE, &["command"]);
        http::done(call.query(&[("id", id)])).await
    }
}

/// The cursor at the end of a log, if the daemon says it.
fn end_of_log(response: &Response) -> Option<u64> {
    let end = response.headers().get(COMMAND_TAIL_CURSOR)?;
    end.to_str().ok()?.parse().ok()
}

/// A piece of a background command's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// Both streams, merged.
    pub bytes: Bytes,
    /// Cursor of what comes next.
    pub next: u64,
}

/// The events of a run, until the server ends them.
pub struct Events {
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    parser: FrameParser,
    ready: VecDeque<Event>,
    /// An event that ends the run was seen.
    ended: bool,
    done: bool,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    fn of(response: Response) -> Result<Self, Error> {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !is_stream {
            return Err(Error::Unexpected(
                "a run must answer with text/event-stream",
            ));
        }
        Ok(Self {
            body: response.bytes_stream().boxed(),
            parser: FrameParser::new(),
            ready: VecDeque::new(),
            ended: false,
            done: false,
        })
    }

    /// The same events without those of more than `most` bytes: one that says so stands for each. To be
    /// called before the first is read.
    #[must_use]
    pub fn within(mut self, most: usize) -> Self {
        self.parser = FrameParser::skipping(most);
        self
    }

    /// Takes what the parser has and says whether there was anything.
    fn fill(&mut self, last: Option<Event>) -> bool {
        let parser = &mut self.parser;
        self.ready
            .extend(std::iter::from_fn(|| parser.next_event()));
        self.ready.extend(last);
        !self.ready.is_empty()
    }
}

impl Stream for Events {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.ended |= ends(&event);
                return Poll::Ready(Some(Ok(event)));
            }
            if self.done {
                return Poll::Ready(None);
            }
            let error = match std::task::ready!(self.body.poll_next_unpin(cx)) {
                Some(Ok(bytes)) => match self.parser.push(&bytes) {
                    Ok(()) => {
                        self.fill(None);
                        continue;
                    }
                    Err(too_long) => too_long.into(),
                },
                Some(Err(error)) => error.into(),
                None => {
                    self.done = true;
                    let last = self.parser.finish();
                    self.fill(last);
                    continue;
                }
            };
            self.done = true;
            // The run has ended: a failure of the connection no longer matters.
            return Poll::Ready((!self.ended).then_some(Err(error)));
        }
    }
}

fn ends(event: &Event) -> bool {
    matches!(event.kind, EventKind::Error | EventKind::ExecutionComplete)
}

/// What a run left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Id of the run.
    pub id: Option<String>,
    /// Lines of standard output, with newlines between them.
    pub stdout: String,
    /// Lines of standard error, with newlines between them.
    pub stderr: String,
    /// Exit code: -1 after a signal; `None` when the server did not tell, for example because the
    /// connection ended before the command.
    pub exit_code: Option<i32>,
    /// Why it failed.
    pub error: Option<ExecutionError>,
    /// Whether the server said that the run is over.
    pub ended: bool,
    /// Whether output beyond [`OUTPUT_MAX`] was dropped.
    pub truncated: bool,
}

impl Output {
    fn add(&mut self, event: Event) {
        self.ended |= ends(&event);
        match event.kind {
            EventKind::Init => self.id = Some(event.text),
            EventKind::Stdout => self.truncated |= !add_line(&mut self.stdout, &event.text),
            EventKind::Stderr => self.truncated |= !add_line(&mut self.stderr, &event.text),
            EventKind::Error => {
                self.exit_code = event.exit_code();
                self.error = event.error;
            }
            // A failure is not taken back by the completion that code runs send after it.
            EventKind::ExecutionComplete if self.error.is_none() => {
                self.exit_code = event.exit_code();
            }
            EventKind::ExecutionComplete
            | EventKind::Ping
            | EventKind::Status
            | EventKind::ExecutionCount
            | EventKind::Result
            | EventKind::Unknown => {}
        }
    }
}

/// Appends a line. An event is a line without its end, or a lone newline for a blank one
/// (contract: execd §5.5); other servers leave the ends on. False when there is no room.
fn add_line(text: &mut String, line: &str) -> bool {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let room = text.len() + line.len() < OUTPUT_MAX;
    if room {
        text.push_str(line);
        text.push('\n');
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_as_they_were_written() {
        let mut text = String::new();
        for line in ["\n", "a", "\n", "b", "\n", "\n", "c", "with end\n"] {
            assert!(add_line(&mut text, line));
        }
        assert_eq!(text, "\na\n\nb\n\n\nc\nwith end\n");
    }
}

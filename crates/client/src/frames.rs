//! Parser of event streams (contract: execd §4; clients §3.11).
//!
//! The wire format is one JSON object per frame, followed by two newlines. The parser reads lines and
//! accepts variants that other servers, proxies or later releases may send: a `data:` prefix, CR LF,
//! comments and other fields of server-sent events, lines that are not events. An unknown line is
//! skipped and logged; it never ends the stream.

use std::collections::BTreeMap;

use bytes::{Buf, BytesMut};
use osb_protocol::execd::event::{Event, EventKind};
use serde_json::{Value, json};

/// Longest accepted line: other daemons may send a whole line of output, which grows when it is escaped.
pub const FRAME_MAX: usize = 128 * 1024 * 1024;

/// A line does not end within as many bytes as the parser allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub struct FrameTooLong(usize);

/// Splits a stream into events. The boundaries of chunks do not matter.
#[derive(Debug)]
pub struct FrameParser {
    max: usize,
    buffer: BytesMut,
    /// Bytes at the front of the buffer that are known to hold no newline.
    searched: usize,
    /// Whether a line that is too long is left out.
    skips: bool,
    /// Bytes of the line that is being left out.
    skipped: usize,
    /// Length of one that was left out and is not reported yet.
    left_out: Option<usize>,
}

impl Default for FrameParser {
    fn default() -> Self {
        Self::with_limit(FRAME_MAX)
    }
}

impl FrameParser {
    /// Creates a parser for lines of up to [`FRAME_MAX`] bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a parser for lines of up to `max` bytes.
    #[must_use]
    pub fn with_limit(max: usize) -> Self {
        Self {
            max,
            buffer: BytesMut::new(),
            searched: 0,
            skips: false,
            skipped: 0,
            left_out: None,
        }
    }

    /// Creates a parser that leaves out longer lines than `max` bytes: an event of the standard output says
    /// so in place of each.
    #[must_use]
    pub fn skipping(max: usize) -> Self {
        Self {
            skips: true,
            ..Self::with_limit(max)
        }
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// When a line does not end within the limit, and is not left out.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), FrameTooLong> {
        if self.skipped > 0 {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.skipped += bytes.len();
                return Ok(());
            };
            self.left_out = Some(self.skipped + end);
            self.skipped = 0;
            bytes = &bytes[end + 1..];
        }
        if self.skips {
            self.buffer.extend_from_slice(bytes);
            if !self.has_line() && self.buffer.len() > self.max {
                self.skipped = self.buffer.len();
                self.buffer.clear();
                self.searched = 0;
            }
            return Ok(());
        }
        if self.buffer.len() + bytes.len() > self.max && !self.has_line() {
            return Err(FrameTooLong(self.max));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next complete event; `None` until more bytes arrive.
    pub fn next_event(&mut self) -> Option<Event> {
        // It came before what is in the buffer.
        if let Some(length) = self.left_out.take() {
            return Some(left_out(length));
        }
        while self.has_line() {
            let event = event_of(&self.buffer[..self.searched]);
            self.buffer.advance(self.searched + 1);
            self.searched = 0;
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Returns the last event of a stream without a final newline. Call it when
    /// [`FrameParser::next_event`] has no more.
    pub fn finish(&mut self) -> Option<Event> {
        self.searched = 0;
        if self.skipped > 0 {
            return Some(left_out(std::mem::take(&mut self.skipped)));
        }
        event_of(&self.buffer.split())
    }

    /// Moves `searched` to the first newline, if there is one.
    fn has_line(&mut self) -> bool {
        let found = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.buffer.len(), |at| self.searched + at);
        found.is_some()
    }
}

/// Stands for a line that was left out.
fn left_out(length: usize) -> Event {
    Event {
        kind: EventKind::Stdout,
        text: format!("[an event of {length} bytes is not shown]\n"),
        execution_count: 0,
        execution_time: 0,
        timestamp: 0,
        results: BTreeMap::new(),
        error: None,
    }
}

fn event_of(line: &[u8]) -> Option<Event> {
    let line = line.trim_ascii();
    let line = line
        .strip_prefix(b"data:")
        .unwrap_or(line)
        .trim_ascii_start();
    let ignored: [&[u8]; 4] = [b":", b"event:", b"id:", b"retry:"];
    if line.is_empty() || ignored.iter().any(|field| line.starts_with(field)) {
        return None;
    }
    match serde_json::from_slice(line) {
        Ok(event) => Some(event),
        Err(error) => {
            let repaired = repaired(line);
            if repaired.is_none() {
                tracing::debug!(%error, bytes = line.len(), "a line of the stream is no event");
            }
            repaired
        }
    }
}

/// An event without a timestamp, which some servers send, or an error object that a failing server
/// appended to its stream.
fn repaired(line: &[u8]) -> Option<Event> {
    let mut object: Value = serde_json::from_slice(line).ok()?;
    let members = object.as_object_mut()?;
    if members.get("type").is_some_and(Value::is_string) {
        if !members.get("timestamp").is_some_and(Value::is_i64) {
            members.insert("timestamp".to_owned(), json!(0));
        }
        return serde_json::from_value(object).ok();
    }
    let (code, message) = (
        members.get("code")?.as_str()?,
        members.get("message")?.as_str()?,
    );
    let event =
        json!({"type": "error", "timestamp": 0, "error": {"ename": code, "evalue": message}});
    serde_json::from_value(event).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut parser = FrameParser::new();
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk).unwrap();
            events.extend(std::iter::from_fn(|| parser.next_event()));
        }
        events.extend(parser.finish());
        events
    }

    fn texts(stream: &str) -> Vec<String> {
        let events = parse([stream.as_bytes()]);
        events.into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn every_framing_is_read() {
        let event = |text: &str| format!(r#"{{"type":"stdout","text":"{text}","timestamp":1}}"#);
        let (a, b) = (event("a"), event("b"));
        for stream in [
            format!("{a}\n\n{b}\n\n"),
            format!("\n\n{a}\n{b}"),
            format!("data: {a}\n\ndata:{b}\n\n"),
            format!(": hi\n\nevent: x\nid: 1\nretry: 5\n{a}\r\n\r\n{b}\r\n"),
            format!("{a}\n\n{{broken\n\n[1]\n\ntrue\n\n{{\"type\":3}}\n\n{b}"),
        ] {
            assert_eq!(texts(&stream), ["a", "b"], "{stream}");
        }
    }

    #[test]
    fn events_without_a_timestamp_count() {
        let events = parse([&br#"{"type":"stdout","text":"a"}"#[..]]);
        assert_eq!(
            (events[0].kind, events[0].timestamp),
            (EventKind::Stdout, 0)
        );
    }

    #[test]
    fn an_appended_error_object_is_an_error_event() {
        let events = parse([&br#"{"code":"RUNTIME_ERROR","message":"busy"}"#[..]]);
        let error = events[0].error.as_ref().unwrap();
        assert_eq!(
            (error.ename.as_str(), error.evalue.as_str()),
            ("RUNTIME_ERROR", "busy")
        );
    }

    #[test]
    fn endless_lines_are_refused_but_many_lines_are_not() {
        let mut parser = FrameParser::with_limit(8);
        parser.push(b"line\nxxx").unwrap();
        parser.push(b"x").unwrap();
        assert_eq!(parser.next_event(), None);
        parser.push(b"xxxx").unwrap();
        assert_eq!(parser.push(b"x"), Err(FrameTooLong(8)));
    }

    #[test]
    fn a_long_line_is_left_out_where_it_was() {
        let event =
            |text: &str| format!("{{\"type\":\"stdout\",\"text\":\"{text}\",\"timestamp\":1}}\n\n");
        let (short, long) = (event("a"), event(&"x".repeat(200)));
        let stream = format!("{short}{long}{short}{long}");
        for size in [1, 3, 64, 100] {
            let mut parser = FrameParser::skipping(100);
            let mut texts = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                parser.push(chunk).unwrap();
                texts.extend(std::iter::from_fn(|| parser.next_event()).map(|event| event.text));
            }
            let length = long.trim_end().len();
            let notice = format!("[an event of {length} bytes is not shown]\n");
            assert_eq!(texts, ["a", &notice, "a", &notice], "{size}");
        }
        let mut parser = FrameParser::skipping(4);
        parser.push(b"without an end").unwrap();
        assert!(parser.next_event().is_none());
        assert!(parser.finish().unwrap().text.contains("14 bytes"));
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing(
            lines in prop::collection::vec(
                prop_oneof![
                    "[a-zü ]{0,12}".prop_map(|text| json!({"type": "stdout", "text": text, "timestamp": 5}).to_string()),
                    "data: \\{\"type\":\"stderr\",\"text\":\"[a-z]{0,9}\"\\}",
                    ".{0,20}",
                    Just(String::new()),
                ],
                0..12,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let stream = lines.join("\n").into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]);
            prop_assert_eq!(parse(chunks), parse([&stream[..]]));
        }

        #[test]
        fn garbage_between_events_hides_none(garbage in prop::collection::vec("[^\n\r{}]{0,30}", 0..6)) {
            let event = r#"{"type":"stdout","text":"a","timestamp":1}"#;
            let stream: String = garbage.iter().map(|line| format!("{event}\n\n{line}\n\n")).collect();
            prop_assert_eq!(texts(&stream).len(), garbage.len());
        }

        #[test]
        fn no_bytes_break_the_parser(stream: Vec<u8>) {
            parse([&stream[..]]);
        }
    }
}

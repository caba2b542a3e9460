//! Parser of event streams (contract: execd §4; clients §3.11).
//!
//! The wire format is one JSON object per frame, followed by two newlines. The parser reads lines and
//! accepts variants that other servers, proxies or later releases may send: a `data:` prefix, CR LF,
//! comments and other fields of server-sent events, lines that are not events. An unknown line is
//! skipped and logged; it never ends the stream.

use bytes::{Buf, BytesMut};
use osb_protocol::execd::event::Event;
use serde_json::{Value, json};

/// Longest accepted line: output lines may have 64 MiB, and grow when they are escaped.
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
        }
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// When a line does not end within the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FrameTooLong> {
        if self.buffer.len() + bytes.len() > self.max && !self.has_line() {
            return Err(FrameTooLong(self.max));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next complete event; `None` until more bytes arrive.
    pub fn next_event(&mut self) -> Option<Event> {
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
    use osb_protocol::execd::event::EventKind;
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

//! Lines of a log, as they are written.

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use osb_protocol::WireTime;

use crate::RuntimeError;

/// Longest line, in bytes. What is beyond it is left out.
const LINE_MAX: usize = 8 << 10;

/// Which of its outputs a program wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// The standard output, or a terminal.
    Output,
    /// The standard error.
    Error,
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When its beginning was written.
    pub at: Option<WireTime>,
    /// Where it was written to.
    pub stream: LogStream,
    /// The line without its end. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Lines in the order in which they were written.
pub type LogLines = BoxStream<'static, Result<LogLine, RuntimeError>>;

/// Wanted lines of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFollow {
    /// Most lines from before the call.
    pub tail: usize,
    /// No line from before the second of this time.
    pub since: Option<WireTime>,
    /// Whether lines that are written later follow, until the container ends.
    pub follow: bool,
}

/// Joins the pieces of one stream to lines. An engine gives a line as one piece, or a long one as
/// several, of which only the last ends with a newline; each piece begins with its time.
#[derive(Debug)]
pub(crate) struct LineJoiner {
    stream: LogStream,
    at: Option<WireTime>,
    text: BytesMut,
    /// Whether a piece of the present line has been seen.
    is_open: bool,
}

impl LineJoiner {
    pub(crate) fn new(stream: LogStream) -> Self {
        Self {
            stream,
            at: None,
            text: BytesMut::new(),
            is_open: false,
        }
    }

    /// Adds a piece; returns the line that it completes.
    pub(crate) fn push(&mut self, piece: &Bytes) -> Option<LogLine> {
        let (at, text) = timed(piece);
        if !self.is_open {
            self.at = at;
            self.is_open = true;
        }
        let (text, is_end) = match text.strip_suffix(b"\n") {
            Some(line) => (line.strip_suffix(b"\r").unwrap_or(line), true),
            None => (text, false),
        };
        let room = LINE_MAX - self.text.len();
        self.text.extend_from_slice(&text[..text.len().min(room)]);
        if is_end { self.finish() } else { None }
    }

    /// The line whose end was not written.
    pub(crate) fn finish(&mut self) -> Option<LogLine> {
        if !std::mem::take(&mut self.is_open) {
            return None;
        }
        let text = String::from_utf8_lossy(&self.text).into_owned();
        self.text.clear();
        Some(LogLine {
            at: self.at.take(),
            stream: self.stream,
            text,
        })
    }
}

/// Splits the time off a piece.
fn timed(piece: &[u8]) -> (Option<WireTime>, &[u8]) {
    let space = piece.iter().take(64).position(|byte| *byte == b' ');
    let split = space.and_then(|space| {
        let time = std::str::from_utf8(&piece[..space]).ok()?;
        Some((WireTime::parse(time).ok()?, &piece[space + 1..]))
    });
    match split {
        Some((at, rest)) => (Some(at), rest),
        None => (None, piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2031-05-01T10:00:01.5Z";

    fn push(joiner: &mut LineJoiner, text: &str) -> Option<String> {
        let piece = Bytes::from(format!("{TIME} {text}"));
        let line = joiner.push(&piece)?;
        assert_eq!(line.at, Some(WireTime::parse(TIME).unwrap()));
        Some(line.text)
    }

    #[test]
    fn pieces_of_a_line_are_joined_without_their_times() {
        let mut joiner = LineJoiner::new(LogStream::Output);
        assert_eq!(push(&mut joiner, "one\r\n").as_deref(), Some("one"));
        assert_eq!(push(&mut joiner, "be"), None);
        assert_eq!(push(&mut joiner, "gin\n").as_deref(), Some("begin"));
        assert_eq!(push(&mut joiner, "\n").as_deref(), Some(""));
        assert_eq!(joiner.finish(), None);
        assert_eq!(push(&mut joiner, "no end"), None);
        assert_eq!(joiner.finish().unwrap().text, "no end");
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let mut joiner = LineJoiner::new(LogStream::Error);
        for _ in 0..100 {
            assert_eq!(push(&mut joiner, &"x".repeat(1000)), None);
        }
        assert_eq!(joiner.finish().unwrap().text.len(), LINE_MAX);
    }

    #[test]
    fn a_piece_without_a_time_is_text() {
        let mut joiner = LineJoiner::new(LogStream::Error);
        let line = joiner
            .push(&Bytes::from_static(b"no time here\xff\n"))
            .unwrap();
        assert_eq!(
            (line.at, line.text.as_str()),
            (None, "no time here\u{fffd}")
        );
    }
}

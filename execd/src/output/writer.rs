//! Conversion of output to events in a journal (contract: execd §4, §5.5).

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use osb_protocol::execd::event::COMMAND_ERROR;

use super::{
    End, Outcome, Outputs, Source,
    frame::{self, LongEvent, Stamp},
    journal::{EventNumbers, EventReader, Journal, JournalLimits},
    lines::{HeldLine, Lines},
};
use crate::limits;

/// Writer of a journal. A writer dropped before the end leaves a stream without a final event.
#[derive(Debug)]
pub(crate) struct Writer {
    journal: Arc<Journal>,
    stdout: Lines,
    stderr: Lines,
    /// Source of the last output.
    last: Source,
    /// Number of the last event.
    seq: u64,
    /// Bytes of output dropped because the journal was full.
    dropped: u64,
    /// Bytes of events per 16 bytes of output in the last large write: an estimate for the next.
    growth: usize,
}

/// Events that clients may read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    /// None: events are dropped once read.
    Never,
    /// The most recent events.
    Recent,
}

impl Writer {
    /// Starts the events of a run. The first contains the id, by which clients interrupt the run.
    pub(crate) fn new(id: &str, replay: Replay, outputs: &Outputs) -> (Self, EventReader) {
        let keep = JournalLimits {
            window: limits::WINDOW,
            replay: match replay {
                Replay::Never => 0,
                Replay::Recent => limits::REPLAY,
            },
            unread: limits::SPILL,
        };
        let (journal, reader) = Journal::new(keep, &outputs.journals);
        let writer = Self {
            journal,
            stdout: Lines::new(Arc::clone(&outputs.partial_lines)),
            stderr: Lines::new(Arc::clone(&outputs.partial_lines)),
            last: Source::Stderr,
            seq: 2,
            dropped: 0,
            growth: 16,
        };
        let now = Timestamp::now().as_millisecond();
        let mut opening = Vec::with_capacity(192);
        frame::text(&mut opening, "init", id.as_bytes(), Stamp::new(now, 1));
        frame::text(&mut opening, "ping", b"pong", Stamp::new(now, 2));
        writer.journal.extend(Bytes::from(opening), 2);
        (writer, reader)
    }

    fn lines(&mut self, source: Source) -> &mut Lines {
        match source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        }
    }

    /// Journal that this writer fills.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Writes the events that this output completes. Waits at most for the disk, never for a
    /// client.
    pub(crate) async fn write(&mut self, source: Source, output: Bytes) {
        self.last = source;
        if !self.journal.has_room() {
            self.dropped += output.len() as u64;
            self.lines(source).cut_off();
            return;
        }
        let at = Timestamp::now().as_millisecond();
        let len = output.len();
        let room = len / 16 * self.growth + 256;
        let mut out = Vec::with_capacity(room.min(2 * limits::STREAM_WRITE));
        let mut first = Some(self.seq + 1);
        let mut written = 0;
        // Converts in slices, because blank lines become seventy times as long.
        let mut rest = output;
        let mut output = Bytes::new();
        while !output.is_empty() || !rest.is_empty() {
            if output.is_empty() {
                output = rest.split_to(rest.len().min(limits::WRITE_SLICE));
                if out.len() >= limits::STREAM_WRITE {
                    written += out.len();
                    self.append(&mut out, &mut first).await;
                    first = Some(self.seq + 1);
                }
            }
            let mut stamp = Stamp::new(at, self.seq);
            let held = self.lines(source).feed(&mut output, |text| {
                stamp.next();
                frame::text(&mut out, source.kind(), text, stamp);
            });
            self.seq = stamp.seq();
            if let Some(text) = held {
                self.long(&mut out, &mut first, source, text, at).await;
            }
        }
        written += out.len();
        if len >= limits::READ_CHUNK / 16 {
            self.growth = (written * 16).div_ceil(len) + 1;
        }
        self.append(&mut out, &mut first).await;
    }

    /// Writes an event that may be long in pieces, so that its text is in memory only once.
    async fn long(
        &mut self,
        out: &mut Vec<u8>,
        first: &mut Option<u64>,
        source: Source,
        text: HeldLine,
        at: i64,
    ) {
        self.seq += 1;
        let stamp = Stamp::new(at, self.seq);
        let mut long = LongEvent::begin(out, source.kind(), text, stamp);
        while !long.write(out) {
            if out.len() >= limits::STREAM_WRITE {
                self.append(out, first).await;
            }
            if self.journal.is_overfull() {
                self.dropped += long.cut(out) as u64;
                break;
            }
        }
        // The next bytes begin with a new event.
        if out.len() >= limits::STREAM_WRITE {
            self.append(out, first).await;
            *first = Some(self.seq + 1);
        }
    }

    async fn append(&self, out: &mut Vec<u8>, first: &mut Option<u64>) {
        if out.is_empty() {
            return;
        }
        let numbers = EventNumbers {
            first: first.take(),
            last: self.seq,
        };
        let mut out = std::mem::take(out);
        if out.capacity() > 2 * out.len() {
            out.shrink_to_fit();
        }
        let bytes = Bytes::from(out);
        self.journal.append(bytes, numbers).await;
    }

    /// Ends a stream without output.
    pub(crate) fn end(mut self, outcome: &Outcome) {
        let mut out = Vec::with_capacity(192);
        self.seq += 1;
        final_event(&mut out, outcome, Stamp::new(outcome.at, self.seq));
        self.journal.extend(Bytes::from(out), self.seq);
    }

    /// Writes the incomplete line of each stream, in the order in which they were last written to,
    /// then the final events.
    pub(crate) async fn finish(mut self, outcome: &Outcome) {
        let mut out = Vec::with_capacity(192);
        let mut first = Some(self.seq + 1);
        let other = match self.last {
            Source::Stdout => Source::Stderr,
            Source::Stderr => Source::Stdout,
        };
        for source in [other, self.last] {
            if let Some(text) = self.lines(source).flush() {
                self.long(&mut out, &mut first, source, text, outcome.at)
                    .await;
            }
        }
        if self.dropped > 0 {
            self.seq += 1;
            let text = format!(
                "[execd: {} bytes of output did not fit on the disk and are missing]",
                self.dropped
            );
            let stamp = Stamp::new(outcome.at, self.seq);
            frame::text(&mut out, Source::Stderr.kind(), text.as_bytes(), stamp);
        }
        self.seq += 1;
        final_event(&mut out, outcome, Stamp::new(outcome.at, self.seq));
        self.append(&mut out, &mut first).await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.journal.finish();
    }
}

/// Writes the final event: exactly one of `error` and `execution_complete` ends a stream.
fn final_event(out: &mut Vec<u8>, outcome: &Outcome, stamp: Stamp) {
    let reasons = outcome.end.reasons();
    if reasons.is_empty() {
        frame::complete(out, outcome.took.as_millis(), stamp);
        return;
    }
    let (name, value) = match &outcome.end {
        End::Exited { exit, .. } => (COMMAND_ERROR, exit.wire_code().to_string()),
        End::NotStarted(reason) => (COMMAND_ERROR, reason.clone()),
        End::Failed { name, value, .. } => (*name, value.clone()),
    };
    frame::error(out, name, &value, &reasons, stamp);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::memory::Memory, process::Exit};

    /// Creates a writer to a journal with a small limit.
    fn small() -> (Writer, EventReader) {
        let outputs = Outputs::new(None);
        let keep = JournalLimits {
            window: 64,
            replay: 0,
            unread: 256,
        };
        let (journal, reader) = Journal::new(keep, &Arc::new(Memory::new(None)));
        let stdout = Lines::new(Arc::clone(&outputs.partial_lines));
        let stderr = Lines::new(Arc::clone(&outputs.partial_lines));
        let writer = Writer {
            journal,
            stdout,
            stderr,
            last: Source::Stderr,
            seq: 0,
            dropped: 0,
            growth: 16,
        };
        (writer, reader)
    }

    #[tokio::test]
    async fn unfinished_lines_come_in_the_order_in_which_they_were_written() {
        use Source::{Stderr, Stdout};
        for order in [
            vec![Stdout, Stderr],
            vec![Stderr, Stdout],
            vec![Stderr, Stdout, Stderr],
        ] {
            let (mut writer, mut reader) = small();
            for source in &order {
                let text = Bytes::from_static(b"unfinished");
                writer.write(*source, text).await;
            }
            let outcome = Outcome::ended(Exit::Code(0), None);
            writer.finish(&outcome).await;
            let mut all = Vec::new();
            while let Some(bytes) = reader.next().await {
                all.extend_from_slice(&bytes);
            }
            let all = String::from_utf8(all).unwrap();
            let place = |source: Source| {
                let kind = format!("\"type\":\"{}\"", source.kind());
                let places: Vec<_> = all.match_indices(&kind).collect();
                assert_eq!(places.len(), 1, "{all}");
                places[0].0
            };
            let [.., first, second] = order[..] else {
                unreachable!("each order has two sources");
            };
            assert!(place(first) < place(second), "{order:?}: {all}");
        }
    }

    #[tokio::test]
    async fn dropped_output_ends_the_line_before_it() {
        let (mut writer, mut reader) = small();
        let write = async |writer: &mut Writer, text: &'static str| {
            let text = Bytes::from_static(text.as_bytes());
            writer.write(Source::Stdout, text).await;
        };
        write(&mut writer, "begun").await;
        while writer.journal.has_room() {
            writer
                .write(Source::Stderr, Bytes::from_static(b"filling\n"))
                .await;
        }
        write(&mut writer, " and lost\n").await;
        assert_eq!(writer.dropped, 10);
        let mut all = Vec::new();
        while !writer.journal.has_room() {
            all.extend_from_slice(&reader.next().await.expect("there is more"));
        }
        write(&mut writer, "later\n").await;
        let outcome = Outcome::ended(Exit::Code(0), None);
        writer.finish(&outcome).await;
        while let Some(bytes) = reader.next().await {
            all.extend_from_slice(&bytes);
        }
        let all = String::from_utf8(all).unwrap();
        for text in ["\"begun\"", "\"later\"", "10 bytes of output"] {
            assert!(all.contains(text), "no {text} in {all}");
        }
    }
}

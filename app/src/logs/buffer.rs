//! The lines that a page holds: bounded, filtered, and laid out in rows of equal height.

use std::collections::VecDeque;

use super::kind::Kind;
use crate::live::{LogBatch, LogLine, LogState};
use crate::ui::ansi;

/// Most lines that a page holds.
pub(super) const LINES: usize = 100_000;
/// Most bytes of their text.
const BYTES: usize = 32 << 20;

/// A line as the page holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Unix microseconds; 0 if unknown.
    pub(super) at: i64,
    pub(super) kind: Kind,
    pub(super) text: String,
    /// Lines before this one that the server left out.
    pub(super) skipped: u64,
    /// Characters that are shown of it.
    width: u32,
    /// Whether the filter lets it through.
    shown: bool,
}

/// Decides which lines are shown, by their kind and their text without control sequences.
pub(super) type Filter<'a> = &'a dyn Fn(Kind, &str) -> bool;

/// The lines of a page.
#[derive(Default)]
pub(super) struct Buffer {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Lines that were dropped from the beginning.
    pub(super) dropped: u64,
    /// Lines that the server left out.
    pub(super) skipped: u64,
    pub(super) state: LogState,
    run: u64,
    /// Number of the next line of the run.
    next: u64,
    /// Time of the last line of the runs before: the run begins with lines that may be known from them.
    known_until: i64,
    /// Lines that the filter lets through.
    matching: usize,
}

/// The part of the lines that is on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// The lines, each with its number since the page was opened.
    pub(super) lines: Vec<(u64, Line)>,
    /// Rows before the first of them.
    pub(super) above: usize,
    /// Rows of all lines.
    pub(super) rows: usize,
}

impl Buffer {
    /// Takes the lines that the server rendered.
    pub(super) fn of(lines: Vec<LogLine>) -> Self {
        let mut buffer = Self::default();
        for line in lines {
            buffer.push(line, 0, &|_, _| true);
        }
        buffer
    }

    /// Adds what is new of a batch. Lines of another run than the one before are new if they were written
    /// later than the last.
    pub(super) fn add(&mut self, batch: LogBatch, filter: Filter<'_>) {
        let is_same = batch.run == self.run;
        if !is_same {
            self.known_until = self.lines.back().map_or(0, |line| line.at);
        }
        let end = batch.first + batch.lines.len() as u64;
        let mut skipped = match is_same {
            true => batch.first.saturating_sub(self.next),
            false => 0,
        };
        for (number, line) in (batch.first..).zip(batch.lines) {
            let is_older = line.0 != 0 && line.0 <= self.known_until;
            let is_known = is_same && number < self.next;
            if !is_known && !is_older {
                self.push(line, std::mem::take(&mut skipped), filter);
            }
        }
        self.run = batch.run;
        self.next = if is_same { self.next.max(end) } else { end };
        self.state = batch.state;
    }

    fn push(&mut self, LogLine(at, stream, text): LogLine, skipped: u64, filter: Filter<'_>) {
        let plain = ansi::plain(&text);
        let kind = Kind::of(stream, &plain);
        let shown = filter(kind, &plain);
        self.bytes += text.len();
        self.skipped += skipped;
        self.matching += usize::from(shown);
        self.lines.push_back(Line {
            at,
            kind,
            text,
            skipped,
            width: u32::try_from(plain.chars().count()).unwrap_or(u32::MAX),
            shown,
        });
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(line) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= line.text.len();
            self.matching -= usize::from(line.shown);
            self.dropped += 1;
        }
    }

    /// Applies a filter to all lines. False if it gave up because `is_over` said so; then every line is
    /// shown.
    pub(super) fn filter(&mut self, filter: Filter<'_>, is_over: &dyn Fn() -> bool) -> bool {
        for index in 0..self.lines.len() {
            if index % 256 == 0 && is_over() {
                self.filter(&|_, _| true, &|| false);
                return false;
            }
            let line = &mut self.lines[index];
            line.shown = filter(line.kind, &ansi::plain(&line.text));
        }
        self.matching = self.lines.iter().filter(|line| line.shown).count();
        true
    }

    /// Lines since the page was opened.
    pub(super) fn total(&self) -> u64 {
        self.dropped + self.lines.len() as u64
    }

    /// Lines that are held, and those of them that the filter lets through.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.lines.len(), self.matching)
    }

    /// The lines around `count` rows from row `from` on. Each line takes as many rows as `columns` needs
    /// for it, beside the `prefix` characters before its text; one without `columns`.
    pub(super) fn window(
        &self,
        from: usize,
        count: usize,
        columns: Option<usize>,
        prefix: usize,
    ) -> Window {
        let mut window = Window::default();
        for (number, line) in (self.dropped..).zip(&self.lines) {
            if !line.shown {
                continue;
            }
            let rows = match columns {
                Some(columns) => (prefix + line.width as usize)
                    .div_ceil(columns.max(1))
                    .max(1),
                None => 1,
            } + usize::from(line.skipped > 0);
            let ends_before = window.rows + rows <= from;
            let begins_after = window.rows >= from + count;
            if !ends_before && !begins_after {
                if window.lines.is_empty() {
                    window.above = window.rows;
                }
                window.lines.push((number, line.clone()));
            }
            window.rows += rows;
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LogStream;

    fn line(at: i64, text: &str) -> LogLine {
        LogLine(at, LogStream::Output, text.to_owned())
    }

    fn batch(run: u64, first: u64, texts: &[&str]) -> LogBatch {
        let numbers = i64::try_from(first).unwrap() + 1..;
        LogBatch {
            run,
            first,
            lines: numbers
                .zip(texts)
                .map(|(at, text)| line(at, text))
                .collect(),
            state: LogState::Following,
        }
    }

    fn texts(buffer: &Buffer) -> Vec<String> {
        let window = buffer.window(0, usize::MAX / 2, None, 0);
        window
            .lines
            .into_iter()
            .map(|(_, line)| line.text)
            .collect()
    }

    const ALL: Filter<'static> = &|_, _| true;

    #[test]
    fn each_line_is_shown_once_and_holes_are_counted() {
        let mut buffer = Buffer::of(vec![line(1, "a"), line(2, "b")]);
        // A follower that has just been started reads the tail after its first message.
        buffer.add(batch(9, 0, &[]), ALL);
        buffer.add(batch(9, 0, &["a", "b", "c"]), ALL);
        assert_eq!(
            texts(&buffer),
            ["a", "b", "c"],
            "the tail was rendered before"
        );
        buffer.add(batch(9, 3, &["d"]), ALL);
        buffer.add(batch(9, 2, &["c", "d", "e"]), ALL);
        assert_eq!(
            texts(&buffer),
            ["a", "b", "c", "d", "e"],
            "a snapshot overlaps"
        );
        buffer.add(batch(9, 8, &["i"]), ALL);
        assert_eq!(buffer.skipped, 3);
        let last = buffer.window(0, 99, None, 0).lines.pop().unwrap().1;
        assert_eq!((last.text.as_str(), last.skipped), ("i", 3));
        buffer.add(batch(10, 7, &["h", "i", "j"]), ALL);
        assert_eq!(texts(&buffer).join(""), "abcdeij", "another follower");
    }

    #[test]
    fn memory_is_bounded_and_what_was_dropped_is_counted() {
        let mut buffer = Buffer::default();
        let many = vec!["x"; LINES];
        buffer.add(batch(1, 0, &many), ALL);
        buffer.add(batch(1, LINES as u64, &["y"; 7]), ALL);
        assert_eq!((buffer.counts(), buffer.dropped), ((LINES, LINES), 7));
        assert_eq!(buffer.total(), LINES as u64 + 7);
        let long = "z".repeat(BYTES / 4);
        buffer.add(batch(1, LINES as u64 + 7, &[long.as_str(); 6]), ALL);
        assert!(buffer.bytes <= BYTES && buffer.counts().0 <= 4);
    }

    #[test]
    fn a_filter_hides_lines_and_a_slow_one_gives_up() {
        let mut buffer = Buffer::default();
        buffer.add(batch(1, 0, &["good", "\x1b[31mb\x1b[0mad", "good"]), ALL);
        let bad: Filter<'_> = &|_, text| text == "bad";
        assert!(buffer.filter(bad, &|| false));
        assert_eq!(buffer.counts(), (3, 1));
        buffer.add(batch(1, 3, &["bad", "good"]), bad);
        assert_eq!(texts(&buffer).len(), 2);
        assert!(!buffer.filter(bad, &|| true));
        assert_eq!(buffer.counts(), (5, 5));
    }

    #[test]
    fn a_window_has_the_rows_on_the_screen() {
        let mut buffer = Buffer::default();
        buffer.add(batch(1, 0, &["1234567890", "12", "123", "4", "5"]), ALL);
        let window = buffer.window(1, 2, None, 0);
        let numbers: Vec<u64> = window.lines.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, window.above, window.rows), (vec![1, 2], 1, 5));
        // 10 characters in columns of 4 take three rows, with a prefix of 3 four.
        let window = buffer.window(2, 2, Some(4), 0);
        let numbers: Vec<u64> = window.lines.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, window.above, window.rows), (vec![0, 1], 0, 7));
        assert_eq!(buffer.window(0, 1, Some(4), 3).rows, 4 + 2 + 2 + 1 + 1);
        assert_eq!(buffer.window(99, 2, None, 0).lines, []);
    }
}

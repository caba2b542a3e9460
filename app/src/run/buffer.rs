//! What a command wrote, as far as the page keeps it.

use std::collections::VecDeque;

use super::wire::RunLine;
use crate::ui::ansi;

/// Lines that are kept.
const LINES: usize = 2_000;
/// Bytes that are kept.
const BYTES: usize = 2 << 20;

/// The last lines of an output.
#[derive(Debug, Default)]
pub(super) struct Output {
    lines: VecDeque<(u64, RunLine)>,
    bytes: usize,
    /// Lines in all.
    total: u64,
    /// Bytes that the server did not send.
    pub(super) missing: u64,
}

impl Output {
    pub(super) fn add(&mut self, lines: Vec<RunLine>) {
        for line in lines {
            self.bytes += line.1.len();
            self.lines.push_back((self.total, line));
            self.total += 1;
            // The last line stays, however long it is.
            while self.lines.len() > LINES || (self.bytes > BYTES && self.lines.len() > 1) {
                if let Some((_, RunLine(_, text))) = self.lines.pop_front() {
                    self.bytes -= text.len();
                }
            }
        }
    }

    /// The kept lines with their numbers.
    pub(super) fn lines(&self) -> Vec<(u64, RunLine)> {
        self.lines.iter().cloned().collect()
    }

    /// Lines that are no longer kept.
    fn dropped(&self) -> u64 {
        self.total - self.lines.len() as u64
    }

    /// What is not shown, in words.
    pub(super) fn gap(&self) -> Option<String> {
        match (self.missing >> 10, self.dropped()) {
            (0, 0) => None,
            (0, lines) => Some(format!("{lines} earlier lines are not shown")),
            (kib, 0) => Some(format!("{kib} KiB before are not shown")),
            (kib, lines) => Some(format!("{kib} KiB and {lines} lines before are not shown")),
        }
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The kept text.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes + self.lines.len());
        for (_, RunLine(_, line)) in &self.lines {
            text.push_str(&ansi::plain(line));
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LogStream;

    fn line(text: impl Into<String>) -> RunLine {
        RunLine(LogStream::Output, text.into())
    }

    #[test]
    fn the_last_lines_are_kept_with_their_numbers() {
        let mut output = Output::default();
        output.add((0..LINES + 5).map(|it| line(it.to_string())).collect());
        assert_eq!((output.lines.len(), output.dropped()), (LINES, 5));
        assert_eq!(output.lines()[0], (5, line("5")));
        assert!(output.text().starts_with("5\n6\n"));
        assert_eq!(output.gap().unwrap(), "5 earlier lines are not shown");
        output.missing = 3 << 20;
        let gap = "3072 KiB and 5 lines before are not shown";
        assert_eq!(output.gap().unwrap(), gap);
        assert_eq!(Output::default().gap(), None);
    }

    #[test]
    fn long_lines_count_by_their_bytes() {
        let mut output = Output::default();
        output.add(vec![line("a".repeat(BYTES)), line("b"), line("c")]);
        assert_eq!((output.lines.len(), output.dropped()), (2, 1));
        output.add(vec![line("d".repeat(2 * BYTES))]);
        assert_eq!((output.lines.len(), output.bytes), (1, 2 * BYTES));
    }

    #[test]
    fn copied_text_has_no_control_sequences() {
        let mut output = Output::default();
        output.add(vec![line("\u{1b}[31mred\u{1b}[0m")]);
        assert_eq!(output.text(), "red\n");
    }
}

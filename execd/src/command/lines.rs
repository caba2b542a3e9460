//! Cutting output into the texts of events (contract: execd §5.5).
//!
//! `\n`, `\r` and `\r\n` end a line and are stripped; a blank line is the text `"\n"`; an
//! unfinished line waits for its end. The texts do not depend on how the output was cut into
//! chunks.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::limits;

/// Text of a blank line.
const BLANK: &[u8] = b"\n";

/// Bytes that unfinished lines of all streams may take together.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: AtomicUsize,
}

impl Budget {
    fn take(&self, bytes: usize) -> bool {
        let add = |used: usize| {
            used.checked_add(bytes)
                .filter(|used| *used <= limits::PARTIAL_LINES)
        };
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Cuts one stream.
#[derive(Debug)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// The last byte was `\r`: a `\n` right after it belongs to the same line end.
    after_return: bool,
    max: usize,
    budget: Arc<Budget>,
}

impl Lines {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self::with_max(limits::LINE, budget)
    }

    fn with_max(max: usize, budget: Arc<Budget>) -> Self {
        Self {
            partial: Vec::new(),
            after_return: false,
            max,
            budget,
        }
    }

    /// Takes a chunk and gives every line that is complete now.
    pub(super) fn feed(&mut self, mut chunk: &[u8], mut line: impl FnMut(&[u8])) {
        if self.after_return && !chunk.is_empty() {
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
            self.after_return = false;
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', chunk) {
            let (text, ended) = chunk.split_at(at);
            if self.partial.is_empty() {
                line(if text.is_empty() { BLANK } else { text });
            } else {
                self.extend(text, &mut line);
                self.flush(&mut line);
            }
            chunk = &ended[1..];
            if ended[0] == b'\r' {
                match chunk.split_first() {
                    Some((b'\n', rest)) => chunk = rest,
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
        }
        self.extend(chunk, &mut line);
    }

    /// Gives the unfinished line, if there is one: its end will not come.
    pub(super) fn flush(&mut self, mut line: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            let partial = std::mem::take(&mut self.partial);
            self.budget.give(partial.len());
            line(&partial);
        }
    }

    /// Adds to the unfinished line; one that grows too long is given in pieces.
    fn extend(&mut self, mut text: &[u8], mut line: impl FnMut(&[u8])) {
        while !text.is_empty() {
            let room = self.max - self.partial.len();
            let taken = text.len().min(room);
            if taken > 0 && self.budget.take(taken) {
                self.partial.extend_from_slice(&text[..taken]);
                text = &text[taken..];
            } else if self.partial.is_empty() {
                line(text);
                return;
            } else {
                self.flush(&mut line);
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.budget.give(self.partial.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, max: usize) -> Vec<String> {
        let budget = Arc::new(Budget::default());
        let mut lines = Lines::with_max(max, Arc::clone(&budget));
        let mut texts = Vec::new();
        let mut push = |text: &[u8]| texts.push(String::from_utf8_lossy(text).into_owned());
        for chunk in chunks {
            lines.feed(chunk, &mut push);
        }
        lines.flush(&mut push);
        drop(lines);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        texts
    }

    fn whole(text: &str) -> Vec<String> {
        texts([text.as_bytes()], 1000)
    }

    #[test]
    fn line_ends_are_stripped_and_blank_lines_kept() {
        assert_eq!(whole("a\n\nb\n\n\nc\n"), ["a", "\n", "b", "\n", "\n", "c"]);
        assert_eq!(whole("a\r\nb\rc"), ["a", "b", "c"]);
        assert_eq!(whole("\r\n\r\n"), ["\n", "\n"]);
        assert_eq!(whole("\r\r\n\n"), ["\n", "\n", "\n"]);
        assert!(whole("").is_empty());
    }

    #[test]
    fn an_unfinished_line_waits() {
        let mut lines = Lines::new(Arc::default());
        let mut seen = Vec::new();
        lines.feed(b"ab", |text| seen.push(text.to_vec()));
        assert!(seen.is_empty());
        lines.feed(b"c\r", |text| seen.push(text.to_vec()));
        lines.feed(b"\nd\n", |text| seen.push(text.to_vec()));
        assert_eq!(seen, [b"abc".to_vec(), b"d".to_vec()]);
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(
            texts([&b"abcdefg\nh"[..]], 3),
            ["abcdefg", "h"],
            "already whole"
        );
        assert_eq!(
            texts([&b"abcde"[..], b"fg\n", b"h"], 3),
            ["abc", "def", "g", "h"]
        );
        let budget = Arc::new(Budget::default());
        assert!(budget.take(limits::PARTIAL_LINES));
        let mut lines = Lines::new(Arc::clone(&budget));
        let mut seen = Vec::new();
        lines.feed(b"no room", |text| seen.push(text.to_vec()));
        assert_eq!(seen, [b"no room".to_vec()]);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            text in "[a\r\n]{0,30}",
            cuts in proptest::collection::vec(0usize..30, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]);
            prop_assert_eq!(texts(chunks, 1000), whole(&text));
        }
    }
}

//! Splits output into the texts of events (contract: execd §5.5).
//!
//! `\n`, `\r` and `\r\n` end a line and are stripped. A blank line becomes the text `"\n"`. An
//! incomplete line waits for its end. The texts do not depend on how the output was cut into
//! chunks, unless a line is too long, or there is no memory for it: it then becomes several texts,
//! which joined are the line. None of them ends within a character.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Buf, Bytes};

use crate::limits;

/// Text of a blank line.
const BLANK: &[u8] = b"\n";

/// Memory budget for the incomplete lines of all streams.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    /// Creates a budget. It is a fraction of the sandbox's memory, so that the daemon cannot
    /// exhaust it.
    pub(crate) fn new(memory: Option<u64>) -> Self {
        let part = memory.map_or(u64::MAX, |memory| memory / limits::PARTIAL_LINES_PART);
        let most = usize::try_from(part).unwrap_or(usize::MAX);
        Self {
            used: AtomicUsize::new(0),
            max: most.min(limits::PARTIAL_LINES),
        }
    }

    fn take(&self, bytes: usize) -> bool {
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Line in memory that counts against the budget.
#[derive(Debug)]
pub(crate) struct HeldLine {
    text: Vec<u8>,
    /// Bytes taken from the budget.
    room: usize,
    budget: Arc<Budget>,
}

impl HeldLine {
    fn new(budget: Arc<Budget>) -> Self {
        Self {
            text: Vec::new(),
            room: 0,
            budget,
        }
    }

    /// Makes room for `more` bytes. Returns false if the line would exceed `max` or the budget is
    /// used up.
    fn reserve(&mut self, more: usize, max: usize) -> bool {
        let needed = self.text.len() + more;
        if needed > self.room {
            let room = needed.max(self.room * 2).min(max);
            if needed > room || !self.budget.take(room - self.room) {
                return false;
            }
            self.room = room;
            self.text.reserve_exact(room - self.text.len());
        }
        true
    }
}

impl std::ops::Deref for HeldLine {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text
    }
}

impl Drop for HeldLine {
    fn drop(&mut self) {
        self.budget.give(self.room);
    }
}

/// Splitter of one stream.
#[derive(Debug)]
pub(crate) struct Lines {
    partial: HeldLine,
    /// The last byte was `\r`, so a `\n` right after it belongs to the same line end.
    after_return: bool,
    /// Output after the incomplete line was dropped.
    cut_off: bool,
    /// The beginning of the current line was passed on already.
    continued: bool,
    max: usize,
}

impl Lines {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self::with_max(limits::LINE, budget)
    }

    fn with_max(max: usize, budget: Arc<Budget>) -> Self {
        Self {
            partial: HeldLine::new(budget),
            after_return: false,
            cut_off: false,
            continued: false,
            max,
        }
    }

    /// Records that later output was dropped: the next bytes do not continue the incomplete line.
    pub(crate) fn cut_off(&mut self) {
        self.cut_off = true;
        self.after_return = false;
        self.continued = false;
    }

    /// Splits a chunk and passes complete lines to `line`. Returns early with a line that was held
    /// from earlier chunks, because it may be long; the rest of the chunk is for the next call.
    pub(crate) fn feed(
        &mut self,
        chunk: &mut Bytes,
        mut line: impl FnMut(&[u8]),
    ) -> Option<HeldLine> {
        if std::mem::take(&mut self.cut_off)
            && let Some(unfinished) = self.flush()
        {
            return Some(unfinished);
        }
        if self.after_return && !chunk.is_empty() {
            chunk.advance(usize::from(chunk.starts_with(b"\n")));
            self.after_return = false;
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', chunk) {
            let whole = self.partial.is_empty();
            if whole {
                match at {
                    // The end of a long line.
                    0 if self.continued => {}
                    0 => line(BLANK),
                    _ => line(&chunk[..at]),
                }
                chunk.advance(at);
            } else if let Some(cut) = self.hold(chunk, at) {
                return Some(cut);
            }
            self.skip_line_end(chunk);
            self.continued = false;
            if !whole {
                return self.flush();
            }
        }
        let rest = chunk.len();
        let cut = self.hold(chunk, rest);
        if cut.is_none() && !chunk.is_empty() {
            // The budget is used up. The few bytes of an incomplete character are held all the same.
            let end = chunk.len() - incomplete(chunk).present;
            if end > 0 {
                line(&chunk[..end]);
                self.continued = true;
            }
            self.partial.text.extend_from_slice(&chunk[end..]);
            chunk.clear();
        }
        cut
    }

    /// Takes the incomplete line, if there is one, because its end will not come.
    pub(crate) fn flush(&mut self) -> Option<HeldLine> {
        let empty = HeldLine::new(Arc::clone(&self.partial.budget));
        let partial = std::mem::replace(&mut self.partial, empty);
        (!partial.is_empty()).then_some(partial)
    }

    /// Skips the line end at the front of a chunk.
    fn skip_line_end(&mut self, chunk: &mut Bytes) {
        if chunk.get_u8() == b'\r' {
            match chunk.first() {
                Some(b'\n') => chunk.advance(1),
                Some(_) => {}
                None => self.after_return = true,
            }
        }
    }

    /// Moves `len` bytes from the front of a chunk to the incomplete line. Returns the line when it
    /// cannot grow further. Changes nothing if there is neither a line nor room for one.
    fn hold(&mut self, chunk: &mut Bytes, len: usize) -> Option<HeldLine> {
        let fits = len.min(self.max.saturating_sub(self.partial.len()));
        let mut taken = 0;
        if fits > 0 && self.partial.reserve(fits, self.max) {
            self.partial.text.extend_from_slice(&chunk[..fits]);
            taken = fits;
        }
        // The line may be cut here, but not within a character, whose rest needs no room.
        let missing = incomplete(&self.partial).missing;
        let rest = chunk[taken..len].iter().take(missing);
        let rest = rest.take_while(|byte| is_continuation(**byte)).count();
        let end = taken + rest;
        self.partial.text.extend_from_slice(&chunk[taken..end]);
        chunk.advance(end);
        if end == len {
            return None;
        }
        let cut = self.flush();
        self.continued |= cut.is_some();
        cut
    }
}

/// A character of UTF-8 at the end of a text that lacks bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Incomplete {
    /// Bytes of it in the text.
    present: usize,
    /// Bytes that it lacks.
    missing: usize,
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Finds an incomplete character at the end of a text. By default there is none.
fn incomplete(text: &[u8]) -> Incomplete {
    let mut last_first = text.iter().rev().take(3);
    let Some(after) = last_first.position(|byte| !is_continuation(*byte)) else {
        return Incomplete::default();
    };
    let present = after + 1;
    let whole = match text[text.len() - present] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    match whole > present {
        true => Incomplete {
            present,
            missing: whole - present,
        },
        false => Incomplete::default(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, max: usize) -> Vec<String> {
        texts_within(Budget::new(None), chunks, max)
    }

    fn texts_within<'a>(
        budget: Budget,
        chunks: impl IntoIterator<Item = &'a [u8]>,
        max: usize,
    ) -> Vec<String> {
        let budget = Arc::new(budget);
        let mut lines = Lines::with_max(max, Arc::clone(&budget));
        let texts = std::cell::RefCell::new(Vec::new());
        let push = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            texts.borrow_mut().push(text);
        };
        for chunk in chunks {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(held) = lines.feed(&mut chunk, push) {
                push(&held);
            }
            assert!(chunk.is_empty());
        }
        lines.flush().iter().for_each(|held| push(held));
        drop(lines);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        texts.into_inner()
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
    fn an_incomplete_line_is_held() {
        let mut lines = Lines::new(Arc::new(Budget::new(None)));
        let mut feed = |text: &'static [u8]| {
            let mut whole = Vec::new();
            let mut chunk = Bytes::from_static(text);
            let held = lines.feed(&mut chunk, |text| whole.push(text.to_vec()));
            (held.map(|held| held.to_vec()), whole)
        };
        assert_eq!(feed(b"ab"), (None, vec![]));
        assert_eq!(feed(b"c\r"), (Some(b"abc".to_vec()), vec![]));
        assert_eq!(feed(b"\nd\n"), (None, vec![b"d".to_vec()]));
    }

    #[test]
    fn output_after_a_gap_begins_a_new_line() {
        for (before, after, want) in [
            ("begun", "later\n", &["begun", "later"][..]),
            ("whole\n", "later\n", &["whole", "later"]),
            ("return\r", "\nlater\n", &["return", "\n", "later"]),
            ("", "\nlater\n", &["\n", "later"]),
        ] {
            let mut lines = Lines::new(Arc::new(Budget::new(None)));
            let texts = std::cell::RefCell::new(Vec::new());
            let push = |text: &[u8]| {
                let text = String::from_utf8_lossy(text).into_owned();
                texts.borrow_mut().push(text);
            };
            for text in [before, after] {
                let mut chunk = Bytes::from_static(text.as_bytes());
                while let Some(held) = lines.feed(&mut chunk, push) {
                    push(&held);
                }
                lines.cut_off();
            }
            assert_eq!(texts.into_inner(), want, "{before:?}");
        }
    }

    #[test]
    fn long_lines_are_split() {
        assert_eq!(
            texts([&b"abcdefg\nh"[..]], 3),
            ["abcdefg", "h"],
            "already whole"
        );
        assert_eq!(
            texts([&b"abcde"[..], b"fg\n", b"h"], 3),
            ["abc", "def", "g", "h"]
        );
        let budget = Arc::new(Budget::new(Some(100 * limits::PARTIAL_LINES_PART)));
        let mut other = HeldLine::new(Arc::clone(&budget));
        assert!(other.reserve(100, 100));
        let mut lines = Lines::new(Arc::clone(&budget));
        let mut seen = Vec::new();
        let mut chunk = Bytes::from_static(b"no room");
        let held = lines.feed(&mut chunk, |text| seen.push(text.to_vec()));
        assert!(held.is_none() && chunk.is_empty());
        assert_eq!(seen, [b"no room".to_vec()]);
    }

    #[test]
    fn the_end_of_a_long_line_is_no_blank_line() {
        for (chunks, want) in [
            (&["abcdef", "\n"][..], &["abc", "def"][..]),
            (&["abcd", "ef\n\ng"], &["abc", "def", "\n", "g"]),
            (&["abc", "def", "\r", "\nx"], &["abc", "def", "x"]),
            (&["abcdef", "g\n"], &["abc", "def", "g"]),
        ] {
            let bytes = || chunks.iter().map(|chunk| chunk.as_bytes());
            assert_eq!(texts(bytes(), 3), want, "{chunks:?}");
            let none = texts_within(Budget::new(Some(0)), bytes(), 3);
            assert_eq!(none.concat(), want.concat(), "{chunks:?}");
        }
    }

    #[test]
    fn no_character_is_split() {
        let text = "aä€😀".repeat(3);
        for max in 1..12 {
            for len in 1..12 {
                for memory in [None, Some(0), Some(8 * limits::PARTIAL_LINES_PART)] {
                    let chunks = text.as_bytes().chunks(len);
                    let parts = texts_within(Budget::new(memory), chunks, max);
                    assert_eq!(parts.concat(), text, "{max} {len} {memory:?}: {parts:?}");
                }
            }
        }
        // Bytes that are no text are bounded as well.
        let odd = [0x80; 50];
        let parts = texts(odd.chunks(1), 10);
        assert_eq!(parts.len(), 5, "{parts:?}");
    }

    proptest! {
        #[test]
        fn the_parts_of_lines_joined_are_the_lines(
            text in "[aä€😀\r\n]{0,30}",
            cuts in proptest::collection::vec(0usize..90, 0..6),
            max in 1usize..10,
            memory in proptest::option::of(0u64..40),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]);
            let parts = texts_within(Budget::new(memory), chunks, max);
            prop_assert_eq!(parts.concat(), whole(&text).concat());
        }

        #[test]
        fn texts_do_not_depend_on_chunks(
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

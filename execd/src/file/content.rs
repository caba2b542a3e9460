//! Search for a text in the content of one file, line by line, in constant memory.

use std::{
    borrow::Cow,
    io::{self, Read},
};

use memchr::{memchr_iter, memmem::Finder, memrchr};
use osb_protocol::execd::file::FoundLine;

use crate::limits;

/// A text to look for.
pub(super) struct Needle {
    finder: Finder<'static>,
    length: usize,
    ignores_case: bool,
}

impl Needle {
    /// `ignores_case` counts for ASCII letters.
    pub(super) fn new(text: &str, ignores_case: bool) -> Self {
        let mut text = text.as_bytes().to_vec();
        if ignores_case {
            text.make_ascii_lowercase();
        }
        Self {
            finder: Finder::new(&text).into_owned(),
            length: text.len(),
            ignores_case,
        }
    }

    fn folded<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.ignores_case {
            true => bytes.to_ascii_lowercase().into(),
            false => bytes.into(),
        }
    }
}

/// What a file has of the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InFile {
    /// How often it has it.
    pub(super) count: u64,
    /// The first lines with it.
    pub(super) lines: Vec<FoundLine>,
    /// Whether more of the file follows.
    pub(super) partial: bool,
    /// Bytes that were read.
    pub(super) read: u64,
}

/// Where the search is in a file.
struct Place {
    /// Byte of the file where the held bytes begin.
    held_at: u64,
    /// Number of the line there, and the byte where that line begins.
    line: u64,
    line_at: u64,
}

/// Searches up to `most` bytes, as long as `goes_on`. `None` for a file that is no text.
pub(super) fn search(
    mut from: impl Read,
    needle: &Needle,
    most: u64,
    mut goes_on: impl FnMut() -> bool,
) -> io::Result<Option<InFile>> {
    let mut found = InFile::default();
    let mut held: Vec<u8> = Vec::new();
    let mut place = Place {
        held_at: 0,
        line: 1,
        line_at: 0,
    };
    loop {
        let before = held.len();
        let read = from
            .by_ref()
            .take(limits::FIND_READ as u64)
            .read_to_end(&mut held)?;
        if held[before..].contains(&0) {
            return Ok(None);
        }
        found.read += read as u64;
        let is_end = read == 0;
        let (end, kept_from) = match memrchr(b'\n', &held) {
            _ if is_end => (held.len(), held.len()),
            Some(at) => (at + 1, at + 1),
            None if held.len() < limits::FIND_LINE => continue,
            // A line without an end: its last bytes may begin an occurrence.
            None => (held.len(), held.len() - (needle.length - 1)),
        };
        let done = scan(&held[..end], needle, &mut place, &mut found);
        let kept_from = kept_from.max(done);
        pass_lines(&held[done..kept_from], done, &mut place);
        place.held_at += kept_from as u64;
        held.drain(..kept_from);
        if is_end {
            return Ok(Some(found));
        }
        if found.read >= most || !goes_on() {
            // A file that ends here was searched completely.
            found.partial = from.read(&mut [0])? > 0;
            // The last line, as far as it was read.
            scan(&held, needle, &mut place, &mut found);
            return Ok(Some(found));
        }
    }
}

/// Adds the occurrences in `bytes`; returns the end of the last one.
fn scan(bytes: &[u8], needle: &Needle, place: &mut Place, found: &mut InFile) -> usize {
    let folded = needle.folded(bytes);
    let mut done = 0;
    for at in needle.finder.find_iter(&folded) {
        pass_lines(&bytes[done..at], done, place);
        found.count += 1;
        let is_new = found
            .lines
            .last()
            .is_none_or(|last| last.number < place.line);
        if is_new && found.lines.len() < limits::FIND_LINES {
            let line_at = usize::try_from(place.line_at.saturating_sub(place.held_at));
            let line_at = line_at.unwrap_or_default().min(at);
            let end = at + needle.length;
            found.lines.push(FoundLine {
                number: place.line,
                offset: place.line_at,
                before: tail(&bytes[line_at..at]),
                hit: text(&bytes[at..end]),
                after: head(&bytes[end..]),
            });
        }
        done = at + needle.length;
    }
    done
}

/// Counts the lines that end in `bytes`, which begin at this place of the held ones.
fn pass_lines(bytes: &[u8], at: usize, place: &mut Place) {
    for end in memchr_iter(b'\n', bytes) {
        place.line += 1;
        place.line_at = place.held_at + (at + end + 1) as u64;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_rest(byte: u8) -> bool {
    (0x80..0xC0).contains(&byte)
}

/// The last bytes of what is before an occurrence.
fn tail(bytes: &[u8]) -> String {
    let mut from = bytes.len().saturating_sub(limits::FIND_BEFORE);
    while from > 0 && from < bytes.len() && is_rest(bytes[from]) {
        from += 1;
    }
    let cut = if from > 0 { "…" } else { "" };
    format!("{cut}{}", text(&bytes[from..]))
}

/// What is after an occurrence, to the end of its line.
fn head(bytes: &[u8]) -> String {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= limits::FIND_AFTER {
        return text(line);
    }
    let mut to = limits::FIND_AFTER;
    while to > 0 && is_rest(line[to]) {
        to -= 1;
    }
    format!("{}…", text(&line[..to]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reader that returns one byte at a time.
    struct Slowly<'a>(&'a [u8]);
    impl Read for Slowly<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let end = out.len().min(1);
            self.0.read(&mut out[..end])
        }
    }

    fn found(bytes: &[u8], needle: &Needle) -> Option<InFile> {
        search(Slowly(bytes), needle, u64::MAX, || true).unwrap()
    }

    proptest! {
        #[test]
        fn every_line_with_the_text_is_found(text in "[ab\n]{0,60}", needle in "[ab]{1,3}") {
            let got = found(text.as_bytes(), &Needle::new(&needle, false)).unwrap();
            prop_assert_eq!(got.count, text.matches(&needle).count() as u64);
            let mut at = 0;
            let mut expected = Vec::new();
            for (number, line) in (1..).zip(text.split('\n')) {
                if let Some((before, after)) = line.split_once(&needle) {
                    expected.push(FoundLine {
                        number,
                        offset: at,
                        before: before.to_owned(),
                        hit: needle.clone(),
                        after: after.to_owned(),
                    });
                }
                at += line.len() as u64 + 1;
            }
            expected.truncate(limits::FIND_LINES);
            prop_assert_eq!(got.lines, expected);
        }
    }

    #[test]
    fn case_is_ignored_on_request_and_the_line_stays_as_it_is() {
        let text = "one\r\nÄ Error: é\r\nERROR".as_bytes();
        assert_eq!(found(text, &Needle::new("error", false)).unwrap().count, 0);
        let got = found(text, &Needle::new("eRRor", true)).unwrap();
        assert_eq!(got.count, 2);
        let line = &got.lines[0];
        assert_eq!((line.number, line.offset), (2, 5));
        assert_eq!(
            (&*line.before, &*line.hit, &*line.after),
            ("Ä ", "Error", ": é")
        );
    }

    #[test]
    fn a_long_line_is_searched_in_pieces_and_cut_around_the_text() {
        let most = limits::FIND_LINE;
        // Across the end of the piece that is searched first.
        for at in [most - 3, most - 1, most, most + 2] {
            let mut line = vec![b'x'; at];
            line.extend_from_slice("<needle>".as_bytes());
            line.resize(at + 100_000, b'y');
            line.extend_from_slice(b"\nnext <needle>\n");
            let got = search(
                line.as_slice(),
                &Needle::new("<needle>", false),
                u64::MAX,
                || true,
            );
            let got = got.unwrap().unwrap();
            let numbers: Vec<_> = got.lines.iter().map(|it| (it.number, it.offset)).collect();
            assert_eq!(numbers, [(1, 0), (2, at as u64 + 100_001)], "{at}");
            assert_eq!(got.count, 2);
            assert!(got.lines[0].before.len() <= limits::FIND_BEFORE + "…".len());
            assert!(got.lines[0].after.ends_with("y…"));
        }
    }

    #[test]
    fn other_bytes_are_no_text_and_limits_end_the_search() {
        assert_eq!(found(b"abc\0abc", &Needle::new("abc", false)), None);
        let long = b"abc\n".repeat(limits::FIND_READ);
        let needle = Needle::new("abc", false);
        let part = search(long.as_slice(), &needle, 1, || true)
            .unwrap()
            .unwrap();
        assert!(part.partial && part.count > 0 && part.lines.len() == limits::FIND_LINES);
        assert_eq!(part.read, limits::FIND_READ as u64);
        let stopped = search(long.as_slice(), &needle, u64::MAX, || false).unwrap();
        assert!(stopped.unwrap().partial);
    }

    #[test]
    fn a_file_that_ends_at_a_limit_was_searched_completely() {
        let mut text = b"x\n".repeat(limits::FIND_READ / 2 - 2);
        text.extend_from_slice(b"\nabc");
        assert_eq!(text.len(), limits::FIND_READ);
        let needle = Needle::new("abc", false);
        let most = text.len() as u64;
        for (most, goes_on) in [(most, true), (u64::MAX, false)] {
            let got = search(text.as_slice(), &needle, most, || goes_on);
            let got = got.unwrap().unwrap();
            assert_eq!((got.count, got.partial), (1, false));
        }
        text.push(b'd');
        let got = search(text.as_slice(), &needle, most, || true);
        let got = got.unwrap().unwrap();
        assert_eq!((got.count, got.partial), (1, true));
    }

    #[test]
    fn letters_are_not_cut() {
        let line = "é".repeat(400);
        let got = found(
            format!("{line}!{line}").as_bytes(),
            &Needle::new("!", false),
        )
        .unwrap();
        let line = &got.lines[0];
        assert!(
            !format!("{}{}", line.before, line.after).contains('\u{fffd}'),
            "{line:?}"
        );
    }
}

//! Selection of lines from a file (contract: execd A3.1).

/// Filter that passes on the selected lines: without their line ends, joined by `\n`, nothing after
/// the last.
#[derive(Debug)]
pub(super) struct Lines {
    /// First selected line, from 1.
    first: u64,
    /// Line after the last selected line.
    end: u64,
    /// Current line.
    line: u64,
    /// Pending `\r`, part of the line end if a `\n` follows.
    held_return: bool,
    /// A selected line is complete; the next one begins with its separator.
    separator: bool,
}

impl Lines {
    pub(super) fn new(offset: u64, limit: Option<u64>) -> Self {
        Self {
            first: offset,
            end: limit.map_or(u64::MAX, |limit| offset.saturating_add(limit)),
            line: 1,
            held_return: false,
            separator: false,
        }
    }

    /// Whether no further line is selected.
    pub(super) fn done(&self) -> bool {
        self.line >= self.end
    }

    /// Processes the next piece of the file.
    pub(super) fn feed(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while !piece.is_empty() && !self.done() {
            let end = memchr::memchr(b'\n', piece);
            let (text, rest) = piece.split_at(end.unwrap_or(piece.len()));
            if self.line >= self.first {
                self.text(text, end.is_some(), out);
            }
            if end.is_some() {
                self.line += 1;
                piece = &rest[1..];
            } else {
                piece = rest;
            }
        }
    }

    /// Processes text of a line, up to its end or to the end of the piece.
    fn text(&mut self, text: &[u8], ends: bool, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.separator) {
            out.push(b'\n');
        }
        if self.held_return && !text.is_empty() {
            out.push(b'\r');
            self.held_return = false;
        }
        match text.strip_suffix(b"\r") {
            Some(text) => {
                out.extend_from_slice(text);
                self.held_return = true;
            }
            None => out.extend_from_slice(text),
        }
        if ends {
            self.held_return = false;
            self.separator = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn select(pieces: &[&[u8]], offset: u64, limit: Option<u64>) -> String {
        let mut lines = Lines::new(offset, limit);
        let mut out = Vec::new();
        for piece in pieces {
            lines.feed(piece, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_match_the_contract_s_example() {
        let file: &[&[u8]] = &[b"a\nb\r\nc\n"];
        assert_eq!(select(file, 2, Some(2)), "b\nc");
        assert_eq!(select(file, 1, None), "a\nb\nc");
        assert_eq!(select(file, 3, Some(9)), "c");
        assert_eq!(select(file, 4, None), "");
        assert_eq!(
            select(&[b"a\r", b"\nb\rc\r", b"d\n\n\nx"], 1, None),
            "a\nb\rc\rd\n\n\nx"
        );
        assert_eq!(select(&[b"x\r\r\n"], 1, None), "x\r");
    }

    proptest! {
        #[test]
        fn selected_lines_equal_split_lines(text in "[ab\n]{0,30}", offset in 1u64..6, limit in 1u64..6, cut in 0usize..30) {
            let skipped = usize::try_from(offset - 1).unwrap();
            let taken = usize::try_from(limit).unwrap();
            let want: Vec<&str> = text.lines().skip(skipped).take(taken).collect();
            let (head, tail) = text.as_bytes().split_at(cut.min(text.len()));
            prop_assert_eq!(select(&[head, tail], offset, Some(limit)), want.join("\n"));
        }
    }
}

//! Serialisation of events: one compact JSON object and two newlines each (contract: execd §4.2).
//!
//! Written by hand, because a stream may carry a million events per second. There are no
//! intermediate values, text is copied once, and more is escaped than JSON requires, because
//! clients need it.

use crate::limits;

/// Time of an event in Unix milliseconds, and its number in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    at: i64,
    /// Zero means none.
    seq: u64,
}

impl Stamp {
    pub(crate) const fn new(at: i64, seq: u64) -> Self {
        Self { at, seq }
    }

    /// Creates the stamp of an event outside the journal.
    pub(crate) const fn unnumbered(at: i64) -> Self {
        Self::new(at, 0)
    }

    pub(crate) fn next(&mut self) {
        self.seq += 1;
    }

    pub(crate) fn seq(self) -> u64 {
        self.seq
    }

    fn write_time(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"timestamp\":");
        if self.at < 0 {
            out.push(b'-');
        }
        number(out, self.at.unsigned_abs());
    }

    /// Writes the number and the end of the event.
    fn end(self, out: &mut Vec<u8>) {
        if self.seq > 0 {
            out.extend_from_slice(b",\"seq\":");
            number(out, self.seq);
        }
        out.extend_from_slice(b"}\n\n");
    }
}

/// Writes an event with output. `text` may be any bytes.
pub(crate) fn text(out: &mut Vec<u8>, kind: &str, text: &[u8], stamp: Stamp) {
    out.reserve(text.len() + 96);
    begin_text(out, kind);
    escape(out, text);
    end_text(out, stamp);
}

fn begin_text(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"text\":\"");
}

fn end_text(out: &mut Vec<u8>, stamp: Stamp) {
    out.extend_from_slice(b"\",");
    stamp.write_time(out);
    stamp.end(out);
}

/// Event with long output, written in pieces. In one piece it would need up to six more times the
/// memory of its text.
#[derive(Debug)]
pub(crate) struct LongEvent<T> {
    text: T,
    written: usize,
    stamp: Stamp,
}

impl<T: std::ops::Deref<Target = [u8]>> LongEvent<T> {
    /// Writes the beginning.
    pub(crate) fn begin(out: &mut Vec<u8>, kind: &str, text: T, stamp: Stamp) -> Self {
        begin_text(out, kind);
        Self {
            text,
            written: 0,
            stamp,
        }
    }

    /// Writes the next piece. Returns true if it was the last, which includes the end of the event.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> bool {
        let end = boundary(&self.text, self.written + limits::ESCAPED_AT_ONCE);
        escape(out, &self.text[self.written..end]);
        self.written = end;
        let whole = end == self.text.len();
        if whole {
            end_text(out, self.stamp);
        }
        whole
    }

    /// Ends the event early. Returns how many bytes of its text are missing.
    pub(crate) fn cut(&self, out: &mut Vec<u8>) -> usize {
        end_text(out, self.stamp);
        self.text.len() - self.written
    }
}

/// Finds the last position up to `at` that does not split a UTF-8 character.
fn boundary(text: &[u8], at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    let continues = |at: &usize| text[*at] & 0xC0 == 0x80;
    let mut places = (at.saturating_sub(3)..=at).rev();
    // Four continuation bytes in a row belong to no character.
    places.find(|at| !continues(at)).unwrap_or(at)
}

/// Writes the final event of a successful run, with its wall time in milliseconds.
pub(crate) fn complete(out: &mut Vec<u8>, millis: u128, stamp: Stamp) {
    out.extend_from_slice(b"{\"type\":\"execution_complete\",");
    if millis > 0 {
        out.extend_from_slice(b"\"execution_time\":");
        number(out, u64::try_from(millis).unwrap_or(u64::MAX));
        out.push(b',');
    }
    stamp.write_time(out);
    stamp.end(out);
}

/// Writes the final event of a failed run.
pub(crate) fn error(
    out: &mut Vec<u8>,
    name: &str,
    value: &str,
    traceback: &[String],
    stamp: Stamp,
) {
    out.extend_from_slice(b"{\"type\":\"error\",");
    stamp.write_time(out);
    out.extend_from_slice(b",\"error\":{\"ename\":\"");
    escape(out, name.as_bytes());
    out.extend_from_slice(b"\",\"evalue\":\"");
    escape(out, value.as_bytes());
    out.extend_from_slice(b"\",\"traceback\":[");
    for (index, line) in traceback.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"\"" } else { b",\"" });
        escape(out, line.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b"]}");
    stamp.end(out);
}

/// Writes a number in decimal. Avoids `fmt`, because every line of output has two numbers.
fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes text inside a JSON string. Invalid UTF-8 becomes U+FFFD. U+0085, U+2028 and U+2029 are
/// escaped, because line splitters of clients break at them.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    // Validating the whole text is much faster than iterating over its chunks.
    if std::str::from_utf8(text).is_ok() {
        escape_valid(out, text);
        return;
    }
    for chunk in text.utf8_chunks() {
        escape_valid(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        }
    }
}

/// Position of the first byte that may need escaping: a control character, a quote, a backslash, or
/// the first byte of one of the three line ends outside ASCII.
fn first_special(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks();
    let clean = |word: &&[u8; 8]| !has_special(u64::from_ne_bytes(**word));
    let passed = size_of::<u64>() * words.iter().take_while(clean).count();
    let special = |byte: &u8| matches!(byte, ..0x20 | b'"' | b'\\' | 0xC2 | 0xE2);
    let at = text[passed..].iter().position(special)?;
    Some(passed + at)
}

/// Whether one of eight bytes is special. Checks them together with arithmetic, because nearly
/// every byte of output passes here, and the compiler may not vectorise a loop.
fn has_special(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // Sets the high bit of each byte below the bound, which is at most 0x80. A borrow may also set
    // it in the byte above such a byte, which does not change the answer.
    let less = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGH;
    let equal = |word: u64, byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    // 0xC2 and 0xE2 differ in one bit.
    let multibyte = equal(word | (ONES * 0x20), 0xE2);
    less(word, 0x20) | equal(word, b'"') | equal(word, b'\\') | multibyte != 0
}

fn escape_valid(out: &mut Vec<u8>, mut text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    while let Some(at) = first_special(text) {
        out.extend_from_slice(&text[..at]);
        text = &text[at..];
        let (escaped, len): (&[u8], usize) = match text {
            [b'"', ..] => (b"\\\"", 1),
            [b'\\', ..] => (b"\\\\", 1),
            [b'\n', ..] => (b"\\n", 1),
            [b'\r', ..] => (b"\\r", 1),
            [b'\t', ..] => (b"\\t", 1),
            [0xC2, 0x85, ..] => (b"\\u0085", 2),
            [0xE2, 0x80, 0xA8, ..] => (b"\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (b"\\u2029", 3),
            [control @ ..0x20, ..] => {
                out.extend_from_slice(b"\\u00");
                out.push(b'0' + (control >> 4));
                (&HEX[usize::from(control & 0xF)..][..1], 1)
            }
            other => (&other[..1], 1),
        };
        out.extend_from_slice(escaped);
        text = &text[len..];
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use osb_protocol::execd::event::{Event, EventKind};
    use proptest::prelude::*;

    use super::*;

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn special_bytes_are_found_at_every_position() {
        for byte in 0..=u8::MAX {
            let special = byte < 0x20 || [b'"', b'\\', 0xC2, 0xE2].contains(&byte);
            for around in [b' ', b'~', 0x7F, 0x80, 0xFF] {
                for at in 0..20 {
                    let mut text = [around; 20];
                    text[at] = byte;
                    assert_eq!(first_special(&text), special.then_some(at), "{byte:x} {at}");
                }
            }
        }
    }

    #[test]
    fn frames_match_the_contract() {
        let stamp = Stamp::unnumbered(5);
        assert_eq!(
            shown(|out| text(out, "stdout", b"hello", Stamp::new(1_767_225_600_102, 30))),
            "{\"type\":\"stdout\",\"text\":\"hello\",\"timestamp\":1767225600102,\"seq\":30}\n\n"
        );
        assert_eq!(
            shown(|out| complete(out, 104, stamp)),
            "{\"type\":\"execution_complete\",\"execution_time\":104,\"timestamp\":5}\n\n"
        );
        assert_eq!(
            shown(|out| complete(out, 0, stamp)),
            "{\"type\":\"execution_complete\",\"timestamp\":5}\n\n"
        );
        let traceback = ["exit status 3".to_owned(), "more".to_owned()];
        assert_eq!(
            shown(|out| error(out, "CommandExecError", "3", &traceback, stamp)),
            "{\"type\":\"error\",\"timestamp\":5,\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"3\",\"traceback\":[\"exit status 3\",\"more\"]}}\n\n"
        );
    }

    #[test]
    fn unicode_line_ends_and_invalid_bytes_are_escaped() {
        let frame = shown(|out| {
            text(
                out,
                "stdout",
                "\u{85}\u{2028}\u{2029}\u{c}é€\u{7f}".as_bytes(),
                Stamp::new(1, 1),
            )
        });
        assert!(
            frame.contains("\"\\u0085\\u2028\\u2029\\u000cé€\u{7f}\""),
            "{frame}"
        );
        let frame = shown(|out| text(out, "stdout", b"a\xffb\xe2\x80", Stamp::new(1, 1)));
        assert!(frame.contains("\"a\u{FFFD}b\u{FFFD}\""), "{frame}");
    }

    #[test]
    fn a_long_event_is_the_same_in_pieces() {
        let value = "é\0\u{2028}".repeat(limits::ESCAPED_AT_ONCE);
        let whole = shown(|out| text(out, "stdout", value.as_bytes(), Stamp::new(5, 9)));
        let mut rounds = 0;
        let pieces = shown(|out| {
            let mut long = LongEvent::begin(out, "stdout", value.as_bytes(), Stamp::new(5, 9));
            while !long.write(out) {
                rounds += 1;
            }
        });
        assert!(rounds >= 5 && pieces == whole);
    }

    proptest! {
        #[test]
        fn every_text_round_trips(value in "[ -~]{0,80}[\0-\u{2030}]{0,20}") {
            let frame = shown(|out| text(out, "stderr", value.as_bytes(), Stamp::new(-7, u64::MAX)));
            let json = frame.strip_suffix("\n\n").unwrap();
            let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
            prop_assert!(!json.contains(breaks));
            let event: Event = serde_json::from_str(json).unwrap();
            prop_assert_eq!(event.kind, EventKind::Stderr);
            prop_assert_eq!(event.text, value);
            prop_assert_eq!(event.timestamp, -7);
        }

        #[test]
        fn pieces_are_split_between_characters(
            text in proptest::collection::vec(
                prop_oneof![Just(0x61u8), Just(0x80), Just(0xBF), Just(0xC3), Just(0xE2), Just(0xF0), Just(0x9F)],
                0..24,
            ),
            at in 1usize..24,
        ) {
            let cut = boundary(&text, at);
            prop_assert!(cut <= at.min(text.len()) && cut + 3 >= at.min(text.len()));
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            escape(&mut whole, &text);
            escape(&mut pieces, &text[..cut]);
            escape(&mut pieces, &text[cut..]);
            prop_assert_eq!(pieces, whole);
        }
    }
}

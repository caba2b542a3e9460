//! Refusals that are made from the bytes of the query: of one question for a name of letters, digits,
//! hyphens and underscores, as programs ask. All other queries are read as messages. Answers are the
//! same either way.

use super::HEADER;

/// Longest datagram for a client that names no other length (RFC 1035 §4.2.1); also the shortest that
/// a client can name (RFC 6891 §6.2.3).
const DATAGRAM: u16 = 512;
/// Bytes of a name with the lengths of its labels (RFC 1035 §3.1).
const NAME: usize = 255;
const LABEL: usize = 63;
const TYPE_AND_CLASS: usize = 4;
/// The record that extends a message (RFC 6891 §6.1.2), up to the length that a client can take.
const EXTENSION: [u8; 3] = [0, 0, 41];

/// A query that can be refused by its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainQuery<'a> {
    header: &'a [u8; HEADER],
    question: &'a [u8],
    /// Longest answer that the client can take. `None` if it did not say.
    payload: Option<u16>,
}

impl<'a> PlainQuery<'a> {
    /// Reads a query, and writes its name as policies compare it. `None` if it has to be read as a
    /// message.
    pub(super) fn read(message: &'a [u8], name: &mut String) -> Option<Self> {
        const IS_ANSWER_AND_OP_CODE: u8 = 0b1111_1000;
        let header: &[u8; HEADER] = message.first_chunk()?;
        let is_query = header[2] & IS_ANSWER_AND_OP_CODE == 0;
        // One question, and at most one additional record.
        let [1, 0, 0, extensions @ 0..=1] = counts(header) else {
            return None;
        };
        let end = read_name(message, name)? + TYPE_AND_CLASS;
        let question = message.get(HEADER..end)?;
        let payload = match (extensions, &message[end..]) {
            (0, []) => None,
            // Without options, and of the only version.
            (1, [0, 0, 41, high, low, 0, 0, _, _, 0, 0]) => {
                Some(u16::from_be_bytes([*high, *low]).max(DATAGRAM))
            }
            _ => return None,
        };
        is_query.then_some(Self {
            header,
            question,
            payload,
        })
    }

    /// Whether the client can read why it is refused.
    pub(super) const fn takes_a_reason(&self) -> bool {
        self.payload.is_some()
    }

    /// Appends the answer "no such name", with an extended error for clients that take one. Appends
    /// nothing, and returns false, if it is longer than the client can take.
    pub(super) fn refuse(&self, error: u16, code: u16, reason: &str, into: &mut Vec<u8>) -> bool {
        const IS_ANSWER: u8 = 0b1000_0000;
        const RECURSION_DESIRED: u8 = 0b0000_0001;
        const CHECKING_DISABLED: u8 = 0b0001_0000;
        const NO_SUCH_NAME: u8 = 3;
        /// Rest of the record before its data, and code and length of its option.
        const FIXED: usize = 8 + 4;
        let start = into.len();
        let [high, low, flags, more, ..] = *self.header;
        into.extend([
            high,
            low,
            IS_ANSWER | flags & RECURSION_DESIRED,
            more & CHECKING_DISABLED | NO_SUCH_NAME,
        ]);
        into.extend([0, 1, 0, 0, 0, 0, 0, u8::from(self.takes_a_reason())]);
        into.extend(self.question);
        if let Some(payload) = self.payload {
            let limit = usize::from(payload);
            let length = into.len() - start + EXTENSION.len() + FIXED + 2 + reason.len();
            let Ok(option) = u16::try_from(2 + reason.len()) else {
                into.truncate(start);
                return false;
            };
            if length > limit {
                into.truncate(start);
                return false;
            }
            into.extend(EXTENSION);
            into.extend(payload.to_be_bytes());
            into.extend([0; 4]);
            into.extend((option + 4).to_be_bytes());
            into.extend(error.to_be_bytes());
            into.extend(option.to_be_bytes());
            into.extend(code.to_be_bytes());
            into.extend(reason.as_bytes());
        }
        true
    }
}

/// Numbers of questions, answers, authorities and additional records.
fn counts(header: &[u8; HEADER]) -> [u16; 4] {
    [4, 6, 8, 10].map(|at| u16::from_be_bytes([header[at], header[at + 1]]))
}

/// Reads the name of the first question. Returns where it ends.
fn read_name(message: &[u8], name: &mut String) -> Option<usize> {
    name.clear();
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return (at - HEADER <= NAME).then_some(at);
        }
        let label = message.get(at..at + length)?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        // A hyphen at the start is not written as it is.
        if length > LABEL || label[0] == b'-' || !label.iter().all(is_plain) {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|it| char::from(it.to_ascii_lowercase())));
        at += length;
    }
}

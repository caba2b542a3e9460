//! Binary frames: a tag byte, then data.

/// Tag of a frame from the client: bytes for standard input.
pub const STDIN: u8 = 0x00;
/// Tag of a frame to the client: output of the terminal, or standard output.
pub const STDOUT: u8 = 0x01;
/// Tag of a frame to the client: standard error (pipe mode only).
pub const STDERR: u8 = 0x02;
/// Tag of a frame to the client: earlier output, after the offset of its first byte.
pub const REPLAY: u8 = 0x03;

/// Bytes of the offset in a replay frame.
const OFFSET: usize = size_of::<u64>();

/// A binary frame (contract: execd §9.3).
///
/// Decoding borrows from the message. A caller with the message in a `Bytes` gets the data as
/// `Bytes` by `message.slice_ref(data)`, without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryFrame<'a> {
    /// Bytes for standard input, from the client.
    Stdin(&'a [u8]),
    /// Output of the terminal, or standard output.
    Stdout(&'a [u8]),
    /// Standard error (pipe mode only).
    Stderr(&'a [u8]),
    /// Earlier output, or all output for a viewer.
    Replay {
        /// Offset of the first byte in all output of the session; big-endian on the wire.
        offset: u64,
        /// The output.
        data: &'a [u8],
    },
}

impl<'a> BinaryFrame<'a> {
    /// Decodes a message; `None` if it is empty, too short for its kind, or of an unknown kind.
    /// The contract has receivers ignore such messages.
    #[must_use]
    pub fn decode(message: &'a [u8]) -> Option<Self> {
        let (tag, data) = message.split_first()?;
        match *tag {
            STDIN => Some(Self::Stdin(data)),
            STDOUT => Some(Self::Stdout(data)),
            STDERR => Some(Self::Stderr(data)),
            REPLAY => {
                let (offset, data) = data.split_first_chunk()?;
                let offset = u64::from_be_bytes(*offset);
                Some(Self::Replay { offset, data })
            }
            _ => None,
        }
    }

    /// Encodes the frame as one message, in one allocation of exactly its length.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (tag, offset, data) = match *self {
            Self::Stdin(data) => (STDIN, None, data),
            Self::Stdout(data) => (STDOUT, None, data),
            Self::Stderr(data) => (STDERR, None, data),
            Self::Replay { offset, data } => (REPLAY, Some(offset), data),
        };
        let mut message = Vec::with_capacity(1 + offset.map_or(0, |_| OFFSET) + data.len());
        message.push(tag);
        if let Some(offset) = offset {
            message.extend_from_slice(&offset.to_be_bytes());
        }
        message.extend_from_slice(data);
        message
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_those_of_the_contract() {
        let stdin = BinaryFrame::Stdin("ä".as_bytes());
        assert_eq!(stdin.encode(), [0, 0xc3, 0xa4]);
        assert_eq!(BinaryFrame::Stdout(b"x").encode(), b"\x01x");
        assert_eq!(BinaryFrame::Stderr(b"").encode(), b"\x02");
        // contract: execd §9.3, byte example
        let replay = BinaryFrame::Replay {
            offset: 5,
            data: b"hi",
        };
        let message = b"\x03\0\0\0\0\0\0\0\x05hi";
        assert_eq!(replay.encode(), message);
        assert_eq!(BinaryFrame::decode(message), Some(replay));
    }

    #[test]
    fn unknown_and_short_messages_are_no_frames() {
        for message in [&b""[..], b"\x03", b"\x03\0\0\0\0\0\0\0", b"\x04", b"\xffhi"] {
            assert_eq!(BinaryFrame::decode(message), None, "{message:?}");
        }
    }

    fn with_frame(tag: u8, offset: u64, data: &[u8], check: impl FnOnce(BinaryFrame<'_>)) {
        check(match tag {
            STDIN => BinaryFrame::Stdin(data),
            STDOUT => BinaryFrame::Stdout(data),
            STDERR => BinaryFrame::Stderr(data),
            _ => BinaryFrame::Replay { offset, data },
        });
    }

    proptest! {
        #[test]
        fn encoded_frames_decode_to_themselves(
            tag in STDIN..=REPLAY,
            offset: u64,
            data in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            with_frame(tag, offset, &data, |frame| {
                let message = frame.encode();
                assert_eq!(message.capacity(), message.len(), "one exact allocation");
                assert_eq!(BinaryFrame::decode(&message), Some(frame));
            });
        }

        #[test]
        fn messages_that_decode_encode_to_themselves(
            tag in 0u8..6,
            rest in proptest::collection::vec(any::<u8>(), 0..32),
        ) {
            let message = [&[tag], &rest[..]].concat();
            match BinaryFrame::decode(&message) {
                Some(frame) => prop_assert_eq!(frame.encode(), message),
                None => prop_assert!(tag > REPLAY || (tag == REPLAY && rest.len() < OFFSET)),
            }
        }
    }
}

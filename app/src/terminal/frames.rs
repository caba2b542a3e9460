//! The binary frames of an execd PTY (contract: execd §9.3), as the browser reads and writes them.
//! Text frames are the types of `osb_protocol::execd::pty`.

use osb_protocol::execd::pty::{REPLAY, STDERR, STDIN, STDOUT};

/// What the shell says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output<'a> {
    /// New bytes.
    Data(&'a [u8]),
    /// Old bytes, the first of which has this position in the session's output.
    Replay(u64, &'a [u8]),
}

/// Reads a binary frame; `None` for kinds this page does not know.
pub(super) fn read(frame: &[u8]) -> Option<Output<'_>> {
    match frame.split_first()? {
        (&(STDOUT | STDERR), data) => Some(Output::Data(data)),
        (&REPLAY, rest) => {
            let (offset, data) = rest.split_first_chunk::<8>()?;
            Some(Output::Replay(u64::from_be_bytes(*offset), data))
        }
        _ => None,
    }
}

/// Bytes for the shell.
pub(super) fn input(text: &str) -> Vec<u8> {
    let mut frame = Vec::with_capacity(text.len() + 1);
    frame.push(STDIN);
    frame.extend_from_slice(text.as_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_as_in_the_contract() {
        let replay = [3, 0, 0, 0, 0, 0, 0, 0, 5, 0x68, 0x69];
        assert_eq!(read(&replay), Some(Output::Replay(5, b"hi")));
        assert_eq!(read(b"\x01x"), Some(Output::Data(b"x")));
        assert_eq!(read(b"\x02"), Some(Output::Data(b"")));
        for wrong in [&b""[..], b"\x03\0\0", b"\x09x"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(input("ä"), [0, 0xc3, 0xa4]);
    }
}

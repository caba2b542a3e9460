//! Frames of a WebSocket on their way through (RFC 6455 §5.2).
//!
//! Frames pass unchanged. Only their ends are followed, so that a side whose other side vanishes without
//! a close frame gets one (contract: lifecycle §8), and so do both sides of a WebSocket that is cut.

/// Close frame of a server: the backend vanished (1011, internal error).
const BACKEND_VANISHED: [u8; 4] = [0x88, 0x02, 0x03, 0xF3];
/// Close frame of a client: it went away (1001). Its mask is zero, as nothing in it can be chosen.
const CLIENT_VANISHED: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE9];
/// Reason of the close frame for a client that may no longer use the WebSocket (1008, policy violation).
const WITHDRAWN: &str = "access was withdrawn";
/// Longest head of a frame, in bytes: two, a length of eight, and a mask of four.
const HEAD_MAX: usize = 14;
const OPCODE: u8 = 0x0F;
const CLOSE: u8 = 0x08;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7F;
const LENGTH_OF_2: u8 = 126;
const LENGTH_OF_8: u8 = 127;

/// Sender of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Backend,
}

/// Position in the frames of one side.
#[derive(Debug)]
pub(crate) struct Frames {
    from: Side,
    /// Beginning of a frame whose head is not complete.
    head: [u8; HEAD_MAX],
    head_len: usize,
    /// Bytes of the current frame that are still to come.
    rest: u64,
    /// Whether a close frame has begun, or one was added.
    has_close: bool,
}

impl Frames {
    pub(crate) fn of(from: Side) -> Self {
        Self {
            from,
            head: [0; HEAD_MAX],
            head_len: 0,
            rest: 0,
            has_close: false,
        }
    }

    /// Follows bytes that pass.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while let [first, others @ ..] = bytes {
            if self.rest > 0 {
                let passed = self.rest.min(bytes.len() as u64);
                self.rest -= passed;
                bytes = &bytes[usize::try_from(passed).unwrap_or(bytes.len())..];
                continue;
            }
            self.head[self.head_len] = *first;
            self.head_len += 1;
            bytes = others;
            if let Some(length) = payload(&self.head[..self.head_len]) {
                self.has_close |= self.head[0] & OPCODE == CLOSE;
                self.rest = length;
                self.head_len = 0;
            }
        }
    }

    /// Returns the close frame that is missing at the end of the stream. `None` if there was one, or
    /// if a frame is incomplete, which nothing can follow.
    pub(crate) fn end(&mut self) -> Option<Vec<u8>> {
        self.can_close().then(|| match self.from {
            Side::Backend => BACKEND_VANISHED.to_vec(),
            Side::Client => CLIENT_VANISHED.to_vec(),
        })
    }

    /// As [`Self::end`], where the client may no longer use the WebSocket.
    pub(crate) fn cut(&mut self) -> Option<Vec<u8>> {
        self.can_close().then(|| match self.from {
            Side::Backend => {
                let length = 2 + u8::try_from(WITHDRAWN.len()).expect("a reason is short");
                let head = [0x88, length, 0x03, 0xF0];
                [&head[..], WITHDRAWN.as_bytes()].concat()
            }
            // To the program its client went away, whatever the cause.
            Side::Client => CLIENT_VANISHED.to_vec(),
        })
    }

    /// Whether a close frame can follow; none can follow it.
    fn can_close(&mut self) -> bool {
        let is_between_frames = self.head_len == 0 && self.rest == 0;
        is_between_frames && !std::mem::replace(&mut self.has_close, true)
    }
}

/// Length of the payload of a frame with this head; `None` if the head is not complete.
fn payload(head: &[u8]) -> Option<u64> {
    let second = *head.get(1)?;
    let (extension, mask) = (second & LENGTH, if second & MASKED != 0 { 4 } else { 0 });
    let (len_bytes, length) = match extension {
        LENGTH_OF_2 => (2, head.get(2..4).map(be)),
        LENGTH_OF_8 => (8, head.get(2..10).map(be)),
        small => (0, Some(u64::from(small))),
    };
    (head.len() == 2 + len_bytes + mask)
        .then_some(length)
        .flatten()
}

fn be(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, masked: bool, payload: usize) -> Vec<u8> {
        let mask = if masked { MASKED } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match payload {
            0..126 => frame.push(mask | u8::try_from(payload).unwrap()),
            126..65_536 => {
                frame.push(mask | LENGTH_OF_2);
                frame.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(mask | LENGTH_OF_8);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        if masked {
            frame.extend([1, 2, 3, 4]);
        }
        // Looks like a close frame, if it is taken for one.
        frame.extend(std::iter::repeat_n(0x88, payload));
        frame
    }

    fn end_after(from: Side, bytes: &[u8], piece: usize) -> Option<Vec<u8>> {
        let mut frames = Frames::of(from);
        for bytes in bytes.chunks(piece) {
            frames.pass(bytes);
        }
        let end = frames.end();
        assert_eq!(frames.end(), None, "it is added once");
        end
    }

    #[test]
    fn a_close_frame_is_added_between_frames_only() {
        for masked in [false, true] {
            for payload in [0, 1, 125, 126, 300, 70_000] {
                let whole = [frame(2, masked, payload), frame(1, masked, 3)].concat();
                for piece in [1, 7, 4096, 100_000] {
                    let end = |bytes: &[u8]| end_after(Side::Backend, bytes, piece);
                    assert_eq!(end(&whole).as_deref(), Some(&BACKEND_VANISHED[..]));
                    assert_eq!(end(&whole[..whole.len() - 1]), None, "within a payload");
                    assert_eq!(end(&[&whole[..], &[0x81]].concat()), None, "within a head");
                    let closed = [&whole[..], &frame(CLOSE, masked, 2)].concat();
                    assert_eq!(end(&closed), None);
                }
            }
        }
        let client = end_after(Side::Client, &[], 1);
        assert_eq!(client.as_deref(), Some(&CLIENT_VANISHED[..]));
    }
}

//! Fuzz target: messages from clients of terminals.

use osb_protocol::execd::pty::{BinaryFrame, ClientFrame, ServerFrame};

/// Decodes a message as every type of frame. Each decoded frame survives a round trip.
pub fn frame(message: &[u8]) {
    if let Some(frame) = BinaryFrame::decode(message) {
        assert_eq!(frame.encode(), message);
    }
    let text = String::from_utf8_lossy(message);
    if let Some(frame) = ClientFrame::decode(&text)
        && frame != ClientFrame::Unknown
    {
        assert_eq!(ClientFrame::decode(&frame.encode()), Some(frame));
    }
    if let Some(frame) = ServerFrame::decode(&text) {
        assert_eq!(ServerFrame::decode(&frame.encode()), Some(frame));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames() {
        crate::fuzz::short_run("frame", super::frame);
    }
}

//! What the fuzzer feeds: text frames of a client.

use osb_protocol::execd::pty::ClientFrame;

/// A text frame: one that is understood is understood again after it was written.
pub fn frame(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(frame) = super::attach::client_frame(&text)
        && frame != ClientFrame::Unknown
    {
        let written = serde_json::to_string(&frame).expect("a frame is JSON");
        assert_eq!(super::attach::client_frame(&written), Some(frame));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames() {
        crate::fuzz::short_run("frame", super::frame);
    }
}

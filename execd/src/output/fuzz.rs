//! Fuzz target: output of a command, split anywhere.

use std::sync::Arc;

use bytes::Bytes;
use osb_protocol::execd::event::Event;

use super::{
    frame,
    lines::{Budget, Lines},
};

/// Feeds output in pieces whose length is the first byte. Every frame is one event, and the events
/// do not depend on the pieces.
pub fn stream(data: &[u8]) {
    let Some((step, output)) = data.split_first() else {
        return;
    };
    let whole = events(output, output.len());
    let pieces = events(output, usize::from(*step));
    assert_eq!(whole, pieces);
    assert!(whole.iter().all(|event| !event.text.is_empty()));
}

const STAMP: frame::Stamp = frame::Stamp::unnumbered(1);

fn events(output: &[u8], step: usize) -> Vec<Event> {
    let mut lines = Lines::new(Arc::new(Budget::new(None)));
    let mut out = Vec::new();
    for piece in output.chunks(step.max(1)) {
        let mut piece = Bytes::copy_from_slice(piece);
        while !piece.is_empty() {
            let held = lines.feed(&mut piece, |text| {
                frame::text(&mut out, "stdout", text, STAMP)
            });
            if let Some(text) = held {
                frame::text(&mut out, "stdout", &text, STAMP);
            }
        }
    }
    if let Some(text) = lines.flush() {
        frame::text(&mut out, "stdout", &text, STAMP);
    }
    let text = String::from_utf8(out).expect("frames are text");
    let breaks = ['\r', '\u{85}', '\u{2028}', '\u{2029}'];
    assert!(!text.contains(breaks));
    text.split_terminator("\n\n")
        .map(|frame| serde_json::from_str(frame).expect("a frame is an event"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn streams() {
        crate::fuzz::short_run("stream", super::stream);
    }
}

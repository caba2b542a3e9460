//! How what was found looks.

use crate::view::CheckState;

/// Tone and icon of what was found.
pub(super) fn look(state: CheckState) -> (&'static str, &'static str) {
    match state {
        CheckState::Good => ("good", "circle-check"),
        CheckState::Note => ("busy", "info"),
        CheckState::Bad => ("bad", "triangle-alert"),
    }
}

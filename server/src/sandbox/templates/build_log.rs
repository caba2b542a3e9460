//! The end of what a build writes.

use std::sync::{Mutex, PoisonError};

/// Most bytes of a log that are kept.
const MOST: usize = 64 << 10;

/// What a build has written, as far as it is kept: the reason of a failure is in the last lines.
#[derive(Debug, Default)]
pub(super) struct BuildLog(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    text: String,
    /// Bytes at the start that are left out.
    left_out: usize,
}

impl BuildLog {
    /// Adds a piece. The oldest bytes go when it is too long.
    pub(super) fn write(&self, piece: &str) {
        // The text is replaced as a whole, so a panic elsewhere does not spoil it.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.text.push_str(piece);
        // Not with every piece: what is left is moved.
        if kept.text.len() > 2 * MOST {
            kept.shorten();
        }
    }

    /// The text, with a first line that says how much is left out.
    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.shorten();
        match kept.left_out {
            0 => kept.text.clone(),
            bytes => format!("[{bytes} bytes are left out]\n{}", kept.text),
        }
    }
}

impl Kept {
    fn shorten(&mut self) {
        let mut cut = self.text.len().saturating_sub(MOST);
        while !self.text.is_char_boundary(cut) {
            cut += 1;
        }
        self.text.drain(..cut);
        self.left_out += cut;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let log = BuildLog::default();
        assert_eq!(log.text(), "");
        log.write("a\n");
        log.write("b\n");
        assert_eq!(log.text(), "a\nb\n");
        for _ in 0..MOST {
            log.write("ü-");
        }
        let text = log.text();
        assert!(text.len() < MOST + 64, "{}", text.len());
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("[{} bytes are left out]", 4 + 2 * MOST));
        assert!(rest.starts_with('-') && rest.ends_with("ü-"), "{first}");
    }
}

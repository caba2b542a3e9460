//! Sampling of repeated lines (contract: execd §1.4).

use std::hash::{DefaultHasher, Hash, Hasher};

use tracing::Level;

use crate::limits;

/// Counter of lines with the same level and message in the current second.
#[derive(Debug)]
pub(crate) struct Sampler(Vec<MessageCount>);

/// Count of one message. A message with the same slot replaces it, so that more lines are written
/// than necessary, never fewer.
#[derive(Clone, Debug, Default)]
struct MessageCount {
    text: u64,
    second: i64,
    seen: u32,
    left_out: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self(vec![MessageCount::default(); limits::TEXTS])
    }
}

impl Sampler {
    /// Decides whether a line is written. Returns how many similar lines were dropped since the
    /// last written one, or `None` to drop this line.
    pub(crate) fn admit(&mut self, level: Level, text: &str, second: i64) -> Option<u32> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        level.hash(&mut hasher);
        self.count(hasher.finish(), second)
    }

    fn count(&mut self, text: u64, second: i64) -> Option<u32> {
        let places = self.0.len() as u64;
        let place = usize::try_from(text % places).expect("it is an index");
        let count = &mut self.0[place];
        if count.text != text {
            *count = MessageCount {
                text,
                ..MessageCount::default()
            };
        }
        if count.second != second {
            count.second = second;
            count.seen = 0;
        }
        count.seen = count.seen.saturating_add(1);
        let over = count.seen.saturating_sub(limits::FIRST);
        if over.is_multiple_of(limits::EVERY) {
            return Some(std::mem::take(&mut count.left_out));
        }
        count.left_out = count.left_out.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_of_a_second_then_each_hundredth() {
        let mut sampler = Sampler::default();
        let mut seen = |level, text, second| sampler.admit(level, text, second);
        let mut written = Vec::new();
        for number in 1..=450 {
            if let Some(left_out) = seen(Level::INFO, "again", 7) {
                written.push((number, left_out));
            }
        }
        assert_eq!(written.len(), 103);
        assert!(written[..100].iter().all(|(_, left_out)| *left_out == 0));
        assert_eq!(written[100..], [(200, 99), (300, 99), (400, 99)]);
        // Other messages and other levels have their own counts.
        assert_eq!(seen(Level::INFO, "else", 7), Some(0));
        assert_eq!(seen(Level::WARN, "again", 7), Some(0));
        // A new second starts from zero, and reports the lines dropped before.
        assert_eq!(seen(Level::INFO, "again", 8), Some(50));
        assert_eq!(seen(Level::INFO, "again", 8), Some(0));
    }

    #[test]
    fn colliding_messages_are_all_logged() {
        let mut sampler = Sampler::default();
        let places = sampler.0.len() as u64;
        for _ in 0..200 {
            assert_eq!(sampler.count(1, 7), Some(0));
            assert_eq!(sampler.count(1 + places, 7), Some(0));
        }
    }
}

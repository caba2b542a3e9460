//! Leaving out lines that repeat (contract: execd §1.4).

use std::hash::{DefaultHasher, Hash, Hasher};

use tracing::Level;

use crate::limits;

/// Counts the lines of one level and text in the current second.
#[derive(Debug)]
pub(crate) struct Sampler(Vec<Count>);

/// The count of one text. A text that falls into the same place takes it over: then more lines are
/// written than necessary, never fewer.
#[derive(Clone, Debug, Default)]
struct Count {
    text: u64,
    second: i64,
    said: u32,
    left_out: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self(vec![Count::default(); limits::TEXTS])
    }
}

impl Sampler {
    /// Decides whether a line is written. Returns how many like it were left out since the last one
    /// that was written, or `None` for a line to leave out.
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
            *count = Count {
                text,
                ..Count::default()
            };
        }
        if count.second != second {
            count.second = second;
            count.said = 0;
        }
        count.said = count.said.saturating_add(1);
        let over = count.said.saturating_sub(limits::FIRST);
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
        let mut said = |level, text, second| sampler.admit(level, text, second);
        let mut written = Vec::new();
        for number in 1..=450 {
            if let Some(left_out) = said(Level::INFO, "again", 7) {
                written.push((number, left_out));
            }
        }
        assert_eq!(written.len(), 103);
        assert!(written[..100].iter().all(|(_, left_out)| *left_out == 0));
        assert_eq!(written[100..], [(200, 99), (300, 99), (400, 99)]);
        // Neither another text nor another level is like it.
        assert_eq!(said(Level::INFO, "else", 7), Some(0));
        assert_eq!(said(Level::WARN, "again", 7), Some(0));
        // The next second begins anew, and reports the rest of the last one.
        assert_eq!(said(Level::INFO, "again", 8), Some(50));
        assert_eq!(said(Level::INFO, "again", 8), Some(0));
    }

    #[test]
    fn texts_that_share_a_place_are_all_said() {
        let mut sampler = Sampler::default();
        let places = sampler.0.len() as u64;
        for _ in 0..200 {
            assert_eq!(sampler.count(1, 7), Some(0));
            assert_eq!(sampler.count(1 + places, 7), Some(0));
        }
    }
}

//! The last changes of the list, for tabs that come back after a short break.

use std::{collections::VecDeque, sync::Arc};

use super::hub::SequencedChange;

/// Most changes that are kept.
const COUNT: usize = 512;
/// Most bytes of them: a sandbox may have labels of 64 KiB, and change often.
const BYTES: usize = 8 << 20;

/// Changes without a gap, the newest last.
#[derive(Default)]
pub(super) struct Recent {
    changes: VecDeque<Arc<SequencedChange>>,
    bytes: usize,
}

impl Recent {
    /// Adds the next change, and forgets the oldest ones beyond the limits.
    pub(super) fn push(&mut self, change: Arc<SequencedChange>) {
        self.bytes += change.bytes();
        self.changes.push_back(change);
        while self.changes.len() > COUNT || self.bytes > BYTES {
            let Some(oldest) = self.changes.pop_front() else {
                return;
            };
            self.bytes -= oldest.bytes();
        }
    }

    /// Forgets all: some changes were missed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The changes after a position; `None` if some of them are no longer kept.
    pub(super) fn since(&self, seq: u64) -> Option<Vec<Arc<SequencedChange>>> {
        let missed: Vec<_> = self
            .changes
            .iter()
            .filter(|change| change.seq > seq)
            .cloned()
            .collect();
        let newest = self.changes.back().map_or(seq, |change| change.seq);
        let is_whole = missed.len() as u64 == newest.saturating_sub(seq);
        is_whole.then_some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqs(recent: &Recent, seq: u64) -> Option<Vec<u64>> {
        let since = recent.since(seq)?;
        Some(since.iter().map(|change| change.seq).collect())
    }

    fn pushed(sizes: impl IntoIterator<Item = usize>) -> Recent {
        let mut recent = Recent::default();
        for (seq, bytes) in (1..).zip(sizes) {
            recent.push(Arc::new(SequencedChange::of_size(seq, bytes)));
        }
        recent
    }

    #[test]
    fn a_tab_gets_what_it_missed_or_everything() {
        let recent = pushed([1; 600]);
        assert_eq!(seqs(&recent, 600), Some(vec![]));
        assert_eq!(seqs(&recent, 598), Some(vec![599, 600]));
        assert_eq!(seqs(&recent, 88).map(|it| it.len()), Some(512));
        assert_eq!(seqs(&recent, 87), None);
    }

    #[test]
    fn large_changes_push_out_others() {
        let recent = pushed([1, 1, BYTES - 1, 1]);
        assert_eq!(seqs(&recent, 2), Some(vec![3, 4]));
        assert_eq!(seqs(&recent, 1), None);
        let mut recent = pushed([1, BYTES + 1]);
        assert_eq!(recent.bytes, 0, "larger than all that is kept");
        recent.push(Arc::new(SequencedChange::of_size(3, 1)));
        assert_eq!(seqs(&recent, 2), Some(vec![3]));
        assert_eq!(seqs(&recent, 1), None);
    }
}

//! Changes of the list as they are sent, and the last ones, for tabs that come back after a short break.

use std::{collections::VecDeque, sync::Arc};

use axum::extract::ws::Utf8Bytes;
use osb_app::live::{Frame, RowChange, Topic};
use osb_protocol::SandboxId;
use serde::Serialize;

use crate::identity::Scope;

/// Most changes that are kept.
const COUNT: usize = 512;
/// Most bytes of them: a sandbox may have labels of 64 KiB, and change often.
const BYTES: usize = 8 << 20;

/// One change, ready to send.
#[derive(Debug)]
pub(super) struct SequencedChange {
    /// The sandbox that changed.
    pub(super) id: SandboxId,
    /// Position in the stream of changes.
    pub(super) seq: u64,
    /// The encoded change of the list.
    pub(super) frame: Utf8Bytes,
    pub(super) tenant: Option<Arc<str>>,
}

impl SequencedChange {
    #[cfg(test)]
    pub(super) fn of_size(seq: u64, bytes: usize) -> Self {
        Self {
            id: SandboxId::new(""),
            seq,
            frame: "x".repeat(bytes).into(),
            tenant: None,
        }
    }

    /// Whether the sandbox exists within a scope.
    pub(super) fn is_within(&self, scope: &Scope) -> bool {
        scope.contains(self.tenant.as_deref())
    }

    /// Length of the encoded change.
    pub(super) fn bytes(&self) -> usize {
        self.frame.len()
    }

    /// The change of the list as it is within a scope. Elsewhere it removes what was never there:
    /// pages take a hole in the numbers for a loss.
    pub(super) fn frame_within(&self, scope: &Scope) -> Utf8Bytes {
        if self.is_within(scope) {
            return self.frame.clone();
        }
        text(&Frame::Delta {
            topic: Topic::Sandboxes,
            seq: self.seq,
            data: RowChange::Removed(SandboxId::new("")),
        })
    }
}

/// Changes without a gap, the newest last.
#[derive(Default)]
pub(super) struct RecentChanges {
    changes: VecDeque<Arc<SequencedChange>>,
    bytes: usize,
    /// Position of the last one, also when it is not kept.
    newest: Option<u64>,
}

impl RecentChanges {
    /// Adds the next change, and forgets the oldest ones beyond the limits.
    pub(super) fn push(&mut self, change: Arc<SequencedChange>) {
        self.newest = Some(change.seq);
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
        self.changes.clear();
        self.bytes = 0;
        self.newest = None;
    }

    /// The changes after a position; `None` if some of them are no longer kept.
    pub(super) fn since(&self, seq: u64) -> Option<Vec<Arc<SequencedChange>>> {
        let missed: Vec<_> = self
            .changes
            .iter()
            .filter(|change| change.seq > seq)
            .cloned()
            .collect();
        let newest = self.newest?;
        let is_whole = missed.len() as u64 == newest.saturating_sub(seq);
        is_whole.then_some(missed)
    }
}

/// A frame as it is sent.
pub(super) fn text(frame: &impl Serialize) -> Utf8Bytes {
    serde_json::to_string(frame)
        .expect("maps have string keys, so this serialises")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqs(recent: &RecentChanges, seq: u64) -> Option<Vec<u64>> {
        let since = recent.since(seq)?;
        Some(since.iter().map(|change| change.seq).collect())
    }

    fn pushed(sizes: impl IntoIterator<Item = usize>) -> RecentChanges {
        let mut recent = RecentChanges::default();
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
        assert_eq!(seqs(&recent, 1), None);
        assert_eq!(seqs(&recent, 2), Some(vec![]));
        recent.push(Arc::new(SequencedChange::of_size(3, 1)));
        assert_eq!(seqs(&recent, 2), Some(vec![3]));
        assert_eq!(seqs(&recent, 1), None);
    }
}

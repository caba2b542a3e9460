//! Operations on sandboxes that are in progress.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use osb_protocol::SandboxId;

/// Sandboxes whose creates, or captures, are in progress. There is one of a kind at a time for each.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashSet<SandboxId>>);

/// An operation in progress, until dropped.
pub(super) struct UnderWayGuard<'a> {
    all: &'a UnderWay,
    id: SandboxId,
    is_kept: bool,
}

impl UnderWay {
    /// Notes an operation until the guard is dropped.
    pub(super) fn enter(&self, id: &SandboxId) -> UnderWayGuard<'_> {
        self.locked().insert(id.clone());
        UnderWayGuard {
            all: self,
            id: id.clone(),
            is_kept: false,
        }
    }

    /// Ends an operation whose guard was kept.
    pub(super) fn leave(&self, id: &SandboxId) {
        self.locked().remove(id);
    }

    pub(super) fn contains(&self, id: &SandboxId) -> bool {
        self.locked().contains(id)
    }

    /// The sandboxes whose operations are in progress now.
    pub(super) fn all(&self) -> HashSet<SandboxId> {
        self.locked().clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locked().is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, HashSet<SandboxId>> {
        // The set is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWayGuard<'_> {
    /// Leaves the operation in progress until [`UnderWay::leave`].
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for UnderWayGuard<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.all.leave(&self.id);
        }
    }
}

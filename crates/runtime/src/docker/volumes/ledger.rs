//! Which volumes and mounts belong to which sandbox, as far as this process knows.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use osb_protocol::SandboxId;

use crate::docker::labels;

/// What a sandbox uses besides its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::docker) struct Belongings {
    /// Volumes of the engine.
    pub(super) claims: BTreeSet<String>,
    /// Directories of mounted buckets.
    pub(super) buckets: BTreeSet<PathBuf>,
    /// Whether another server mounted the buckets.
    pub(super) is_foreign: bool,
}

impl Belongings {
    /// Reads the labels of a container.
    pub(in crate::docker) fn of(read: &labels::Read<'_>) -> Self {
        Self {
            claims: read.claims().into_iter().collect(),
            buckets: read.buckets().into_iter().collect(),
            is_foreign: read.server().is_none(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.buckets.is_empty()
    }

    /// Adds what another source knows of the same sandbox.
    pub(super) fn merge(&mut self, other: Self) {
        self.claims.extend(other.claims);
        self.buckets.extend(other.buckets);
        self.is_foreign |= other.is_foreign;
    }
}

/// The sandboxes that have belongings. A create records them before they are used, so that neither a
/// removal nor the sweep takes them away under it.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<HashMap<SandboxId, Belongings>>);

impl Ledger {
    /// What a sandbox uses.
    pub(super) fn of(&self, id: &SandboxId) -> Belongings {
        self.locked().get(id).cloned().unwrap_or_default()
    }

    /// Adds what a sandbox uses.
    pub(super) fn add(&self, id: &SandboxId, belongings: Belongings) {
        if !belongings.is_empty() {
            let mut ledger = self.locked();
            ledger.entry(id.clone()).or_default().merge(belongings);
        }
    }

    /// Forgets a sandbox that is gone.
    pub(super) fn forget(&self, id: &SandboxId) {
        self.locked().remove(id);
    }

    /// The sandboxes that are known.
    pub(super) fn known(&self) -> HashSet<SandboxId> {
        self.locked().keys().cloned().collect()
    }

    /// Forgets the sandboxes that were known before a list and are not in it.
    pub(super) fn keep(&self, before: &HashSet<SandboxId>, stays: impl Fn(&SandboxId) -> bool) {
        self.locked()
            .retain(|id, _| !before.contains(id) || stays(id));
    }

    /// What all sandboxes but one use.
    pub(super) fn of_others(&self, id: Option<&SandboxId>) -> Belongings {
        let ledger = self.locked();
        let others = ledger.iter().filter(|(other, _)| Some(*other) != id);
        let mut all = Belongings::default();
        for (_, belongings) in others {
            all.merge(belongings.clone());
        }
        all
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<SandboxId, Belongings>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(names: &[&str]) -> Belongings {
        Belongings {
            claims: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Belongings::default()
        }
    }

    #[test]
    fn a_sandbox_that_is_gone_is_forgotten_and_a_new_one_is_not() {
        let ledger = Ledger::default();
        let [gone, kept, new] = ["gone", "kept", "new"].map(SandboxId::from);
        ledger.add(&gone, claims(&["a"]));
        ledger.add(&kept, claims(&["a"]));
        ledger.add(&kept, claims(&["b"]));
        let before = ledger.known();
        ledger.add(&new, claims(&["c"]));
        ledger.keep(&before, |id| *id == kept);
        assert_eq!(ledger.of(&gone), Belongings::default());
        assert_eq!(ledger.of_others(None), claims(&["a", "b", "c"]));
        assert_eq!(ledger.of_others(Some(&kept)), claims(&["c"]));
        ledger.forget(&new);
        assert_eq!(ledger.of(&new), Belongings::default());
    }
}

//! What the runtime reports of the members of pools, and what an earlier process left.
//!
//! | A crash left | What happens |
//! |---|---|
//! | a row that is `Warming` | the member is asked whether it waits, and removed |
//! | a row that is `Ready` | the member is asked whether it waits, and serves on |
//! | a row that is `Ready`, with other settings or without a pool of its template | the member is asked whether it waits, and removed |
//! | a row that is `Claimed` | it is a sandbox, and its claim is repeated; if its create was not answered, it is removed |
//! | a row that is `Claimed` without a container | it does not count, and its history is written once something else of an earlier process is found |
//! | a row that is `Draining` | the member is asked whether it waits, and removed |
//! | a container without a row | the store is not that of the container: if it waits, it is removed; otherwise it is a sandbox, as its labels say |
//!
//! One that has ended, is frozen or does not answer cannot be asked, and an execd that was started again
//! remembers nothing: whether it is a client's is read from the mark that a claim leaves in it. Not every
//! image allows one (docs/adr/0011-pools.md).

use std::collections::HashSet;

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::Observed;
use osb_store::{EndedSpec, HistoryEntry, Outcome};

use super::record::ClaimRecord;
use crate::sandbox::{Service, lifecycle::now};

/// A full list of the runtime.
#[derive(Debug)]
pub(in crate::sandbox) struct Sorted {
    /// Sandboxes. Those of pools are what was claimed.
    pub(in crate::sandbox) sandboxes: Vec<Observed>,
    /// All ids, also of members without a client, which may be claimed while the list is handled.
    pub(in crate::sandbox) seen: HashSet<SandboxId>,
    /// Claimed ones that the list lacks.
    pub(in crate::sandbox) unseen_claims: Vec<(SandboxId, ClaimRecord)>,
    /// Whether it has a member of an earlier process.
    pub(in crate::sandbox) has_found: bool,
}

impl Service {
    /// Takes members without a client out of a full list of the runtime as of `at`.
    pub(in crate::sandbox) fn sort_members(&self, all: Vec<Observed>, at: WireTime) -> Sorted {
        let seen: HashSet<_> = all.iter().map(|it| it.origin.id.clone()).collect();
        let sandboxes = all.into_iter();
        let sandboxes = sandboxes.filter_map(|observed| self.without_member(observed));
        let sandboxes = sandboxes.collect();
        let compared = self.inner.pools.compare(&seen, at);
        Sorted {
            sandboxes,
            seen,
            unseen_claims: compared.unseen_claims,
            has_found: compared.has_found,
        }
    }

    /// What the runtime reports, unless it is of a member without a client.
    pub(in crate::sandbox) fn without_member(&self, observed: Observed) -> Option<Observed> {
        let (pools, registry) = (&self.inner.pools, &self.inner.registry);
        let id = &observed.origin.id;
        let is_known = registry.get(id).is_some() || registry.was_removed(id);
        let is_plain = observed.origin.pool.is_none() || (is_known && !pools.contains(id));
        match is_plain {
            true => Some(observed),
            false => pools.see(observed),
        }
    }

    /// Ends claimed sandboxes that were gone when the server started.
    pub(in crate::sandbox) async fn end_claimed(&self, gone: Vec<(SandboxId, ClaimRecord)>) {
        for (id, claim) in gone {
            let registry = &self.inner.registry;
            if registry.get(&id).is_some() || registry.was_removed(&id) {
                continue;
            }
            let entry = HistoryEntry {
                id,
                image: String::new(),
                created_at: claim.created_at(),
                ended_at: now(),
                outcome: Outcome::Vanished,
                reason: "GONE_AT_START".to_owned(),
                message: "It was gone when the server started.".to_owned(),
                stages: Vec::new(),
                tenant: claim.tenant().map(str::to_owned),
                spec: EndedSpec::default(),
            };
            self.keep_history(entry).await;
        }
    }
}

//! What the runtime reports of members.

use std::collections::HashSet;

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{Observed, Phase};
use osb_store::MemberState;
use tracing::warn;

use super::{Pools, member::Member};
use crate::sandbox::pools::record::ClaimRecord;

/// How the members differ from a full list of the runtime.
#[derive(Debug, Default)]
pub(in crate::sandbox::pools) struct Compared {
    /// Claimed ones that the list lacks.
    pub(in crate::sandbox::pools) unseen_claims: Vec<(SandboxId, ClaimRecord)>,
    /// Whether the list has one of an earlier process: it is a list of the same runtime.
    pub(in crate::sandbox::pools) has_found: bool,
}

impl Pools {
    /// What the runtime reports of a sandbox of a pool. Returns it as its client's if it has one. One
    /// that the store does not know is asked whether it waits.
    pub(in crate::sandbox) fn see(&self, mut observed: Observed) -> Option<Observed> {
        let mut state = self.locked();
        let Some(member) = state.members.get_mut(&observed.origin.id) else {
            if !state.gone.contains(&observed.origin.id) {
                warn!(sandbox = %observed.origin.id, "the store does not know this sandbox of a pool");
                let member = Member::orphan(observed);
                state.members.insert(member.row.id.clone(), member);
                self.changed.notify_one();
            }
            return None;
        };
        member.is_missing = false;
        if member.row.state == MemberState::Claimed {
            match member.row.claim.as_deref().and_then(ClaimRecord::read) {
                Some(claim) => observed.origin = claim.origin(&observed.origin),
                None => warn!(sandbox = %observed.origin.id, "its claim cannot be read"),
            }
            return Some(observed);
        }
        if member.row.state == MemberState::Ready {
            let has_ended = matches!(observed.status.phase, Phase::Exited(_) | Phase::Created)
                || observed.status.lost.is_some();
            // One that is not asked yet may be a client's.
            let is_useless = has_ended && member.is_verified;
            let id = observed.origin.id.clone();
            member.observed = Some(observed);
            if is_useless {
                warn!(sandbox = %id, "a sandbox has ended while it waited in its pool");
                member.row.state = MemberState::Draining;
            }
            self.changed.notify_one();
        }
        None
    }

    /// Handles the end of a member's container. Returns whether it was that of one without a client.
    pub(in crate::sandbox) fn lose(&self, id: &SandboxId) -> bool {
        let mut state = self.locked();
        let Some(member) = state.members.get_mut(id) else {
            return false;
        };
        match member.row.state {
            MemberState::Claimed => return false,
            // Its task, or its create, finds out.
            MemberState::Warming | MemberState::Draining => {}
            // It is asked first: it may be a client's.
            MemberState::Ready if !member.is_verified => {}
            MemberState::Ready => {
                warn!(sandbox = %id, "a sandbox has ended while it waited in its pool");
                member.row.state = MemberState::Draining;
                self.changed.notify_one();
            }
        }
        true
    }

    /// Handles that a container was frozen or thawed: a frozen member goes to no client.
    pub(in crate::sandbox) fn freeze(&self, id: &SandboxId, is_frozen: bool, at: WireTime) {
        let mut state = self.locked();
        let member = state.members.get_mut(id);
        if let Some(observed) = member.and_then(|member| member.observed.as_mut()) {
            let phase = match is_frozen {
                true => Phase::Paused,
                false => Phase::Running,
            };
            (observed.status.phase, observed.status.since) = (phase, at);
            drop(state);
            self.changed.notify_one();
            self.arrived.notify_waiters();
        }
    }

    /// Compares with a full list of the runtime as of `at`.
    pub(in crate::sandbox::pools) fn compare(
        &self,
        seen: &HashSet<SandboxId>,
        at: WireTime,
    ) -> Compared {
        let mut state = self.locked();
        let mut compared = Compared::default();
        for member in state.members.values_mut() {
            if seen.contains(&member.row.id) {
                compared.has_found |= member.is_left && !member.is_orphan;
                continue;
            }
            let since = member
                .observed
                .as_ref()
                .map(|observed| observed.status.since);
            match member.row.state {
                MemberState::Claimed => {
                    // One of this process may have started after the list was taken.
                    member.is_missing = member.is_left;
                    let claim = member.row.claim.as_deref().and_then(ClaimRecord::read);
                    let claim = claim.map(|claim| (member.row.id.clone(), claim));
                    compared.unseen_claims.extend(claim);
                }
                // One that started after the list was taken is not in it.
                MemberState::Ready if !member.is_busy && since.is_none_or(|since| since < at) => {
                    warn!(sandbox = %member.row.id, "a sandbox that waited in its pool is gone");
                    member.row.state = MemberState::Draining;
                }
                _ => {}
            }
        }
        self.changed.notify_one();
        compared
    }
}

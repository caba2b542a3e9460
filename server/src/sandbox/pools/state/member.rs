//! A sandbox of a pool, as this process knows it.

use osb_runtime::{Observed, Phase};
use osb_store::{MemberState, PoolMemberRow};

use super::Key;

/// A sandbox of a pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) row: PoolMemberRow,
    /// What the runtime has last reported.
    pub(super) observed: Option<Observed>,
    /// A task or a create has it.
    pub(super) is_busy: bool,
    /// Whether it is known to wait for a claim. A member of an earlier process is asked first.
    pub(super) is_verified: bool,
    /// Whether only the runtime knows it.
    pub(super) is_orphan: bool,
    /// Whether an earlier process has started it.
    pub(super) is_left: bool,
    /// Whether it was started with other settings, or from what is not the template of its pool, or its
    /// start or removal was interrupted. It is asked whether it waits, and then removed.
    pub(super) is_outdated: bool,
    /// Whether it is claimed and the runtime does not have it.
    pub(super) is_missing: bool,
}

impl Member {
    /// One that this process starts.
    pub(super) fn new(row: PoolMemberRow) -> Self {
        Self {
            row,
            observed: None,
            is_busy: false,
            is_verified: true,
            is_orphan: false,
            is_left: false,
            is_outdated: false,
            is_missing: false,
        }
    }

    /// One that an earlier process has started.
    pub(super) fn left(row: PoolMemberRow, is_outdated: bool) -> Self {
        Self {
            is_verified: false,
            is_left: true,
            is_outdated,
            ..Self::new(row)
        }
    }

    pub(super) fn orphan(observed: Observed) -> Self {
        let origin = &observed.origin;
        let row = PoolMemberRow {
            id: origin.id.clone(),
            tenant: origin.tenant.as_deref().map(str::to_owned),
            pool: origin.pool.as_deref().unwrap_or_default().to_owned(),
            revision: String::new(),
            settings: String::new(),
            state: MemberState::Ready,
            claim: None,
            created_at: origin.created_at,
            changed_at: origin.created_at,
        };
        Self {
            observed: Some(observed),
            is_orphan: true,
            ..Self::left(row, false)
        }
    }

    pub(super) fn key(&self) -> Key {
        (self.row.tenant.clone(), self.row.pool.clone())
    }

    pub(super) fn is_of(&self, (tenant, name): &Key) -> bool {
        self.row.tenant == *tenant && self.row.pool == *name
    }

    /// Whether it waits in its pool, and no task or create has it.
    pub(super) fn is_idle(&self) -> bool {
        self.row.state == MemberState::Ready
            && self.is_verified
            && !self.is_busy
            && !self.is_outdated
            && self.observed.is_some()
    }

    /// Whether a create may take it.
    pub(super) fn is_free(&self) -> bool {
        let observed = self.observed.as_ref();
        self.is_idle() && observed.is_some_and(|it| it.status.phase == Phase::Running)
    }
}

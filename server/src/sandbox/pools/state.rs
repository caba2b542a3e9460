//! The pools of this process: the rows of the store, and what the runtime reports of their members.
//!
//! Only this process changes the rows, so memory and store differ only while a change is under way.
//! What memory says is a hint about which member to take; the change in the store decides.

mod handles;
mod member;
mod reports;
mod schedule;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::Observed;
use osb_store::{MemberState, PoolMemberRow, PoolRow};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};
use tracing::info;

use self::{handles::WaitGuard, member::Member};
use super::{failure::PoolFailure, record::ClaimRecord, template};

pub(super) use {handles::Taken, schedule::Work};

/// Tenant and name of a pool.
pub type Key = (Option<String>, String);

/// Members that are gone and are remembered: more than can go while a list is on its way.
const GONE: usize = 4096;

/// The pools of this process.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct Pools {
    state: Mutex<State>,
    /// Digest of the settings of this server: members that were started with others go to no client.
    pub(super) settings: String,
    /// Held while a pool is added, changed or removed in the store and then here, so that both have the
    /// changes in the same order.
    pub(super) edits: tokio::sync::Mutex<()>,
    /// Something may have to be started or removed.
    pub(super) changed: Notify,
    /// Something may be ready.
    pub(super) arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    pools: BTreeMap<Key, Pool>,
    members: HashMap<SandboxId, Member>,
    /// Those that went last, oldest first.
    gone: VecDeque<SandboxId>,
    /// Which pool has got the latest start: of those without and of those with a create that waits.
    turns: [Option<Key>; 2],
}

#[derive(Debug)]
struct Pool {
    row: PoolRow,
    /// Creates that wait for a member.
    waiting: u32,
    /// Rounds of starts that failed since the last start that did not.
    failures: u32,
    /// When the latest of these rounds was counted.
    failed_at: Option<Instant>,
    /// No start before this.
    paused_until: Option<Instant>,
    /// The latest start that failed with this template.
    last_failure: Option<PoolFailure>,
}

/// A pool as it is now.
pub(super) struct PoolNow {
    pub(super) row: PoolRow,
    pub(super) counts: PoolCounts,
    /// Whether the latest start has failed.
    pub(super) is_failing: bool,
    pub(super) last_failure: Option<PoolFailure>,
}

/// How many sandboxes a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Being started.
    pub warming: u32,
    /// Waiting.
    pub ready: u32,
    /// Claimed.
    pub claimed: u32,
    /// Being removed.
    pub draining: u32,
}

impl PoolCounts {
    /// All that count for the capacity: those that are being removed do not.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.warming + self.ready + self.claimed
    }
}

impl Pools {
    /// With what an earlier process left. Members that it started with other settings, or for what is
    /// not a pool with this template any more, go to no client.
    pub(in crate::sandbox) fn new(
        pools: Vec<PoolRow>,
        members: Vec<PoolMemberRow>,
        settings: &str,
    ) -> Self {
        let this = Self {
            settings: settings.to_owned(),
            ..Self::default()
        };
        {
            let mut state = this.locked();
            for row in pools {
                state.put_pool(row);
            }
            for mut row in members {
                // Its start or its removal was interrupted; or the store is an old one, and it may be a
                // client's by now.
                let was_interrupted =
                    matches!(row.state, MemberState::Warming | MemberState::Draining);
                let is_outdated = row.settings != settings || !state.has_pool_of(&row);
                if is_outdated && row.state == MemberState::Ready {
                    info!(sandbox = %row.id, pool = row.pool, "a sandbox that waits is out of date");
                }
                if was_interrupted {
                    row.state = MemberState::Ready;
                }
                let member = Member::left(row, is_outdated || was_interrupted);
                state.members.insert(member.row.id.clone(), member);
            }
        }
        this
    }

    /// Has the refill look whether something is to be done.
    pub(in crate::sandbox) fn wake(&self) {
        self.changed.notify_one();
    }

    pub(super) fn put_pool(&self, row: PoolRow) {
        self.locked().put_pool(row);
        self.changed.notify_one();
    }

    /// Forgets a pool. What waits in it drains.
    pub(super) fn remove_pool(&self, key: &Key) {
        let mut state = self.locked();
        state.pools.remove(key);
        state.drain_outdated(key, None);
        drop(state);
        self.changed.notify_one();
        self.arrived.notify_waiters();
    }

    pub(super) fn pool(&self, key: &Key) -> Option<PoolRow> {
        self.locked().pools.get(key).map(|pool| pool.row.clone())
    }

    /// The pools of a tenant, by name.
    pub(super) fn of_tenant(&self, tenant: Option<&str>) -> Vec<PoolRow> {
        let state = self.locked();
        let rows = state.pools.values().map(|pool| &pool.row);
        let rows = rows.filter(|row| row.tenant.as_deref() == tenant);
        rows.cloned().collect()
    }

    /// A pool as it is now.
    pub(super) fn now(&self, key: &Key) -> Option<PoolNow> {
        self.locked().now(key)
    }

    /// The pools of a tenant as they are now, by name.
    pub(super) fn now_of_tenant(&self, tenant: Option<&str>) -> Vec<PoolNow> {
        let state = self.locked();
        let keys = state.pools.keys();
        let keys = keys.filter(|(owner, _)| owner.as_deref() == tenant);
        keys.filter_map(|key| state.now(key)).collect()
    }

    pub(super) fn counts(&self, key: &Key) -> PoolCounts {
        self.locked().counts(key)
    }

    /// The images of all pools, as their templates name them.
    pub(in crate::sandbox) fn images(&self) -> Vec<String> {
        let templates: Vec<String> = {
            let state = self.locked();
            let pools = state.pools.values();
            pools.map(|pool| pool.row.template.clone()).collect()
        };
        let templates = templates.iter();
        let templates = templates.filter_map(|it| serde_json::from_str::<Value>(it).ok());
        templates.filter_map(|it| template::image(&it)).collect()
    }

    /// The counts of all pools.
    pub(super) fn all_counts(&self) -> Vec<(Key, PoolCounts)> {
        let state = self.locked();
        let keys = state.pools.keys();
        keys.map(|key| (key.clone(), state.counts(key))).collect()
    }

    /// Adds a member that a task is about to start.
    pub(super) fn add(&self, row: PoolMemberRow) {
        let mut member = Member::new(row);
        member.is_busy = true;
        self.locked().members.insert(member.row.id.clone(), member);
    }

    /// A member waits for a claim.
    pub(super) fn set_ready(&self, observed: Observed, at: WireTime) {
        let mut state = self.locked();
        if let Some(member) = state.members.get_mut(&observed.origin.id) {
            member.is_busy = false;
            member.is_verified = true;
            // Its pool may be gone by now.
            if member.row.state == MemberState::Warming {
                member.row.state = MemberState::Ready;
            }
            member.row.changed_at = at;
            let key = member.key();
            member.observed = Some(observed);
            if let Some(pool) = state.pools.get_mut(&key) {
                pool.failures = 0;
                pool.failed_at = None;
                pool.paused_until = None;
            }
        }
        drop(state);
        self.changed.notify_one();
        self.arrived.notify_waiters();
    }

    /// A member of an earlier process waits for a claim. If it is to go to no client, it drains: nothing
    /// has run in it.
    pub(super) fn set_verified(&self, id: &SandboxId) {
        if let Some(member) = self.locked().members.get_mut(id) {
            member.is_busy = false;
            member.is_verified = true;
            if member.is_orphan || member.is_outdated {
                member.row.state = MemberState::Draining;
            }
        }
        // It may be one more than its pool is to have.
        self.changed.notify_one();
        self.arrived.notify_waiters();
    }

    /// No task has a member any more.
    pub(super) fn release(&self, id: &SandboxId) {
        if let Some(member) = self.locked().members.get_mut(id) {
            member.is_busy = false;
        }
    }

    /// A member is to be removed. It is not busy any more.
    pub(super) fn drain(&self, id: &SandboxId) {
        if let Some(member) = self.locked().members.get_mut(id) {
            member.is_busy = false;
            member.row.state = MemberState::Draining;
        }
        self.changed.notify_one();
    }

    /// A member is a client's: returns what the runtime knows of it.
    pub(super) fn set_claimed(&self, id: &SandboxId, claim: String) -> Option<Observed> {
        let mut state = self.locked();
        let member = state.members.get_mut(id)?;
        member.row.state = MemberState::Claimed;
        member.row.claim = Some(claim);
        let observed = member.observed.take();
        drop(state);
        // The next start would slow down this claim: it begins when the create gives the member up.
        // It may have been the last that the pool may have.
        self.arrived.notify_waiters();
        observed
    }

    /// Forgets a member that is gone.
    pub(in crate::sandbox) fn forget(&self, id: &SandboxId) {
        let mut state = self.locked();
        if state.members.remove(id).is_none() {
            return;
        }
        if state.gone.len() == GONE {
            state.gone.pop_front();
        }
        state.gone.push_back(id.clone());
        drop(state);
        self.changed.notify_one();
    }

    /// The claim of a sandbox, if it is one of a pool that was claimed.
    pub(super) fn claim_of(&self, id: &SandboxId) -> Option<ClaimRecord> {
        let state = self.locked();
        let row = &state.members.get(id)?.row;
        let claim = row
            .claim
            .as_ref()
            .filter(|_| row.state == MemberState::Claimed)?;
        ClaimRecord::read(claim)
    }

    /// Takes the member of a pool that has waited longest.
    pub(super) fn take(self: &Arc<Self>, key: &Key) -> Option<(Taken, Observed)> {
        let mut state = self.locked();
        let waiting = state
            .members
            .values()
            .filter(|it| it.is_of(key) && it.is_free());
        let oldest = waiting.min_by_key(|member| (member.row.created_at, member.row.id.clone()));
        let id = oldest?.row.id.clone();
        let member = state.members.get_mut(&id)?;
        let observed = member.observed.clone()?;
        member.is_busy = true;
        let taken = Taken {
            pools: Arc::clone(self),
            id,
            is_committed: AtomicBool::new(false),
        };
        Some((taken, observed))
    }

    /// Whether a create may wait for a member of a pool: one is being started, or may be.
    pub(super) fn may_get_one(&self, key: &Key) -> bool {
        let state = self.locked();
        let counts = state.counts(key);
        let most = state
            .pools
            .get(key)
            .map_or(0, |it| it.row.capacity.pool_max);
        counts.warming + counts.ready > 0 || counts.total() < most
    }

    /// Counts a create that waits for a member, until the guard is dropped.
    pub(super) fn wait_for(self: &Arc<Self>, key: &Key) -> WaitGuard {
        if let Some(pool) = self.locked().pools.get_mut(key) {
            pool.waiting += 1;
        }
        self.changed.notify_one();
        WaitGuard {
            pools: Arc::clone(self),
            key: key.clone(),
        }
    }

    /// Whether a sandbox is a member.
    pub(super) fn contains(&self, id: &SandboxId) -> bool {
        self.locked().members.contains_key(id)
    }

    /// Whether only the runtime knows a member.
    pub(super) fn is_orphan(&self, id: &SandboxId) -> bool {
        let state = self.locked();
        state.members.get(id).is_some_and(|member| member.is_orphan)
    }

    /// Whether a sandbox is a member without a client.
    pub(in crate::sandbox) fn is_unclaimed(&self, id: &SandboxId) -> bool {
        let state = self.locked();
        let member = state.members.get(id);
        member.is_some_and(|member| member.row.state != MemberState::Claimed)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // The maps are whole after every operation, so a panic elsewhere does not spoil them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put_pool(&mut self, row: PoolRow) {
        let key = (row.tenant.clone(), row.name.clone());
        self.drain_outdated(&key, Some(&row.revision));
        let known = self.pools.get(&key);
        let waiting = known.map_or(0, |pool| pool.waiting);
        let of_template = known.filter(|pool| pool.row.revision == row.revision);
        let last_failure = of_template.and_then(|pool| pool.last_failure.clone());
        let pool = Pool {
            row,
            waiting,
            failures: 0,
            failed_at: None,
            paused_until: None,
            last_failure,
        };
        self.pools.insert(key, pool);
    }

    /// Whether the pool of a member has the template that the member was made from.
    fn has_pool_of(&self, row: &PoolMemberRow) -> bool {
        let key = (row.tenant.clone(), row.pool.clone());
        let pool = self.pools.get(&key);
        pool.is_some_and(|pool| pool.row.revision == row.revision)
    }

    /// Marks those that wait in a pool, or are being started, and have another revision. One of an
    /// earlier process is asked before it is removed.
    fn drain_outdated(&mut self, key: &Key, revision: Option<&str>) {
        for member in self.members.values_mut().filter(|member| member.is_of(key)) {
            let is_unclaimed =
                matches!(member.row.state, MemberState::Warming | MemberState::Ready);
            if !is_unclaimed || Some(member.row.revision.as_str()) == revision {
                continue;
            }
            match member.is_verified {
                true => member.row.state = MemberState::Draining,
                false => member.is_outdated = true,
            }
        }
    }

    fn now(&self, key: &Key) -> Option<PoolNow> {
        let pool = self.pools.get(key)?;
        Some(PoolNow {
            row: pool.row.clone(),
            counts: self.counts(key),
            is_failing: pool.failures > 0,
            last_failure: pool.last_failure.clone(),
        })
    }

    fn counts(&self, key: &Key) -> PoolCounts {
        let mut counts = PoolCounts::default();
        let members = self.members.values();
        for member in members.filter(|it| it.is_of(key) && !it.is_orphan) {
            match member.row.state {
                MemberState::Warming => counts.warming += 1,
                MemberState::Ready if member.is_outdated => counts.draining += 1,
                MemberState::Ready => counts.ready += 1,
                MemberState::Claimed if member.is_missing => {}
                MemberState::Claimed => counts.claimed += 1,
                MemberState::Draining => counts.draining += 1,
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests;

//! What a create holds of a pool.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use osb_protocol::SandboxId;
use osb_runtime::Prepared;
use osb_store::MemberState;

use super::{Key, Pools};

/// A member that a create has, until dropped.
#[derive(Debug)]
pub(in crate::sandbox::pools) struct Taken {
    pub(super) pools: Arc<Pools>,
    pub(super) id: SandboxId,
    pub(super) is_committed: AtomicBool,
}

impl Prepared for Taken {
    fn commit(&self) {
        self.is_committed.store(true, Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.pools.locked();
        if let Some(member) = state.members.get_mut(&self.id) {
            member.is_busy = false;
            // Something knows its id, but it was not claimed: no other create may have it.
            if self.is_committed.load(Relaxed) && member.row.state == MemberState::Ready {
                member.row.state = MemberState::Draining;
            }
        }
        drop(state);
        self.pools.changed.notify_one();
        self.pools.arrived.notify_waiters();
    }
}

/// A create that waits for a member, until dropped.
#[derive(Debug)]
pub(in crate::sandbox::pools) struct WaitGuard {
    pub(super) pools: Arc<Pools>,
    pub(super) key: Key,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let Some(pool) = self.pools.locked().pools.get_mut(&self.key) {
            pool.waiting = pool.waiting.saturating_sub(1);
        }
    }
}

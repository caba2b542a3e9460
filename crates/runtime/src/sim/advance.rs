//! Sandboxes that are begun before a create asks for them.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use osb_protocol::SandboxId;

use super::SimRuntime;
use crate::{CreateSpec, Prepared, WarmSidecars, new_id, new_token};

/// How many wait for a create.
const WANTED: usize = 2;

/// The ids of sandboxes that wait for a create, the next one first.
#[derive(Debug, Default)]
pub(super) struct Advance(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<SandboxId>,
    hits: u64,
}

/// One that a create has, until dropped.
#[derive(Debug)]
struct Taken {
    advance: Arc<Advance>,
    id: SandboxId,
    is_committed: AtomicBool,
}

impl Prepared for Taken {
    fn commit(&self) {
        self.is_committed.store(true, Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_committed.load(Relaxed) {
            self.advance.locked().waiting.insert(0, self.id.clone());
        }
    }
}

impl Advance {
    fn locked(&self) -> MutexGuard<'_, State> {
        // The values are whole after every operation, so a panic elsewhere does not spoil them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filled(&self) -> MutexGuard<'_, State> {
        let mut state = self.locked();
        while state.waiting.len() < WANTED {
            state.waiting.push(new_id());
        }
        state
    }

    fn take(self: &Arc<Self>) -> Taken {
        let mut state = self.filled();
        state.hits += 1;
        Taken {
            advance: Arc::clone(self),
            id: state.waiting.remove(0),
            is_committed: AtomicBool::new(false),
        }
    }
}

impl SimRuntime {
    /// The id of the sandbox that the next create with a network policy gets.
    #[must_use]
    pub fn next_prepared(&self) -> SandboxId {
        self.advance.filled().waiting[0].clone()
    }

    pub(super) fn take_prepared(&self, spec: &mut CreateSpec) {
        if self.options.warm && spec.network_policy.is_some() {
            let taken = self.advance.take();
            spec.origin.id = taken.id.clone();
            spec.origin.egress_token = Some(new_token());
            spec.prepared = Some(Arc::new(taken));
        }
    }

    pub(super) fn count_prepared(&self) -> Option<WarmSidecars> {
        self.options.warm.then(|| WarmSidecars {
            wanted: WANTED,
            waiting: WANTED,
            hits: self.advance.locked().hits,
            ..WarmSidecars::default()
        })
    }
}

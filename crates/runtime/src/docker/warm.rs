//! Warm sidecars: started before a create needs them, so that it does not wait for one.
//!
//! ```text
//!  refill ─▶ start, with the id of a sandbox to be ─▶ it refuses everything ─▶ waits here
//!  create ─▶ takes one, and so its id and token ─▶ claims it with its policy ─▶ the main container joins
//! ```
//!
//! A container's labels cannot change. A warm sidecar therefore has the id of the sandbox to be from
//! its start, and the create that takes it gets this id: what finds the containers of a sandbox by
//! their labels finds a claimed sidecar like any other. One that waits is a sidecar without a main
//! container. Only this process keeps it from being removed as left behind, so a crash leaves nothing
//! that lasts (docs/adr/0010-warm-sidecars.md).

mod claim;
#[cfg(test)]
mod fake_host;
mod refill;
mod shape;

pub(super) use self::refill::start;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use bollard::models::ContainerCreateBody;
use osb_protocol::SandboxId;
use secrecy::SecretString;
use tokio::sync::Notify;
use tracing::warn;

use self::shape::Shape;
use super::{DockerConfig, DockerRuntime};
use crate::{CreateSpec, Ports, Prepared, WarmSidecars};

/// Longest policy of a sandbox that gets a warm sidecar, in bytes. It is a label of the main container,
/// and every list of the engine has all labels.
const LONGEST_POLICY: usize = 16 << 10;

/// The warm sidecars of this process.
#[derive(Debug)]
pub(super) struct Warm {
    wanted: usize,
    state: Mutex<State>,
    /// Something may be missing.
    changed: Notify,
    hits: AtomicU64,
    misses: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// They wait for a create, the oldest first.
    waiting: VecDeque<WarmSidecar>,
    /// A create has each of these, but has not begun to make its containers.
    taken: HashMap<SandboxId, WarmSidecar>,
    /// How many creates may still give theirs back.
    undecided: usize,
    /// They are being started or removed.
    under_way: HashSet<SandboxId>,
    /// Starts that failed, and sidecars that ended while they waited, since a create took one.
    trouble: u32,
}

/// A sidecar that enforces, and waits for the sandbox that claims it.
#[derive(Debug)]
pub(super) struct WarmSidecar {
    /// Id of the sandbox to be.
    id: SandboxId,
    /// Token of its API.
    token: SecretString,
    /// Its container.
    container: String,
    /// Address of its API, as this process reaches it.
    api: SocketAddr,
    /// Ports of the sandbox to be, which it publishes.
    ports: Ports,
    shape: Shape,
    /// Whether its container has ended while a create had it.
    has_ended: bool,
}

impl WarmSidecar {
    /// Its container.
    pub(super) fn container(&self) -> &str {
        &self.container
    }

    /// Ports of the host that lead to the sandbox.
    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    /// Whether the sandbox whose sidecar has this create request can have it instead.
    pub(super) fn fits(&self, body: &ContainerCreateBody) -> bool {
        self.shape == Shape::of(body)
    }
}

/// What a create with a network policy got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A warm sidecar.
    Hit,
    /// None waited, or none that fits.
    Miss,
    /// One that did not work any more.
    Failure,
}

impl Warm {
    /// Without any. There are none where there are no network policies.
    pub(super) fn new(config: &DockerConfig) -> Self {
        let egress = config.egress.as_ref().filter(|_| config.has_filter());
        Self {
            wanted: egress.map_or(0, |egress| egress.warm),
            state: Mutex::default(),
            changed: Notify::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Whether a container with this id belongs to a sandbox to be, and must stay.
    pub(super) fn owns(&self, id: &SandboxId) -> bool {
        let state = self.locked();
        let mut waiting = state.waiting.iter();
        state.taken.contains_key(id)
            || state.under_way.contains(id)
            || waiting.any(|sidecar| sidecar.id == *id)
    }

    /// The warm sidecar that the create of this sandbox has taken. It belongs to the create from now on.
    pub(super) fn hand_over(&self, id: &SandboxId) -> Option<WarmSidecar> {
        self.locked().taken.remove(id)
    }

    /// Forgets one whose container has ended while it waited. Returns whether there was one. One that a
    /// create has by now never waits again.
    pub(super) fn lose(&self, id: &SandboxId) -> bool {
        let mut state = self.locked();
        if let Some(taken) = state.taken.get_mut(id) {
            taken.has_ended = true;
        }
        let before = state.waiting.len();
        state.waiting.retain(|sidecar| sidecar.id != *id);
        let is_lost = state.waiting.len() < before;
        drop(state);
        if is_lost {
            warn!(sandbox = %id, "a warm sidecar has ended");
            self.note_trouble();
            self.wake();
        }
        is_lost
    }

    /// Ids of those that wait, or may wait again.
    pub(super) fn unclaimed(&self) -> Vec<SandboxId> {
        let state = self.locked();
        let waiting = state.waiting.iter().map(|it| &it.id);
        waiting.chain(state.taken.keys()).cloned().collect()
    }

    /// Has the refill look whether something is missing, as when a create is over.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Counts a create with a network policy.
    pub(super) fn note(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Hit => &self.hits,
            Outcome::Miss => &self.misses,
            Outcome::Failure => &self.failures,
        };
        count.fetch_add(1, Relaxed);
    }

    /// `None` if none are wanted.
    pub(super) fn read(&self) -> Option<WarmSidecars> {
        (self.wanted > 0).then(|| WarmSidecars {
            wanted: self.wanted,
            waiting: self.locked().waiting.len(),
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            failures: self.failures.load(Relaxed),
        })
    }

    /// Takes the one that has waited longest: its id and its token.
    fn take(self: &Arc<Self>) -> Option<(Taken, SecretString)> {
        let mut state = self.locked();
        let sidecar = state.waiting.pop_front()?;
        state.trouble = 0;
        state.undecided += 1;
        let (id, token) = (sidecar.id.clone(), sidecar.token.clone());
        state.taken.insert(id.clone(), sidecar);
        let taken = Taken {
            warm: Arc::clone(self),
            id,
            is_committed: AtomicBool::new(false),
        };
        Some((taken, token))
    }

    fn note_trouble(&self) {
        let mut state = self.locked();
        state.trouble = state.trouble.saturating_add(1);
    }

    /// How often there was trouble, if it was.
    fn trouble(&self) -> Option<u32> {
        Some(self.locked().trouble).filter(|times| *times > 0)
    }

    /// Whether fewer wait, or may come back, than are wanted.
    fn is_short(&self) -> bool {
        let state = self.locked();
        state.waiting.len() + state.undecided < self.wanted
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // The collections are whole after every operation, so a panic elsewhere does not spoil them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A warm sidecar that a create has, until dropped.
#[derive(Debug)]
struct Taken {
    warm: Arc<Warm>,
    id: SandboxId,
    is_committed: AtomicBool,
}

impl Prepared for Taken {
    fn commit(&self) {
        if !self.is_committed.swap(true, Relaxed) {
            self.warm.locked().undecided -= 1;
            self.warm.wake();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.warm.locked();
        // The create may have it by now.
        let unused = state.taken.remove(&self.id);
        if !self.is_committed.load(Relaxed) {
            state.undecided -= 1;
            // The next create may have its id. Otherwise it is left behind, for the sweep.
            if let Some(sidecar) = unused.filter(|it| !it.has_ended) {
                state.waiting.push_front(sidecar);
            }
        }
        drop(state);
        self.warm.wake();
    }
}

impl DockerRuntime {
    /// Gives a create a warm sidecar, if one waits that may fit: the sandbox then has the sidecar's id
    /// and token.
    ///
    /// The variables of a request are settings of its sidecar alone, and secure access leaves no ports
    /// to publish. Whatever else differs shows when the create compares the whole of what it would have
    /// sent to the engine.
    pub(super) fn take_warm(&self, spec: &mut CreateSpec) {
        let is_usual = spec.network_policy.as_ref().is_some_and(|policy| {
            policy.variables.is_empty() && policy.rules.len() <= LONGEST_POLICY
        });
        if !is_usual || spec.origin.secure_access.is_some() {
            return;
        }
        if let Some((taken, token)) = self.warm.take() {
            spec.origin.id = taken.id.clone();
            spec.origin.egress_token = Some(token);
            spec.prepared = Some(Arc::new(taken));
        }
    }
}

#[cfg(test)]
mod tests;

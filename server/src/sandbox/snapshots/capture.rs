//! Takes snapshots (contract: lifecycle §9.3).

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use osb_protocol::{SandboxId, lifecycle::SnapshotState};
use osb_runtime::{RuntimeError, StoredSnapshot};
use osb_service::ErrorChain;
use osb_store::{SnapshotChange, SnapshotRow};
use tokio::sync::Semaphore;
use tracing::{Instrument, info, warn};

use super::transition;
use crate::{
    sandbox::{Error, Service, SnapshotError, explain},
    trace,
};

/// Captures at once, of one tenant only one of them. Others wait in the order of their acceptance.
const PLACES: usize = 2;
/// Captures of one sandbox that are accepted and not over, at most.
const MOST_OF_ONE: usize = 4;

const READY: (&str, &str) = ("snapshot_runtime_ready", "Snapshot is ready.");
const FAILED: &str = "snapshot_runtime_failed";
const TIMED_OUT: &str = "snapshot_runtime_timeout";
/// What the texts of failures say that are time limits (contract: lifecycle §9.3).
const TIMED_OUT_WORDS: &str = "timed out";

/// The captures of this process.
#[derive(Debug)]
pub(in crate::sandbox) struct Captures {
    places: Semaphore,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// Snapshots that a task works at, or will.
    snapshots: HashSet<String>,
    /// The sandboxes that they are taken of.
    sources: HashMap<SandboxId, Queue>,
    /// The tenants of these sandboxes.
    tenants: HashMap<String, Queue>,
}

/// Captures of one sandbox, or of one tenant.
#[derive(Debug, Default)]
struct Queue {
    captures: usize,
    /// They take turns, and each waits for its turn before it takes a place, which others could use.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Queue {
    /// Notes one more capture.
    fn enter(&mut self) -> Arc<tokio::sync::Mutex<()>> {
        self.captures += 1;
        Arc::clone(&self.turn)
    }

    /// Notes the end of one. Returns whether it was the last.
    fn leave(&mut self) -> bool {
        self.captures -= 1;
        self.captures == 0
    }
}

impl Default for Captures {
    fn default() -> Self {
        Self {
            places: Semaphore::new(PLACES),
            under_way: Mutex::default(),
        }
    }
}

impl Captures {
    /// Whether a task of this process works at a snapshot.
    pub(super) fn contains(&self, snapshot: &str) -> bool {
        self.locked().snapshots.contains(snapshot)
    }

    fn locked(&self) -> MutexGuard<'_, UnderWay> {
        // The collections are whole after every operation, so a panic elsewhere does not spoil them.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A capture under way, until dropped.
pub(super) struct Capture {
    all: Arc<Captures>,
    snapshot: String,
    sandbox: SandboxId,
    tenant: Option<String>,
    /// Of its sandbox, and of its tenant, in the order in which they are waited for.
    turns: Vec<Arc<tokio::sync::Mutex<()>>>,
}

impl Capture {
    /// Notes that a sandbox is captured.
    ///
    /// # Errors
    /// [`SnapshotError::SourceBusy`] when others of the sandbox wait already.
    pub(super) fn begin(service: &Service, row: &SnapshotRow) -> Result<Self, SnapshotError> {
        let all = Arc::clone(&service.inner.captures);
        let (snapshot, sandbox) = (row.id.clone(), row.sandbox_id.clone());
        let tenant = row.tenant.clone();
        let turns = {
            let mut under_way = all.locked();
            let source = under_way.sources.entry(sandbox.clone()).or_default();
            if source.captures >= MOST_OF_ONE {
                return Err(SnapshotError::SourceBusy {
                    id: sandbox,
                    captures: source.captures,
                });
            }
            let mut turns = vec![source.enter()];
            if let Some(tenant) = &tenant {
                let queue = under_way.tenants.entry(tenant.clone()).or_default();
                turns.push(queue.enter());
            }
            under_way.snapshots.insert(snapshot.clone());
            turns
        };
        Ok(Self {
            all,
            snapshot,
            sandbox,
            tenant,
            turns,
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let mut under_way = self.all.locked();
        under_way.snapshots.remove(&self.snapshot);
        let source = under_way.sources.get_mut(&self.sandbox);
        if source.is_some_and(Queue::leave) {
            under_way.sources.remove(&self.sandbox);
        }
        if let Some(tenant) = &self.tenant {
            let queue = under_way.tenants.get_mut(tenant);
            if queue.is_some_and(Queue::leave) {
                under_way.tenants.remove(tenant);
            }
        }
    }
}

impl Service {
    /// Starts the task that takes an accepted snapshot.
    pub(super) fn start_capture(&self, row: SnapshotRow, capture: Capture) {
        let service = self.clone();
        let span = trace::work("take a snapshot", &row.sandbox_id);
        let work = async move {
            service.capture(&row, &capture).await;
            drop(capture);
        };
        drop(self.inner.tasks.spawn("snapshot", work.instrument(span)));
    }

    /// Takes a snapshot and stores how that ended. One that waits when the server stops, or whose end is
    /// not known or cannot be stored, stays `Creating`, and is recovered.
    async fn capture(&self, row: &SnapshotRow, capture: &Capture) {
        let stopping = self.inner.tasks.stopping();
        let mut held = Vec::with_capacity(capture.turns.len());
        for turn in &capture.turns {
            held.push(tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                turn = turn.lock() => turn,
            });
        }
        let place = tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            place = self.inner.captures.places.acquire() => place,
        };
        let Ok(_place) = place else {
            return;
        };
        if let Err(lost) = self.require_hold("take a snapshot") {
            warn!(snapshot = row.id, error = %ErrorChain(&lost), "a snapshot is not taken");
            return;
        }
        let taken = self.run_capture(row).await;
        let may_go_on = match taken {
            // What is stored decides, when the runtime answers again.
            Err(Error::Runtime(error @ RuntimeError::Unavailable { .. })) => {
                warn!(
                    snapshot = row.id, error = %ErrorChain(&error),
                    "whether the snapshot was taken is not known; it will be recovered"
                );
                true
            }
            taken => {
                let timed_out = matches!(
                    taken,
                    Err(Error::Runtime(RuntimeError::CaptureTimedOut { .. }))
                );
                self.note_taken(row, taken).await;
                timed_out
            }
        };
        if may_go_on && let Ok(snapshots) = self.snapshots() {
            // It keeps its place and its turn as long as the sandbox is frozen.
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                () = snapshots.thawed(&row.sandbox_id) => {}
            }
        }
    }

    /// Stores how a capture ended.
    async fn note_taken(&self, row: &SnapshotRow, taken: Result<StoredSnapshot, Error>) {
        let change = match taken {
            Ok(stored) => SnapshotChange {
                image: Some(stored.image),
                size_bytes: stored.size_bytes,
                ..transition(SnapshotState::Ready, READY)
            },
            Err(error) => {
                warn!(
                    snapshot = row.id, sandbox = %row.sandbox_id, error = %ErrorChain(&error),
                    "the snapshot could not be taken"
                );
                let reason = reason_of(&error);
                let message = match &error {
                    Error::Runtime(error) => {
                        explain(error.to_string(), osb_runtime::Cause::of(error))
                    }
                    error => error.to_string(),
                };
                transition(SnapshotState::Failed, (reason, &message))
            }
        };
        if let Err(error) = self.end_capture(row, &change).await {
            warn!(
                snapshot = row.id, error = %ErrorChain(&error),
                "how a snapshot ended is not stored; it will be recovered"
            );
        }
    }

    async fn run_capture(&self, row: &SnapshotRow) -> Result<StoredSnapshot, Error> {
        let snapshots = self.snapshots()?;
        let capturing = trace::step("runtime: take a snapshot");
        let taken = snapshots.take(&row.sandbox_id, &row.id);
        Ok(taken.instrument(capturing).await?)
    }

    /// Stores how a capture ended. If the snapshot was deleted meanwhile, what was stored of it goes.
    async fn end_capture(&self, row: &SnapshotRow, change: &SnapshotChange) -> Result<(), Error> {
        let store = &self.inner.store;
        let id = &row.id;
        if store
            .change_snapshot(id, SnapshotState::Creating, change)
            .await?
        {
            info!(snapshot = id, state = %change.state, reason = change.reason, "snapshot taken");
            return Ok(());
        }
        match store.snapshot(id).await?.map(|row| row.state) {
            None => Ok(self.snapshots()?.remove(id).await?),
            Some(SnapshotState::Deleting) => self.remove_marked(id).await,
            // A newer state stays.
            Some(_) => Ok(()),
        }
    }
}

fn reason_of(error: &Error) -> &'static str {
    match error {
        Error::Runtime(RuntimeError::CaptureTimedOut { .. }) => TIMED_OUT,
        error if error.to_string().contains(TIMED_OUT_WORDS) => TIMED_OUT,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_have_a_reason_of_their_own() {
        let runtime = |error: RuntimeError| reason_of(&Error::Runtime(error));
        let failed = |reason: &str| RuntimeError::Capture {
            snapshot: "s".into(),
            reason: reason.into(),
        };
        let seconds = RuntimeError::CaptureTimedOut {
            snapshot: "s".into(),
            seconds: 1,
        };
        assert_eq!(runtime(seconds), "snapshot_runtime_timeout");
        let words = failed("context deadline: timed out");
        assert_eq!(runtime(words), "snapshot_runtime_timeout");
        assert_eq!(runtime(failed("no space left")), "snapshot_runtime_failed");
        assert_eq!(reason_of(&Error::ShuttingDown), "snapshot_runtime_failed");
    }
}

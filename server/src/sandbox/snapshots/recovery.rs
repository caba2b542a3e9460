//! Snapshots that a crash, a fault or a lost answer left half done (contract: lifecycle §9.4), and file
//! systems that no snapshot needs. Part of each round of the reconciler.

use std::time::Duration;

use osb_protocol::lifecycle::SnapshotState;
use osb_runtime::{RuntimeError, Snapshots, StoredSnapshot};
use osb_service::ErrorChain;
use osb_store::{SnapshotChange, SnapshotRow};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::transition;
use crate::sandbox::{Error, Service, SnapshotError, lifecycle::now};

/// Snapshots that are read at once.
const PAGE: u32 = 200;
/// How long after its start a capture is waited for that an earlier process began.
const GOES_ON_SECONDS: i64 = 3600;
/// How long a file system without a snapshot is kept, from its end and from when this process first saw it
/// without one: a capture whose answer was lost may still be running, and an operator who put an older
/// store back may put the newer one back.
const UNKNOWN_KEPT: Duration = Duration::from_secs(3600);

const READY: (&str, &str) = (
    "snapshot_recovery_ready",
    "Snapshot was stored before the server knew that it was ready.",
);
const MISSING_IMAGE: (&str, &str) = (
    "snapshot_recovery_missing_image",
    "The server was interrupted before the snapshot was stored.",
);
const NOT_SUPPORTED: (&str, &str) = (
    "snapshot_recovery_not_supported",
    "The runtime of the server has no snapshots.",
);
const INSPECT_FAILED: &str = "snapshot_recovery_inspect_failed";

fn recovered(stored: StoredSnapshot) -> SnapshotChange {
    SnapshotChange {
        image: Some(stored.image),
        size_bytes: stored.size_bytes,
        ..transition(SnapshotState::Ready, READY)
    }
}

impl Service {
    /// Completes the snapshots that no task works at, and removes file systems that no snapshot needs.
    pub(in crate::sandbox) async fn reconcile_snapshots(&self) {
        let mut after = String::new();
        loop {
            let page = match self.inner.store.open_snapshots(&after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    warn!(error = %ErrorChain(&error), "open snapshots cannot be read");
                    return;
                }
            };
            let Some(last) = page.last() else {
                break;
            };
            after.clone_from(&last.id);
            for row in page {
                if self.inner.captures.contains(&row.id) {
                    continue;
                }
                if let Err(error) = self.recover(&row).await {
                    warn!(
                        snapshot = row.id, state = %row.state, error = %ErrorChain(&error),
                        "the snapshot cannot be recovered yet, will retry"
                    );
                }
            }
        }
        if let Ok(snapshots) = self.snapshots()
            && let Err(error) = self.remove_unknown(snapshots).await
        {
            warn!(error = %ErrorChain(&error), "the stored snapshots cannot be checked");
        }
    }

    async fn recover(&self, row: &SnapshotRow) -> Result<(), Error> {
        match row.state {
            SnapshotState::Creating => self.recover_creating(row).await,
            SnapshotState::Deleting => self.recover_deleting(row).await,
            SnapshotState::Ready | SnapshotState::Failed => Ok(()),
        }
    }

    /// What is stored decides: a capture either was complete, or goes on, or there is nothing of it.
    async fn recover_creating(&self, row: &SnapshotRow) -> Result<(), Error> {
        let found = match self.snapshots() {
            Ok(snapshots) => snapshots.find(&row.id).await,
            Err(_) => {
                let change = transition(SnapshotState::Failed, NOT_SUPPORTED);
                return self.recovered(row, &change).await;
            }
        };
        let change = match found {
            Ok(Some(stored)) => recovered(stored),
            Ok(None) if self.may_go_on(row).await? => {
                debug!(
                    snapshot = row.id,
                    "its sandbox is frozen: it may still be taken"
                );
                return Ok(());
            }
            // It may have become complete since the first look.
            Ok(None) => match self.snapshots()?.find(&row.id).await? {
                Some(stored) => recovered(stored),
                None => transition(SnapshotState::Failed, MISSING_IMAGE),
            },
            // It may well be stored.
            Err(error) if error.retryable() => return Err(error.into()),
            Err(error) => transition(SnapshotState::Failed, (INSPECT_FAILED, &error.to_string())),
        };
        self.recovered(row, &change).await
    }

    /// Whether the runtime may go on with a capture that an earlier process began.
    async fn may_go_on(&self, row: &SnapshotRow) -> Result<bool, Error> {
        // A client may have paused the sandbox since.
        let until = row.created_at.plus_seconds(GOES_ON_SECONDS);
        let is_recent = until.is_some_and(|until| now() < until);
        Ok(is_recent && self.snapshots()?.may_go_on(&row.sandbox_id).await?)
    }

    async fn recovered(&self, row: &SnapshotRow, change: &SnapshotChange) -> Result<(), Error> {
        let store = &self.inner.store;
        // One that is in another state by now stays in it.
        if store.change_snapshot(&row.id, row.state, change).await? {
            info!(
                snapshot = row.id, state = %change.state, reason = change.reason,
                "snapshot recovered"
            );
        }
        Ok(())
    }

    async fn recover_deleting(&self, row: &SnapshotRow) -> Result<(), Error> {
        // Another runtime may have it.
        if self.snapshots().is_err() {
            return Ok(());
        }
        match self.remove_marked(&row.id).await {
            Ok(()) => {
                info!(snapshot = row.id, "a deleted snapshot is gone");
                Ok(())
            }
            Err(Error::Snapshot(SnapshotError::InUse { reason, .. })) => {
                debug!(
                    snapshot = row.id,
                    reason, "a deleted snapshot is still in use"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes file systems whose snapshot failed or does not exist: a capture may be complete after its
    /// time limit, or after its answer was lost.
    async fn remove_unknown(&self, snapshots: &dyn Snapshots) -> Result<(), Error> {
        let stored = snapshots.list().await?;
        let mut ids: Vec<String> = stored.iter().map(|(id, _)| id.clone()).collect();
        // Read after the list: a snapshot exists before its file system.
        let states = self.inner.store.snapshot_states(&ids).await?;
        ids.retain(|id| matches!(states.get(id), None | Some(SnapshotState::Failed)));
        let due = self
            .inner
            .unneeded_snapshots
            .note(ids, Instant::now(), UNKNOWN_KEPT);
        for (id, age) in stored {
            if age < UNKNOWN_KEPT || !due.contains(&id) {
                continue;
            }
            self.require_hold("remove a stored snapshot")?;
            match snapshots.remove(&id).await {
                Ok(()) => info!(
                    snapshot = id,
                    "removed a stored file system that no snapshot needs"
                ),
                Err(RuntimeError::SnapshotInUse { reason, .. }) => {
                    debug!(
                        snapshot = id,
                        reason, "a stored file system without a snapshot is in use"
                    );
                }
                Err(error) => {
                    warn!(snapshot = id, error = %ErrorChain(&error), "a stored file system that no snapshot needs stays");
                }
            }
        }
        Ok(())
    }
}

//! What a crash or a fault left behind: periodic, nudged, without input, idempotent.
//!
//! * Sandboxes marked as deleted whose removal has not been done, after a restart or a failure.
//! * Containers that never started, helpers of a dead server, volumes of older execd builds.
//! * Snapshots that are half taken or half deleted, and templates that are half made or half deleted.
//! * History and sessions that are old enough.

use std::time::Duration;

use osb_service::ErrorChain;
use osb_store::Outcome;
use tracing::warn;

use super::{RuntimeHealth, Service, lifecycle::now};

/// How often, when nothing nudges.
const PERIOD: Duration = Duration::from_secs(30);
/// How long the history of ended sandboxes is kept, in seconds.
const HISTORY_SECONDS: i64 = 30 * 24 * 3600;

pub(super) fn start(service: Service) {
    let tasks = service.inner.tasks.clone();
    tasks.clone().spawn_abortable("reconcile", async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = service.inner.nudge.notified() => {}
            }
            if service.inner.registry.health() == RuntimeHealth::Up {
                service.reconcile().await;
            }
        }
    });
}

impl Service {
    /// One round. Does nothing while another server may use the store: what seems left behind here may
    /// be that server's work in progress.
    pub async fn reconcile(&self) {
        if self.require_hold("reconcile").is_err() {
            return;
        }
        let (records, _) = self.inner.registry.snapshot();
        for record in &records {
            let facts = &record.facts;
            if !facts.is_deleted() {
                continue;
            }
            // The holder of the lock is removing it already.
            let Some(locks) = self.inner.registry.locks(&facts.origin.id) else {
                continue;
            };
            if locks.life.try_lock().is_ok() {
                let outcome = match facts.expires_at() {
                    Some(at) if facts.changes.deleted_at >= Some(at) => Outcome::Expired,
                    _ => Outcome::Deleted,
                };
                self.start_removal(facts.origin.id.clone(), locks, outcome);
            }
        }
        self.look_for_foreign().await;
        // Much time may have passed.
        if self.require_hold("sweep").is_err() {
            return;
        }
        if let Err(error) = self.inner.runtime.sweep().await {
            warn!(error = %ErrorChain(&error), "the sweep of the runtime failed");
        }
        self.reconcile_snapshots().await;
        self.reconcile_templates().await;
        let at = now();
        if let Some(before) = at.plus_seconds(-HISTORY_SECONDS)
            && let Err(error) = self.inner.store.prune_history(before).await
        {
            warn!(error = %ErrorChain(&error), "old history stays");
        }
        if let Some(before) = at.plus_seconds(-super::once::KEPT_SECONDS)
            && let Err(error) = self.inner.store.prune_keys(before).await
        {
            warn!(error = %ErrorChain(&error), "old idempotency keys stay");
        }
        if let Err(error) = self.inner.store.session_prune(at.unix_ms() / 1000).await {
            warn!(error = %ErrorChain(&error), "cannot delete expired sessions");
        }
    }
}

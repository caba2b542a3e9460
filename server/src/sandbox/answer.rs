//! Creates whose client may disconnect before it has the answer.
//!
//! ```text
//!  accepted ─▶ mark in the store ─▶ made ─▶ mark taken back ─▶ answer written
//!                 │                    │                            │
//!              crash: removed       client gone: removed, history ABANDONED
//! ```
//!
//! The mark is taken back before the answer is written, not after it: a crash in between leaves a
//! sandbox that its client may know, and that is the one that must not be removed.

use osb_protocol::SandboxId;
use osb_store::Outcome;
use tokio::sync::mpsc;
use tracing::info;

use super::{Error, Service, lifecycle::now};
use crate::audit::Action;

/// A sandbox whose id has not reached its client. Dropping this removes the sandbox, unless the
/// server itself is what ends.
#[derive(Debug)]
#[must_use = "dropping it removes the sandbox"]
pub struct Unanswered {
    service: Service,
    id: SandboxId,
    is_answered: bool,
}

impl Unanswered {
    pub(super) fn new(service: &Service, id: &SandboxId) -> Self {
        Self {
            service: service.clone(),
            id: id.clone(),
            is_answered: false,
        }
    }

    /// The client has the answer, so the sandbox stays.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let inner = &self.service.inner;
        if !self.is_answered && !inner.tasks.stopping().is_cancelled() {
            // Without a receiver the server ends, see above.
            let _ = inner.abandoned.send(self.id.clone());
        }
    }
}

/// Creates whose client disconnected; never more than there are creates in progress.
pub(super) type Abandoned = mpsc::UnboundedReceiver<SandboxId>;

pub(super) fn start(service: Service, mut abandoned: Abandoned) {
    let tasks = service.inner.tasks.clone();
    tasks.spawn_abortable("abandoned", async move {
        while let Some(id) = abandoned.recv().await {
            service.abandon(&id);
        }
    });
}

impl Service {
    /// Takes back the marks of the creates that this server did not get to answer before it stops:
    /// no crash left them. Marks of an earlier crash stay until their sandboxes are gone; the engine
    /// may not have answered since.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn set_creates_answered(&self) -> Result<(), Error> {
        let inner = &self.inner;
        Ok(inner.store.set_all_answered(&inner.left_unanswered).await?)
    }

    /// Removes a sandbox that no client knows.
    pub(super) fn abandon(&self, id: &SandboxId) {
        let at = now();
        let marked = self.inner.registry.update(id, |facts| {
            if facts.is_deleted() {
                return Err(());
            }
            facts.changes.deleted_at = Some(at);
            Ok(())
        });
        let Some(Ok(record)) = marked else {
            return;
        };
        info!(sandbox = %id, "the client disconnected before it had the answer");
        self.record_own(Action::SandboxAbandon, &record);
        if let Some(locks) = self.inner.registry.locks(id) {
            self.start_removal(id.clone(), locks, Outcome::Abandoned);
        }
    }
}

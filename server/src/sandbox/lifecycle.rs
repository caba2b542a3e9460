//! Making and removing sandboxes: one at a time per sandbox, by the task that holds its `life`
//! lock. The work belongs to the server, not to the request that asked for it.

use std::sync::{Arc, Weak, atomic::Ordering};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{CreateSpec, Progress, Stage};
use osb_service::ErrorChain;
use osb_store::{HistoryEntry, Outcome, StageTime, UnansweredCreate};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Error, Facts, Record, Registry, Service,
    readiness::{self, Wait},
    registry::Locks,
};

/// The present moment.
pub(super) fn now() -> WireTime {
    WireTime::new(jiff::Timestamp::now())
}

/// Reason and message of a sandbox whose client is gone.
pub(super) const ABANDONED: (&str, &str) = (
    "ABANDONED",
    "Its client went away before it had the answer.",
);

/// How the client of a create learns the id of its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdSource {
    /// From the answer alone.
    Answer,
    /// From the answer to any request with the same idempotency key.
    IdempotencyKey,
    /// From the list that it follows.
    List,
}

impl Service {
    pub(super) async fn provision(
        &self,
        spec: CreateSpec,
        id_source: IdSource,
    ) -> Result<Arc<Record>, Error> {
        let locks = self.inner.registry.accept(Facts::accepted(&spec));
        let service = self.clone();
        let work = async move { service.provision_owned(spec, id_source, &locks).await };
        let done = self.inner.tasks.spawn("create", work).await;
        done.unwrap_or(Err(Error::ShuttingDown))
    }

    async fn provision_owned(
        &self,
        spec: CreateSpec,
        id_source: IdSource,
        locks: &Locks,
    ) -> Result<Arc<Record>, Error> {
        let _owner = locks.life.lock().await;
        let id = spec.id().clone();
        if id_source == IdSource::Answer
            && let Err(error) = self.set_unanswered(&spec).await
        {
            self.inner.registry.remove(&id);
            return Err(error);
        }
        let registry = &self.inner.registry;
        let cancelled = locks.cancel.cancelled();
        let progress = Tell {
            id: id.clone(),
            registry: Arc::downgrade(registry),
            image_is_here: CancellationToken::new(),
        };
        // A pull goes on without its client: the next try needs the image.
        let abandoned = async {
            locks.abandoned.cancelled().await;
            progress.image_is_here.cancelled().await;
        };
        let ended = |needs| {
            Err(Error::WrongState {
                id: id.clone(),
                state: "Stopping".to_owned(),
                needs,
            })
        };
        let made = tokio::select! {
            made = self.inner.runtime.create(spec, &progress) => made.map_err(Error::from),
            // Deleted or expired meanwhile: nobody wants to wait for a pull then.
            () = cancelled => ended("it was deleted before it was made"),
            () = abandoned => ended("its client went away before it was made"),
        };
        let known = made.and_then(|observed| {
            self.change(&id, |facts| {
                let at = observed.status.since;
                facts.observe(observed.status, at);
                Ok(())
            })
        });
        let record = match known {
            Ok(record) => record,
            Err(error) => {
                self.create_failed(&id, locks, &error).await;
                return Err(error);
            }
        };
        self.wait_for_execd(&record).await;
        info!(sandbox = %id, source = %record.facts.origin.source, "sandbox created");
        self.known(&id)
    }

    async fn set_unanswered(&self, spec: &CreateSpec) -> Result<(), Error> {
        let create = UnansweredCreate {
            id: spec.id().clone(),
            image: spec.origin.source.to_string(),
            created_at: spec.origin.created_at,
        };
        Ok(self.inner.store.set_unanswered(&create).await?)
    }

    /// A sandbox whose execd does not answer in time is not a failed create: it may be slow, and
    /// its own command runs. Nor is one whose command has ended already, or that was deleted.
    async fn wait_for_execd(&self, record: &Record) {
        let id = &record.facts.origin.id;
        if let Ok(execd) = self.execd_of(&record.facts) {
            let deadline = Instant::now() + self.inner.limits.ready_wait;
            let still_wanted = || {
                let record = self.inner.registry.get(id);
                record.is_some_and(|record| is_running(&record.facts))
            };
            match readiness::wait(&execd.authority, deadline, still_wanted).await {
                Wait::Ready => {}
                Wait::TooSlow => {
                    warn!(sandbox = %id, "execd does not answer yet");
                    return;
                }
                Wait::Unwanted => return,
            }
        }
        // A sandbox that went away meanwhile needs no stages.
        let _ = self.change(id, |facts| {
            let at = now();
            facts.reached(Stage::Execd, at);
            facts.reached(Stage::Ready, at);
            Ok(())
        });
    }

    /// Nothing of a failed create may stay. Where that cannot be had now, the sandbox is marked as
    /// deleted, and the reconciler goes on.
    async fn create_failed(&self, id: &SandboxId, locks: &Locks, error: &Error) {
        let record = self.inner.registry.get(id);
        let source = record.as_ref().map(|record| &record.facts.origin.source);
        let source = source.map(tracing::field::display);
        warn!(sandbox = %id, source, error = %ErrorChain(error), "create failed");
        if let Err(failure) = self.inner.runtime.remove(id).await {
            warn!(sandbox = %id, error = %ErrorChain(&failure), "a failed create could not be removed");
            let at = now();
            self.keep_deletion(id, locks, at).await;
            // It cannot vanish from the registry while its life lock is held.
            let _ = self.change(id, |facts| {
                facts.changes.deleted_at.get_or_insert(at);
                facts.removal_error = Some(failure.to_string());
                Ok(())
            });
            return;
        }
        let Some(record) = record else {
            return;
        };
        let (outcome, reason) = match error {
            Error::Runtime(osb_runtime::RuntimeError::ImagePull { .. }) => {
                (Outcome::CreateFailed, "IMAGE_PULL_FAILED")
            }
            Error::Runtime(osb_runtime::RuntimeError::Unavailable { .. }) => {
                (Outcome::CreateFailed, "RUNTIME_UNAVAILABLE")
            }
            Error::WrongState { .. } => match locks.leaving.get() {
                Some(Outcome::Abandoned) => (Outcome::Abandoned, ABANDONED.0),
                _ => (Outcome::Deleted, "DELETED"),
            },
            _ => (Outcome::CreateFailed, "START_FAILED"),
        };
        self.keep_history(history(&record.facts, outcome, reason, error.to_string()))
            .await;
        self.inner.registry.remove(id);
    }

    /// Deletes a sandbox (contract: lifecycle §5.6). Returns once the intent is kept; with `wait`,
    /// or when the store cannot keep it, only when the sandbox is gone: a full disk is emptied by
    /// deleting. A repeated call while the removal goes on is answered in the same way.
    ///
    /// # Errors
    /// [`Error::NotFound`]; if the removal is waited for, also why it failed (it is tried again).
    pub async fn delete(&self, id: &SandboxId, wait: bool) -> Result<(), Error> {
        let locks = self.locks(id)?;
        let (service, id) = (self.clone(), id.clone());
        let removal = self
            .owned("delete", async move {
                let is_deleted = service.known(&id)?.facts.is_deleted();
                let mut kept = locks.deletion_kept.load(Ordering::Relaxed);
                if is_deleted && kept && !wait {
                    return Ok(None);
                }
                let at = now();
                if !kept {
                    kept = service.keep_deletion(&id, &locks, at).await;
                }
                service.change(&id, |facts| {
                    facts.changes.deleted_at.get_or_insert(at);
                    Ok(())
                })?;
                let removal = service.start_removal(id, locks, Outcome::Deleted);
                Ok((wait || !kept).then_some(removal))
            })
            .await?;
        match removal {
            Some(removal) => removal.await.unwrap_or(Err(Error::ShuttingDown)),
            None => Ok(()),
        }
    }

    /// Keeps the intent to delete; answers whether it is kept now.
    async fn keep_deletion(&self, id: &SandboxId, locks: &Locks, at: WireTime) -> bool {
        match self.inner.store.set_deleted(id, at).await {
            Ok(()) => {
                locks.deletion_kept.store(true, Ordering::Relaxed);
                true
            }
            Err(failure) => {
                warn!(sandbox = %id, error = %ErrorChain(&failure), "the delete intent cannot be kept");
                false
            }
        }
    }

    /// Runs a change to its end, also when whoever asked for it goes away: store and memory must
    /// not part.
    pub(super) async fn owned<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.inner
            .tasks
            .spawn(name, work)
            .await
            .unwrap_or(Err(Error::ShuttingDown))
    }

    /// Removes a sandbox that is marked as deleted, in a task of its own.
    pub(super) fn start_removal(
        &self,
        id: SandboxId,
        locks: Arc<Locks>,
        outcome: Outcome,
    ) -> tokio::task::JoinHandle<Result<(), Error>> {
        let outcome = *locks.leaving.get_or_init(|| outcome);
        // A create under way is not waited for.
        match outcome {
            Outcome::Abandoned => locks.abandoned.cancel(),
            _ => locks.cancel.cancel(),
        }
        let service = self.clone();
        let work = async move { service.remove_owned(&id, &locks, outcome).await };
        self.inner.tasks.spawn("remove", work)
    }

    async fn remove_owned(
        &self,
        id: &SandboxId,
        locks: &Locks,
        outcome: Outcome,
    ) -> Result<(), Error> {
        // The answer was about to be written: nothing else in the store says that it was not.
        if outcome == Outcome::Abandoned && !locks.deletion_kept.load(Ordering::Relaxed) {
            self.keep_deletion(id, locks, now()).await;
        }
        // A create under way ends first: before that nobody knows what there is to remove.
        let _owner = locks.life.lock().await;
        let Some(record) = self.inner.registry.get(id) else {
            return Ok(());
        };
        if let Err(error) = self.inner.runtime.remove(id).await {
            warn!(sandbox = %id, error = %ErrorChain(&error), "cannot be removed, will be tried again");
            // It cannot vanish from the registry while its life lock is held.
            let _ = self.change(id, |facts| {
                facts.removal_error = Some(error.to_string());
                Ok(())
            });
            // An expiry has not asked the store yet; now it may have to outlive this process.
            if !locks.deletion_kept.load(Ordering::Relaxed) {
                let at = record.facts.changes.deleted_at.unwrap_or_else(now);
                self.keep_deletion(id, locks, at).await;
            }
            return Err(error.into());
        }
        let (reason, message) = match outcome {
            Outcome::Abandoned => ABANDONED,
            Outcome::Expired => ("EXPIRED", "Its time was up."),
            _ => ("DELETED", "It was deleted by request."),
        };
        let entry = history(&record.facts, outcome, reason, message.to_owned());
        self.keep_history(entry).await;
        self.inner.registry.remove(id);
        info!(sandbox = %id, reason, "sandbox removed");
        Ok(())
    }
}

fn is_running(facts: &Facts) -> bool {
    matches!(facts.phase, Some((osb_runtime::Phase::Running, _))) && !facts.is_deleted()
}

pub(super) fn history(
    facts: &Facts,
    outcome: Outcome,
    reason: &str,
    message: String,
) -> HistoryEntry {
    let stages = facts.stages.iter().map(|reached| StageTime {
        stage: reached.stage.as_str().to_owned(),
        at: reached.at,
    });
    HistoryEntry {
        id: facts.origin.id.clone(),
        image: facts.origin.source.to_string(),
        created_at: facts.origin.created_at,
        ended_at: now(),
        outcome,
        reason: reason.to_owned(),
        message,
        stages: stages.collect(),
    }
}

/// Writes a create's progress into the registry.
struct Tell {
    /// Cancelled when the image is on the host.
    image_is_here: CancellationToken,
    id: SandboxId,
    registry: Weak<Registry>,
}

impl Progress for Tell {
    fn reached(&self, stage: Stage) {
        if stage >= Stage::Image {
            self.image_is_here.cancel();
        }
        let at = now();
        self.update(|facts| facts.reached(stage, at));
    }

    fn note(&self, text: &str) {
        self.update(|facts| facts.note = Some(text.to_owned()));
    }
}

impl Tell {
    fn update(&self, change: impl FnOnce(&mut Facts)) {
        if let Some(registry) = self.registry.upgrade() {
            registry.update::<()>(&self.id, |facts| {
                change(facts);
                Ok(())
            });
        }
    }
}

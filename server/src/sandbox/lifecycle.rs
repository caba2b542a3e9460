//! Creates and removes sandboxes: one operation at a time per sandbox, in the task that holds its
//! `life` lock. The task belongs to the server, not to the request.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{Cause, CreateSpec, Observed, Progress, Stage};
use osb_service::ErrorChain;
use osb_store::{EndedSpec, HistoryEntry, Outcome, StageTime, StoreError, UnansweredCreate};
use tokio::{sync::SemaphorePermit, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, warn};

use super::{
    Error, Facts, Record, Registry, Service, explain, leaving,
    readiness::{self, QUICK, SLOW, Wait},
    registry::{Ended, Locks},
    state::end_of_entry_point,
};
use crate::trace;

/// The present moment.
pub(super) fn now() -> WireTime {
    crate::wall_clock::now()
}

/// Removals at once. Thousands may be due together, after hours in which no server ran, and each needs
/// a connection to the engine and an answer within its time limit.
pub(super) const REMOVALS: usize = 64;

/// How long a late execd is asked often.
const LATE_EXECD: Duration = Duration::from_secs(600);
/// Pause between attempts after that, and between looks at a sandbox that does not run.
const RARE: Duration = Duration::from_secs(5);

/// Reason of a create that failed with the runtime, for other causes than its image.
pub(crate) const START_FAILED: &str = "START_FAILED";
/// Reason and message of a sandbox whose client disconnected before the answer.
pub(super) const ABANDONED: (&str, &str) = (
    "ABANDONED",
    "Its client disconnected before it had the answer.",
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
        let done = self.start_provision(spec, id_source).await?.await;
        done.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Puts a sandbox into the registry, unless a quota has no room for it, and creates it in a task,
    /// which nothing needs to wait for.
    pub(super) async fn start_provision(
        &self,
        spec: CreateSpec,
        id_source: IdSource,
    ) -> Result<JoinHandle<Result<Arc<Record>, Error>>, Error> {
        let quotas = &self.inner.limits.quotas;
        let registry = &self.inner.registry;
        let deadline = leaving::deadline();
        let locks = loop {
            let sizes = self.inner.layers.sizes().unwrap_or_default();
            let owner = self.owner.as_ref();
            let check = |all: &mut dyn Iterator<Item = &Arc<Record>>| {
                quotas.check(&spec, owner, &sizes, all)
            };
            match registry.accept(Facts::accepted(&spec), check) {
                Ok(locks) => break locks,
                Err(refused) => self.room_after_removals(&spec, refused, deadline).await?,
            }
        };
        if let Some(prepared) = &spec.prepared {
            // Everything that follows the registry has seen the id.
            prepared.commit();
        }
        self.note_create(&spec);
        let service = self.clone();
        let span = trace::work("create a sandbox", spec.id());
        let work = async move { service.provision_owned(spec, id_source, &locks).await };
        let work = work.instrument(span);
        Ok(self.inner.tasks.spawn("create", work))
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
        let progress = RegistryProgress {
            id: id.clone(),
            registry: Arc::downgrade(registry),
            image_is_here: CancellationToken::new(),
        };
        // A pull continues without its client: the next attempt needs the image.
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
        let is_claimed = spec.origin.pool.is_some();
        let made = tokio::select! {
            made = self.make(spec, &progress) => made,
            // The sandbox was deleted or expired, so the pull is no longer waited for.
            () = cancelled => ended(match locks.leaving.get() {
                Some(Outcome::Expired) => "it expired before it was made",
                _ => "it was deleted before it was made",
            }),
            () = abandoned => ended("its client disconnected before it was made"),
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
        if is_claimed {
            // Its execd has just answered the claim.
            self.set_ready(&id);
        } else {
            let waiting = trace::step("execd: wait until it answers");
            self.wait_for_execd(&record).instrument(waiting).await;
        }
        self.inner
            .tally
            .created(record.facts.origin.created_at, now());
        info!(sandbox = %id, source = %record.facts.origin.source, "sandbox created");
        self.known(&id)
    }

    /// Creates a sandbox, or claims the one that was taken from a pool.
    async fn make(&self, spec: CreateSpec, progress: &dyn Progress) -> Result<Observed, Error> {
        if spec.origin.pool.is_some() {
            let claiming = trace::step("pool: claim");
            return self.claim(&spec).instrument(claiming).await;
        }
        let creating = trace::step("runtime: create");
        let made = self.create_after_removals(spec, progress);
        made.instrument(creating).await
    }

    async fn set_unanswered(&self, spec: &CreateSpec) -> Result<(), Error> {
        let create = UnansweredCreate {
            id: spec.id().clone(),
            image: spec.origin.source.to_string(),
            created_at: spec.origin.created_at,
            tenant: spec.origin.tenant.as_deref().map(str::to_owned),
        };
        Ok(self.inner.store.set_unanswered(&create).await?)
    }

    /// Waits until execd answers. A create whose execd is slow has not failed, because the entry point
    /// runs; nor has one whose entry point has ended or whose sandbox was deleted meanwhile.
    async fn wait_for_execd(&self, record: &Record) {
        let id = record.facts.origin.id.clone();
        if let Ok(execd) = self.execd_of(&record.facts) {
            match self
                .execd_answers(&id, &execd.authority, self.inner.limits.ready_wait, QUICK)
                .await
            {
                Wait::Ready => {}
                Wait::TooSlow => return self.follow_late_execd(id),
                Wait::Unwanted => {
                    // It may be started again.
                    let _ = self.change(&id, |facts| {
                        facts.create_is_over = true;
                        Ok(())
                    });
                    return;
                }
            }
        }
        self.set_ready(&id);
    }

    /// Goes on waiting after the create was answered, so that the sandbox shows whether its execd
    /// answers.
    fn follow_late_execd(&self, id: SandboxId) {
        warn!(sandbox = %id, "execd does not answer yet");
        // A sandbox that was removed meanwhile needs no note.
        let _ = self.change(&id, |facts| {
            facts.create_is_over = true;
            facts.execd_is_late = true;
            Ok(())
        });
        let service = self.clone();
        let work = async move { service.until_execd_answers(&id).await };
        self.inner.tasks.spawn_abortable("late execd", work);
    }

    /// Asks a late execd until it answers or its sandbox goes. One that is paused, or has ended, may run
    /// again, at another address.
    async fn until_execd_answers(&self, id: &SandboxId) {
        let mut pause = SLOW;
        while let Some(record) = self.inner.registry.get(id) {
            let facts = &record.facts;
            if facts.is_deleted() {
                return;
            }
            let execd = is_running(facts).then(|| self.execd_of(facts));
            let Some(Ok(execd)) = execd else {
                tokio::time::sleep(RARE).await;
                continue;
            };
            let answers = self.execd_answers(id, &execd.authority, LATE_EXECD, pause);
            match answers.await {
                Wait::Ready => return self.set_ready(id),
                Wait::TooSlow => pause = RARE,
                Wait::Unwanted => {}
            }
        }
    }

    async fn execd_answers(
        &self,
        id: &SandboxId,
        authority: &str,
        most: Duration,
        pause: Duration,
    ) -> Wait {
        let still_wanted = || {
            let record = self.inner.registry.get(id);
            record.is_some_and(|record| is_running(&record.facts))
        };
        readiness::wait(authority, Instant::now() + most, pause, still_wanted).await
    }

    fn set_ready(&self, id: &SandboxId) {
        // A sandbox that was removed meanwhile needs no stages.
        let _ = self.change(id, |facts| {
            let at = now();
            facts.create_is_over = true;
            facts.reached(Stage::Execd, at);
            facts.reached(Stage::Ready, at);
            Ok(())
        });
    }

    /// Fails when another server may use the store. What seems due, failed or left behind here may have
    /// been renewed, adopted or just begun by that server, so nothing may be removed.
    pub(super) fn require_hold(&self, op: &'static str) -> Result<(), Error> {
        match self.inner.store.lost_hold() {
            None => Ok(()),
            Some(problem) => Err(Error::Store(StoreError::Unavailable {
                op,
                problem,
                source: None,
            })),
        }
    }

    /// Removes everything that a failed create made. When that fails, the sandbox is marked as deleted
    /// and the reconciler retries.
    async fn create_failed(&self, id: &SandboxId, locks: &Locks, error: &Error) {
        let record = self.inner.registry.get(id);
        let source = record.as_ref().map(|record| &record.facts.origin.source);
        let source = source.map(tracing::field::display);
        warn!(sandbox = %id, source, error = %ErrorChain(error), "create failed");
        let (outcome, reason) = match error {
            Error::Runtime(osb_runtime::RuntimeError::ImagePull { .. }) => {
                (Outcome::CreateFailed, "IMAGE_PULL_FAILED")
            }
            Error::Runtime(osb_runtime::RuntimeError::Unavailable { .. }) => {
                (Outcome::CreateFailed, "RUNTIME_UNAVAILABLE")
            }
            Error::WrongState { .. } => match locks.leaving.get() {
                Some(Outcome::Abandoned) => (Outcome::Abandoned, ABANDONED.0),
                Some(Outcome::Expired) => (Outcome::Expired, "EXPIRED"),
                _ => (Outcome::Deleted, "DELETED"),
            },
            _ => (Outcome::CreateFailed, START_FAILED),
        };
        let ended = Ended {
            outcome,
            reason,
            message: error.explained(),
        };
        if let Err(lost) = self.require_hold("remove a failed create") {
            warn!(sandbox = %id, error = %ErrorChain(&lost), "a failed create is not removed yet");
            let _ = locks.failed.set(ended);
            let _ = self.change(id, |facts| {
                facts.changes.deleted_at.get_or_insert_with(now);
                facts.removal_error = Some(lost.to_string());
                Ok(())
            });
            return;
        }
        if let Err(failure) = self.inner.runtime.remove(id).await {
            warn!(sandbox = %id, error = %ErrorChain(&failure), "a failed create could not be removed");
            let _ = locks.failed.set(ended);
            let at = now();
            self.keep_deletion(id, locks, at).await;
            // The entry stays in the registry while the life lock is held.
            let _ = self.change(id, |facts| {
                facts.changes.deleted_at.get_or_insert(at);
                facts.removal_error = Some(explain(failure.to_string(), Cause::of(&failure)));
                Ok(())
            });
            return;
        }
        let Some(record) = record else {
            return;
        };
        let entry = history(&record.facts, ended.outcome, ended.reason, ended.message);
        self.end(entry, locks).await;
    }

    /// Writes the history of a sandbox that is gone and forgets it. Renewals, patches and delete intents
    /// come before, or find no sandbox.
    pub(super) async fn end(&self, entry: HistoryEntry, locks: &Locks) {
        let _no_change = locks.edit.lock().await;
        let id = entry.id.clone();
        self.keep_history(entry).await;
        self.inner.registry.remove(&id);
    }

    /// Deletes a sandbox (contract: lifecycle §5.6). Returns once the intent is stored. With `wait`, or
    /// when the store cannot take the intent, it returns only when the sandbox is gone: deleting must
    /// work on a full disk. A repeated call during the removal gets the same answer.
    ///
    /// # Errors
    /// [`Error::NotFound`]; with `wait` also why the removal failed (it is retried).
    pub async fn delete(&self, id: &SandboxId, wait: bool) -> Result<(), Error> {
        let locks = self.locks(id)?;
        let (service, id) = (self.clone(), id.clone());
        let removal = self
            .owned("delete", async move {
                service.require_hold("delete a sandbox")?;
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

    /// Stores the intent to delete. Returns whether it is stored, or the sandbox is gone.
    async fn keep_deletion(&self, id: &SandboxId, locks: &Locks, at: WireTime) -> bool {
        // An intent that came after the history would stay in the store.
        let _before_the_end = locks.edit.lock().await;
        let Some(record) = self.inner.registry.get(id) else {
            return true;
        };
        let tenant = record.facts.origin.tenant.as_deref();
        match self.inner.store.set_deleted(id, at, tenant).await {
            Ok(()) => {
                locks.deletion_kept.store(true, Ordering::Relaxed);
                true
            }
            Err(failure) => {
                warn!(sandbox = %id, error = %ErrorChain(&failure), "the delete intent cannot be stored");
                false
            }
        }
    }

    /// Completes a change even if its request is dropped: store and memory must not diverge.
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

    /// Starts a task that removes a sandbox which is marked as deleted.
    pub(super) fn start_removal(
        &self,
        id: SandboxId,
        locks: Arc<Locks>,
        outcome: Outcome,
    ) -> JoinHandle<Result<(), Error>> {
        let outcome = *locks.leaving.get_or_init(|| outcome);
        // Ends a create in progress.
        match outcome {
            Outcome::Abandoned => locks.abandoned.cancel(),
            _ => locks.cancel.cancel(),
        }
        let service = self.clone();
        let span = trace::work("remove a sandbox", &id);
        let work = async move { service.remove_owned(&id, &locks, outcome).await };
        self.inner.tasks.spawn("remove", work.instrument(span))
    }

    async fn remove_owned(
        &self,
        id: &SandboxId,
        locks: &Locks,
        outcome: Outcome,
    ) -> Result<(), Error> {
        // The mark of the unanswered create is gone already, so the intent must be stored.
        if outcome == Outcome::Abandoned && !locks.deletion_kept.load(Ordering::Relaxed) {
            self.keep_deletion(id, locks, now()).await;
        }
        // A create in progress ends first: only then is it known what to remove.
        let _owner = locks.life.lock().await;
        let Some(record) = self.inner.registry.get(id) else {
            return Ok(());
        };
        let removed = {
            let _permit = self.removal_permit().await?;
            self.require_hold("remove a sandbox")?;
            self.read_report(&record.facts).await;
            let removing = trace::step("runtime: remove");
            self.inner.runtime.remove(id).instrument(removing).await
        };
        if let Err(error) = removed {
            warn!(sandbox = %id, error = %ErrorChain(&error), "cannot be removed yet, will retry");
            // The entry stays in the registry while the life lock is held.
            let _ = self.change(id, |facts| {
                facts.removal_error = Some(explain(error.to_string(), Cause::of(&error)));
                Ok(())
            });
            // An expiry stores no intent at first; now it may have to outlive this process.
            if !locks.deletion_kept.load(Ordering::Relaxed) {
                let at = record.facts.changes.deleted_at.unwrap_or_else(now);
                self.keep_deletion(id, locks, at).await;
            }
            return Err(error.into());
        }
        let ended = locks.failed.get().cloned().unwrap_or_else(|| {
            let (reason, message) = match outcome {
                Outcome::Abandoned => ABANDONED,
                Outcome::Expired => ("EXPIRED", "It expired."),
                _ => ("DELETED", "It was deleted by request."),
            };
            // Once the container is gone, nothing else shows why it had ended.
            let message = match end_of_entry_point(&record.facts) {
                Some(end) => format!("{message} Before that: {end}"),
                None => message.to_owned(),
            };
            Ended {
                outcome,
                reason,
                message,
            }
        });
        let entry = history(&record.facts, ended.outcome, ended.reason, ended.message);
        self.end(entry, locks).await;
        info!(sandbox = %id, reason = ended.reason, "sandbox removed");
        Ok(())
    }

    /// Waits for a place among the removals. Those that wait when the server stops are left to the
    /// next start, which finds the same intents and deadlines.
    async fn removal_permit(&self) -> Result<SemaphorePermit<'_>, Error> {
        tokio::select! {
            biased;
            permit = self.inner.removals.acquire() => permit.map_err(|_| Error::ShuttingDown),
            () = self.inner.tasks.stopping().cancelled() => Err(Error::ShuttingDown),
        }
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
        tenant: facts.origin.tenant.as_deref().map(str::to_owned),
        spec: EndedSpec {
            metadata: facts.metadata().clone(),
            entrypoint: facts.origin.entrypoint.clone(),
            resources: facts.origin.resources.clone(),
            expires_at: facts.expires_at(),
        },
    }
}

/// Writes a create's progress into the registry.
struct RegistryProgress {
    /// Cancelled when the image is on the host.
    image_is_here: CancellationToken,
    id: SandboxId,
    registry: Weak<Registry>,
}

impl Progress for RegistryProgress {
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

impl RegistryProgress {
    fn update(&self, change: impl FnOnce(&mut Facts)) {
        if let Some(registry) = self.registry.upgrade() {
            registry.update::<()>(&self.id, |facts| {
                change(facts);
                Ok(())
            });
        }
    }
}

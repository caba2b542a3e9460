//! Keeps pools as full as they are to be: starts members, removes those that are not wanted, and asks
//! those of an earlier process whether they still wait.
//!
//! A member's row is stored before its container exists, and is removed after it: whatever a crash
//! leaves, a row names it. The next server removes members whose start was interrupted.

use std::time::Duration;

use osb_protocol::SandboxId;
use osb_runtime::{
    ClaimMark, CreateSpec, Observed, Phase, RuntimeError, Stage, WaitingSandbox, new_token,
};
use osb_service::ErrorChain;
use osb_store::{MemberState, PoolMemberRow, PoolRow, StoreError};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    failure::PoolFailure,
    state::{Key, Work},
    template,
};
use crate::sandbox::{
    Error, Facts, RuntimeHealth, Service,
    lifecycle::now,
    readiness::{self, QUICK, Wait},
    validate,
};

/// How often it looks when nothing has changed.
const PERIOD: Duration = Duration::from_secs(30);
/// Starts at once, of all pools.
const STARTS: usize = 4;
/// What a member of an earlier process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It waits for a claim, or would if it were not frozen.
    Waits,
    /// It was given to a client.
    Used,
    /// No client has had it, as far as is known, and none can have it.
    Useless,
    /// It cannot be said while it is frozen.
    Unknown,
}

/// Longest time until execd answers in a member.
const EXECD: Duration = Duration::from_secs(60);

pub(in crate::sandbox) fn start(service: Service) {
    let tasks = service.inner.tasks.clone();
    tasks.clone().spawn_abortable("pools", async move {
        loop {
            if service.inner.registry.health() == RuntimeHealth::Up
                && service.require_hold("keep pools").is_ok()
            {
                service.begin(service.inner.pools.work(STARTS));
            }
            let latest = Instant::now() + PERIOD;
            let attempt = service.inner.pools.next_attempt();
            let at = attempt.map_or(latest, |attempt| attempt.min(latest));
            tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = service.inner.pools.changed.notified() => {}
            }
        }
    });
}

impl Service {
    fn begin(&self, work: Work) {
        let tasks = &self.inner.tasks;
        for id in work.drain {
            let service = self.clone();
            let remove = async move { service.remove_member(&id).await };
            tasks.spawn_abortable("drain a pool", remove);
        }
        for observed in work.verify {
            let service = self.clone();
            let verify = async move { service.verify_member(observed).await };
            tasks.spawn_abortable("ask a member of a pool", verify);
        }
        let began = Instant::now();
        for pool in work.start {
            // Before its task runs: the next look must count it.
            let Some((spec, row)) = self.next_member(&pool, began) else {
                continue;
            };
            self.inner.pools.add(row.clone());
            let service = self.clone();
            let warm = async move { service.start_member(&pool, spec, row, began).await };
            tasks.spawn_abortable("start a member of a pool", warm);
        }
    }

    /// The next member of a pool. `None` if the settings of this server refuse its template by now.
    fn next_member(&self, pool: &PoolRow, began: Instant) -> Option<(CreateSpec, PoolMemberRow)> {
        let key = (pool.tenant.clone(), pool.name.clone());
        let template = serde_json::from_str::<Value>(&pool.template).unwrap_or_default();
        let mut spec = match self.check_template(&template) {
            Ok(spec) => spec,
            Err(error) => {
                warn!(pool = pool.name, %error, "its template is refused, so it is not filled");
                let reason = format!("The template is refused by now: {error}");
                self.note_failure(&key, began, reason);
                return None;
            }
        };
        spec.waits = true;
        // Otherwise any program that reaches its port could claim it.
        spec.origin.token.get_or_insert_with(new_token);
        spec.origin.pool = Some(pool.name.as_str().into());
        spec.origin.tenant = pool.tenant.as_deref().map(Into::into);
        let at = now();
        let row = PoolMemberRow {
            id: spec.id().clone(),
            tenant: pool.tenant.clone(),
            pool: pool.name.clone(),
            revision: pool.revision.clone(),
            settings: self.inner.pools.settings.clone(),
            state: MemberState::Warming,
            claim: None,
            created_at: at,
            changed_at: at,
        };
        Some((spec, row))
    }

    /// Notes why a pool lacks a sandbox whose start began at `began`.
    fn note_failure(&self, key: &Key, began: Instant, reason: String) {
        let failure = PoolFailure { at: now(), reason };
        self.inner.pools.start_failed(key, began, failure);
    }

    /// Checks a template by the rules for sandboxes.
    ///
    /// # Errors
    /// [`Error::Invalid`] with every member at fault.
    pub(super) fn check_template(&self, template: &Value) -> Result<CreateSpec, Error> {
        let body = template::create_body(template).map_err(Error::Invalid)?;
        let checked = validate::request(body, &self.rules()).map_err(|error| {
            let fields = error.fields().into_iter();
            Error::Invalid(fields.map(template::of_template).collect())
        })?;
        Ok(checked.spec)
    }

    async fn start_member(
        &self,
        pool: &PoolRow,
        spec: CreateSpec,
        row: PoolMemberRow,
        began: Instant,
    ) {
        let pools = &self.inner.pools;
        let key = (pool.tenant.clone(), pool.name.clone());
        let id = row.id.clone();
        match self.inner.store.add_member(&row).await {
            Ok(true) => {}
            Ok(false) => {
                // Usually the pool, or its template, was replaced meanwhile. Otherwise the store differs
                // for good, and an attempt must not follow the other at once.
                if pools
                    .pool(&key)
                    .is_some_and(|it| it.revision == row.revision)
                {
                    let reason = "The store does not have the pool with this template.";
                    warn!(pool = pool.name, reason, "a member is not started");
                    self.note_failure(&key, began, reason.to_owned());
                }
                return pools.forget(&id);
            }
            Err(error) => {
                warn!(pool = pool.name, error = %ErrorChain(&error), "a member is not started");
                self.note_failure(&key, began, Error::from(error).explained());
                // It may be stored all the same.
                return pools.drain(&id);
            }
        }
        match self.make_member(spec).await {
            Ok(observed) => {
                let at = now();
                let (warming, ready) = (MemberState::Warming, MemberState::Ready);
                let change = self
                    .inner
                    .store
                    .change_member(&id, warming, ready, None, at);
                match change.await {
                    Ok(true) => {
                        info!(pool = pool.name, sandbox = %id, "a sandbox waits in its pool");
                        pools.set_ready(observed, at);
                    }
                    // Its pool was removed, or has another template.
                    Ok(false) => pools.drain(&id),
                    Err(error) => {
                        warn!(sandbox = %id, error = %ErrorChain(&error), "a member is given up");
                        pools.drain(&id);
                    }
                }
            }
            Err(error) => {
                warn!(pool = pool.name, error = %ErrorChain(&error), "a member cannot be started");
                self.note_failure(&key, began, error.explained());
                pools.drain(&id);
            }
        }
    }

    /// Makes a member whose execd answers.
    async fn make_member(&self, spec: CreateSpec) -> Result<Observed, Error> {
        let id = spec.id().clone();
        let created = self.inner.runtime.create(spec, &|_: Stage| {}).await?;
        let execd = self.waiting_execd(&created);
        let is_ready = match &execd {
            Some(execd) => {
                let deadline = Instant::now() + EXECD;
                readiness::wait(execd, deadline, QUICK, || true).await == Wait::Ready
            }
            // Some runtimes claim without a route; the others say that they cannot.
            None => self.is_waiting(&created, None).await?,
        };
        match is_ready {
            true => Ok(created),
            false => Err(Error::Unreachable {
                id,
                port: osb_runtime::EXECD_PORT,
                reason: "execd does not answer",
            }),
        }
    }

    /// Removes a member that no client has: it drains in the store, then it is removed, then its row.
    async fn remove_member(&self, id: &SandboxId) {
        let removed = async {
            let store = &self.inner.store;
            for from in [MemberState::Warming, MemberState::Ready] {
                let to = MemberState::Draining;
                store.change_member(id, from, to, None, now()).await?;
            }
            self.require_hold("remove a member of a pool")?;
            self.inner.runtime.remove(id).await?;
            store.remove_member(id, MemberState::Draining).await?;
            Ok::<_, Error>(())
        };
        match removed.await {
            Ok(()) => {
                info!(sandbox = %id, "a sandbox without a client is removed from its pool");
                self.inner.pools.forget(id);
            }
            Err(error) => {
                warn!(sandbox = %id, error = %ErrorChain(&error), "a member of a pool stays, will retry");
                self.inner.pools.release(id);
            }
        }
    }

    /// Asks a member of an earlier process whether it waits. After a restore of the store, one that waits
    /// by its row, or is being started, or has none, may be a client's: it stays, as what its labels say,
    /// and no client gets it.
    async fn verify_member(&self, observed: Observed) {
        let id = observed.origin.id.clone();
        let pools = &self.inner.pools;
        match self.ask_member(&observed).await {
            Ok(Asked::Waits) => pools.set_verified(&id),
            Ok(Asked::Useless) => pools.drain(&id),
            Ok(Asked::Used) => self.set_free(observed).await,
            // It is asked again when it is thawed.
            Ok(Asked::Unknown) => pools.release(&id),
            Err(error) => {
                warn!(
                    sandbox = %id,
                    error = %ErrorChain(&error),
                    "a member of a pool cannot be asked whether it is used, will retry"
                );
                pools.release(&id);
            }
        }
    }

    /// Asks a member: its execd, and for the mark that a claim leaves. An execd that was started again waits
    /// until the claim is repeated, and may not answer at all.
    async fn ask_member(&self, observed: &Observed) -> Result<Asked, RuntimeError> {
        let (phase, id) = (&observed.status.phase, &observed.origin.id);
        let mut waits = false;
        if *phase == Phase::Running {
            let execd = self.waiting_execd(observed);
            match self.is_waiting(observed, execd.as_deref()).await {
                Ok(true) => waits = true,
                Ok(false) => return Ok(Asked::Used),
                Err(error @ RuntimeError::Unavailable { .. }) => return Err(error),
                Err(error) => {
                    warn!(sandbox = %id, error = %ErrorChain(&error), "a member of a pool does not answer");
                }
            }
        }
        let is_frozen = *phase == Phase::Paused;
        Ok(match self.pools_of_runtime()?.claim_mark(id).await? {
            ClaimMark::Present => Asked::Used,
            _ if waits => Asked::Waits,
            ClaimMark::Absent if is_frozen => Asked::Waits,
            ClaimMark::Unknown if self.inner.pools.is_orphan(id) => Asked::Used,
            ClaimMark::Unknown if is_frozen => Asked::Unknown,
            ClaimMark::Absent | ClaimMark::Unknown => Asked::Useless,
        })
    }

    /// Asks the runtime whether a member waits for a claim.
    async fn is_waiting(
        &self,
        observed: &Observed,
        execd: Option<&str>,
    ) -> Result<bool, RuntimeError> {
        let origin = &observed.origin;
        let pools = self.pools_of_runtime()?;
        pools.is_waiting(WaitingSandbox { origin, execd }).await
    }

    fn pools_of_runtime(&self) -> Result<&dyn osb_runtime::Pools, RuntimeError> {
        let runtime = &self.inner.runtime;
        runtime.pools().ok_or_else(|| RuntimeError::Unavailable {
            runtime: runtime.kind(),
            reason: "it has no pools".to_owned(),
        })
    }

    /// Takes a used sandbox without a claim out of its pool, with what clients have changed of it since
    /// an earlier process did the same.
    async fn set_free(&self, observed: Observed) {
        let id = observed.origin.id.clone();
        let changes = match self.inner.store.all_changes().await {
            Ok(mut stored) => stored.remove(&id).unwrap_or_default(),
            Err(error) => {
                // Without its renewal it might be removed as expired.
                warn!(sandbox = %id, error = %ErrorChain(&error), "it is not listed yet, will retry");
                return self.inner.pools.release(&id);
            }
        };
        warn!(
            sandbox = %id,
            "the store does not have the claim of this sandbox of a pool: it is kept until it is deleted"
        );
        let removed = async {
            // Its pool, or its template, may have been replaced since.
            for from in [
                MemberState::Ready,
                MemberState::Warming,
                MemberState::Draining,
            ] {
                self.inner.store.remove_member(&id, from).await?;
            }
            Ok::<_, StoreError>(())
        };
        match removed.await {
            Ok(()) => {
                self.inner.pools.forget(&id);
                self.inner.registry.put(Facts::found(observed, changes));
                // It may be to be removed.
                self.inner.nudge.notify_one();
            }
            Err(error) => {
                warn!(sandbox = %id, error = %ErrorChain(&error), "its row stays, will retry");
                self.inner.pools.release(&id);
            }
        }
    }
}

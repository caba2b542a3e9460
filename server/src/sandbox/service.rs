//! What the REST API and the console call.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use osb_protocol::{FieldError, SandboxId, WireTime, lifecycle::Endpoint};
use osb_runtime::{Expiry, Runtime};
use osb_service::Supervisor;
use osb_store::{HistoryEntry, Store};
use serde_json::Value;
use tokio::sync::{Notify, broadcast};
use tracing::info;

use super::{
    Change, EndpointQuery, Error, Execd, ListQuery, Page, PublicHost, Record, Registry,
    RuntimeHealth,
    endpoint::{self, Target},
    validate,
};

/// What the operator allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest `timeout` of a create, in seconds.
    pub max_timeout_seconds: Option<i64>,
    /// Whether every execd gets a token.
    pub execd_auth: bool,
    /// Whether a sandbox may ask for the rights that isolated sessions take.
    pub execd_isolation: bool,
    /// Longest time that a create waits for execd before it answers anyway.
    pub ready_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // SDKs give a create 30 s in all; a pull may have used most of it.
        Self {
            max_timeout_seconds: None,
            execd_auth: true,
            execd_isolation: true,
            ready_wait: Duration::from_secs(5),
        }
    }
}

/// The domain. Clones share it.
#[derive(Clone)]
pub struct Service {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) store: Arc<dyn Store>,
    pub(super) registry: Arc<Registry>,
    pub(super) tasks: Supervisor,
    pub(super) limits: Limits,
    pub(super) hosts: PublicHost,
    /// Wakes the reconciler.
    pub(super) nudge: Notify,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("runtime", &self.inner.runtime.kind())
            .finish()
    }
}

impl Service {
    /// Starts the domain: it follows the runtime, keeps deadlines and repairs what a crash left.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Store>,
        tasks: Supervisor,
        limits: Limits,
        hosts: PublicHost,
    ) -> Result<Self, Error> {
        let changes = store.all_changes().await?;
        let service = Self {
            inner: Arc::new(Inner {
                runtime,
                store,
                registry: Arc::default(),
                tasks: tasks.clone(),
                limits,
                hosts,
                nudge: Notify::new(),
            }),
        };
        super::events::start(service.clone(), changes);
        super::expiry::start(service.clone());
        super::reconcile::start(service.clone());
        Ok(service)
    }

    /// Which runtime.
    #[must_use]
    pub fn runtime_kind(&self) -> &'static str {
        self.inner.runtime.kind()
    }

    /// The registry: for reading and for following changes.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.inner.registry
    }

    /// The rules that a request to create breaks; none means it would be accepted.
    #[must_use]
    pub fn validate(&self, body: &Value) -> Vec<FieldError> {
        validate::request(body, &self.rules()).map_or_else(|error| error.fields(), |_| Vec::new())
    }

    pub(super) fn rules(&self) -> validate::Rules {
        validate::Rules {
            runtime: self.inner.runtime.kind(),
            max_timeout_seconds: self.inner.limits.max_timeout_seconds,
            execd_auth: self.inner.limits.execd_auth,
            execd_isolation: self.inner.limits.execd_isolation,
        }
    }

    /// Makes a sandbox and returns once clients may use it. The work goes on when the caller is
    /// dropped: nothing is left half made (contract: lifecycle §5.1).
    ///
    /// # Errors
    /// When a rule is broken or the runtime fails; then nothing of it is left.
    pub async fn create(&self, body: &Value) -> Result<Arc<Record>, Error> {
        let spec = validate::request(body, &self.rules())?;
        self.available()?;
        let unread = validate::unread(body);
        if !unread.is_empty() {
            info!(sandbox = %spec.id(), ?unread, "the request has members that mean nothing here");
        }
        self.provision(spec).await
    }

    /// One sandbox.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::RuntimeDown`] when nothing certain can be said.
    pub fn get(&self, id: &SandboxId) -> Result<Arc<Record>, Error> {
        self.available()?;
        self.known(id)
    }

    /// A page of sandboxes.
    ///
    /// # Errors
    /// [`Error::RuntimeDown`] when nothing certain can be said.
    pub fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        self.available()?;
        Ok(query.run(&self.inner.registry))
    }

    /// Replaces, adds and (with `None`) deletes metadata entries (contract: lifecycle §5.5).
    ///
    /// # Errors
    /// When an entry breaks the label grammar or the sandbox is gone.
    pub async fn patch_metadata(
        &self,
        id: &SandboxId,
        patch: BTreeMap<String, Option<String>>,
    ) -> Result<Arc<Record>, Error> {
        let locks = self.locks(id)?;
        validate::metadata_patch(&patch)?;
        let (service, id) = (self.clone(), id.clone());
        self.owned("patch", async move {
            let _one_at_a_time = locks.edit.lock().await;
            let mut metadata = service.known(&id)?.facts.metadata().clone();
            for (key, value) in patch {
                match value {
                    Some(value) => metadata.insert(key, value),
                    None => metadata.remove(&key),
                };
            }
            service.inner.store.set_metadata(&id, &metadata).await?;
            service.change(&id, |facts| {
                facts.changes.metadata = Some(metadata);
                Ok(())
            })
        })
        .await
    }

    /// Moves the expiry (contract: lifecycle §5.8). The expiry task may have begun to remove the
    /// sandbox meanwhile: then the renewal comes too late and is refused.
    ///
    /// # Errors
    /// When the time has passed, the sandbox has no expiry or is being removed.
    pub async fn renew(&self, id: &SandboxId, at: WireTime) -> Result<WireTime, Error> {
        let locks = self.locks(id)?;
        if at <= super::lifecycle::now() {
            return Err(Error::ExpiryPassed);
        }
        let (service, id) = (self.clone(), id.clone());
        self.owned("renew", async move {
            let _one_at_a_time = locks.edit.lock().await;
            let record = service.known(&id)?;
            if !matches!(record.facts.origin.expiry, Expiry::At(_)) {
                return Err(Error::NoExpiry(id));
            }
            refuse_deleted(&record.facts)?;
            service.inner.store.set_expiry(&id, at).await?;
            service.change(&id, |facts| {
                refuse_deleted(facts)?;
                facts.changes.expires_at = Some(at);
                Ok(())
            })?;
            Ok(at)
        })
        .await
    }

    /// Where a client reaches a port (contract: lifecycle §6).
    ///
    /// # Errors
    /// When the sandbox does not exist or has no address.
    pub fn endpoint(&self, id: &SandboxId, query: &EndpointQuery) -> Result<Endpoint, Error> {
        self.available()?;
        endpoint::for_client(&self.known(id)?.facts, query, &self.inner.hosts)
    }

    /// Where this server sends traffic for a port. Works while the runtime is away: what runs still
    /// answers.
    ///
    /// # Errors
    /// When the sandbox does not exist or has no address.
    pub fn proxy_target(&self, id: &SandboxId, port: u16) -> Result<Target, Error> {
        endpoint::for_proxy(&self.known(id)?.facts, port, &self.inner.hosts)
    }

    /// How this server reaches a sandbox's execd.
    ///
    /// # Errors
    /// When the sandbox does not exist or has no address.
    pub fn execd(&self, id: &SandboxId) -> Result<Execd, Error> {
        endpoint::for_execd(&self.known(id)?.facts, &self.inner.hosts)
    }

    /// The last lines that the sandbox's own command wrote.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, Error> {
        self.known(id)?;
        Ok(self.inner.runtime.log_tail(id, lines).await?)
    }

    /// What became of a sandbox that is gone, or of a create that failed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn history(&self, id: &SandboxId) -> Result<Option<HistoryEntry>, Error> {
        Ok(self.inner.store.history(id).await?)
    }

    /// The sandboxes that ended last, newest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn recent_history(&self, limit: u32) -> Result<Vec<HistoryEntry>, Error> {
        Ok(self.inner.store.recent_history(limit).await?)
    }

    /// Tells changes from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.inner.registry.subscribe()
    }

    /// Whether what the registry holds can be vouched for.
    ///
    /// # Errors
    /// [`Error::RuntimeDown`] with the reason.
    pub fn available(&self) -> Result<(), Error> {
        let reason = match self.inner.registry.health() {
            RuntimeHealth::Up => return Ok(()),
            RuntimeHealth::Starting => "it has not answered yet".to_owned(),
            RuntimeHealth::Down { reason } => reason,
        };
        Err(Error::RuntimeDown {
            runtime: self.inner.runtime.kind(),
            reason,
        })
    }

    pub(super) fn known(&self, id: &SandboxId) -> Result<Arc<Record>, Error> {
        self.inner
            .registry
            .get(id)
            .ok_or_else(|| Error::NotFound(id.clone()))
    }

    pub(super) fn locks(&self, id: &SandboxId) -> Result<Arc<super::registry::Locks>, Error> {
        self.available()?;
        self.inner
            .registry
            .locks(id)
            .ok_or_else(|| Error::NotFound(id.clone()))
    }

    pub(super) fn change(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut super::Facts) -> Result<(), Error>,
    ) -> Result<Arc<Record>, Error> {
        let changed = self.inner.registry.update(id, change);
        changed.unwrap_or_else(|| Err(Error::NotFound(id.clone())))
    }
}

fn refuse_deleted(facts: &super::Facts) -> Result<(), Error> {
    if facts.is_deleted() {
        return Err(Error::WrongState {
            id: facts.origin.id.clone(),
            state: "Stopping".to_owned(),
            needs: "it is being removed and cannot be renewed",
        });
    }
    Ok(())
}

//! What the REST API and the console call.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use osb_protocol::{
    FeatureSet, FieldError, SandboxId, WireTime,
    identity::Role,
    lifecycle::{Endpoint, NetworkPolicy},
    network_policy::Policy,
};
use osb_runtime::{
    Amendment, CreateSpec, EGRESS_PORT, Expiry, KeptBy, Origin, Runtime, SecureRuntime, Vocabulary,
    WarmSidecars,
};
use osb_service::Supervisor;
use osb_store::Store;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, broadcast, mpsc};
use tracing::info;

use super::{
    Change, EndpointQuery, Error, Execd, Facts, ForeignFiles, Hosts, Inner, Limits, ListQuery,
    Page, Record, Registry, RuntimeHealth, Service, Unanswered,
    diagnostics::without_tokens,
    endpoint::{self, Answering, Target},
    lifecycle::{IdSource, REMOVALS},
    pools::instead_of_member,
    quota::Owner,
    validate,
};
use crate::{
    audit::AuditTrail,
    identity::{Principal, Scope},
};

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
        hosts: Hosts,
        foreign: ForeignFiles,
    ) -> Result<Self, Error> {
        let left = super::events::StoredAtStart {
            changes: store.all_changes().await?,
            is_fresh: true,
            unanswered: store.all_unanswered().await?,
            imports: super::takeover::Imports::of(foreign, &*store).await?,
            has_found: false,
        };
        let left_unanswered = left.unanswered.iter().map(|create| create.id.clone());
        let left_unanswered = left_unanswered.collect();
        let trail = AuditTrail::start(Arc::clone(&store), limits.audit, &tasks);
        // Their creates ended before the claim, but may have shown the id.
        store.drain_used_members(super::lifecycle::now()).await?;
        let settings = super::pools::settings_digest(&*runtime, &limits);
        let (pools, members) = (store.all_pools().await?, store.all_members().await?);
        let pools = super::pools::Pools::new(pools, members, &settings);
        let abandoned = mpsc::unbounded_channel();
        let (renewals, accesses) = super::renewal::Renewals::new(limits.renewal);
        let service = Self {
            inner: Arc::new(Inner {
                registry: Arc::new(Registry::new(runtime.vocabulary())),
                runtime,
                store,
                tasks: tasks.clone(),
                limits,
                hosts,
                journal: super::journal::Journal::default(),
                command_reports: super::commands::CommandReports::default(),
                metrics: super::metrics::Metrics::default(),
                captures: Arc::default(),
                additions: tokio::sync::Mutex::default(),
                unneeded_snapshots: super::unneeded::Unneeded::default(),
                makings: Arc::default(),
                unneeded_templates: super::unneeded::Unneeded::default(),
                pools: Arc::new(pools),
                repeats: super::pools::Repeats::default(),
                under_way: super::once::KeyedCreates::default(),
                left_unanswered,
                abandoned: abandoned.0,
                removals: Semaphore::new(REMOVALS),
                tally: super::tally::Tally::default(),
                seen: super::ready::Seen::default(),
                trail,
                layers: super::disk::Layers::default(),
                unused_images: super::image_gc::UnusedImages::default(),
                renewals,
                nudge: Notify::new(),
            }),
            scope: Scope::All,
            act: None,
            owner: None,
            may_isolate: true,
        };
        super::events::start(service.clone(), left);
        super::answer::start(service.clone(), abandoned.1);
        super::disk::start(service.clone());
        super::expiry::start(service.clone());
        super::image_gc::start(service.clone());
        super::journal::start(service.clone());
        super::metrics::start(service.clone());
        super::commands::start(service.clone());
        super::reconcile::start(service.clone());
        super::pools::start(service.clone());
        super::renewal::start(service.clone(), accesses);
        Ok(service)
    }

    /// The same domain within a scope: other sandboxes do not exist there, and what is created there
    /// belongs to the scope's tenant.
    #[must_use]
    pub fn within(&self, scope: &Scope) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            scope: scope.clone(),
            act: None,
            owner: None,
            may_isolate: self.may_isolate && *scope == Scope::All,
        }
    }

    /// The same domain as it is for a principal: within its scope, with its rights, and what is created
    /// there is its own.
    #[must_use]
    pub fn for_principal(&self, principal: &Principal) -> Self {
        let within = self.within(&principal.scope);
        Self {
            may_isolate: within.may_isolate && principal.role == Role::ServiceAdmin,
            owner: Owner::of(principal),
            ..within
        }
    }

    /// Which runtime.
    #[must_use]
    pub fn runtime_kind(&self) -> &'static str {
        self.inner.runtime.kind()
    }

    /// What the runtime can do that not every runtime can.
    #[must_use]
    pub fn features(&self) -> FeatureSet {
        self.inner.runtime.features()
    }

    /// What sandboxes run under, if not as plain containers.
    #[must_use]
    pub fn secure_runtime(&self) -> Option<SecureRuntime> {
        self.inner.runtime.secure_runtime()
    }

    /// Counts of the runtime's warm sidecars, where it keeps some.
    #[must_use]
    pub fn warm_sidecars(&self) -> Option<WarmSidecars> {
        self.inner.runtime.warm_sidecars()
    }

    /// The network policy of sandboxes whose request has none, as JSON; `None` if they have none.
    #[must_use]
    pub fn default_policy(&self) -> Option<&str> {
        self.inner.limits.default_policy.as_deref()
    }

    /// Whether a network policy says the same as that of sandboxes whose request has none.
    #[must_use]
    pub fn is_default_policy(&self, policy: &NetworkPolicy) -> bool {
        let Some(default) = self.default_policy() else {
            return false;
        };
        let text = serde_json::to_vec(policy).unwrap_or_default();
        let parsed = (Policy::parse(default.as_bytes()), Policy::parse(&text));
        matches!(parsed, (Ok(default), Ok(policy)) if default.says_same(&policy))
    }

    /// Whether network policies are enforced for addresses, too, and not for names only.
    #[must_use]
    pub fn enforces_addresses(&self) -> bool {
        self.inner.limits.enforces_addresses
    }

    /// Longest life of a new sandbox, in seconds.
    #[must_use]
    pub fn max_timeout_seconds(&self) -> Option<i64> {
        self.inner.limits.max_timeout_seconds
    }

    /// The runtime's words for states and errors.
    #[must_use]
    pub fn vocabulary(&self) -> &'static Vocabulary {
        self.inner.runtime.vocabulary()
    }

    /// The registry of all sandboxes, whatever the scope: for following changes.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.inner.registry
    }

    /// The rules that a request to create breaks; none means it would be accepted.
    #[must_use]
    pub fn validate(&self, body: &Value) -> Vec<FieldError> {
        validate::request(body.clone(), &self.rules())
            .map_or_else(|error| error.fields(), |_| Vec::new())
    }

    pub(super) fn rules(&self) -> validate::Rules {
        validate::Rules {
            runtime: self.inner.runtime.kind(),
            features: self.inner.runtime.features(),
            secure: self.secure_runtime().map(|secure| secure.kind),
            max_timeout_seconds: self.inner.limits.max_timeout_seconds,
            execd_auth: self.inner.limits.execd_auth,
            execd_isolation: self.inner.limits.execd_isolation && self.may_isolate,
            default_policy: self.inner.limits.default_policy.clone(),
            storage: self.inner.limits.storage.clone(),
        }
    }

    /// Accepts a sandbox and returns its id while a task creates it. The registry shows its progress,
    /// and the history a failure.
    ///
    /// # Errors
    /// When a rule is broken or the runtime is unavailable.
    pub async fn accept(&self, body: Value) -> Result<SandboxId, Error> {
        let mut spec = self.check(body)?;
        self.resolve_source(&mut spec).await?;
        let mut plain = self.acquire(&mut spec).await?;
        loop {
            let id = spec.id().clone();
            let making = self.start_provision(spec, IdSource::List).await?;
            let Some(plain) = plain.take() else {
                return Ok(id);
            };
            // If its claim fails, the sandbox gets another id. A claim takes milliseconds.
            match making.await.unwrap_or(Err(Error::ShuttingDown)) {
                Ok(_) => return Ok(id),
                Err(error) => spec = instead_of_member(error, Some(plain))?,
            }
        }
    }

    /// Creates a sandbox and returns once clients may use it (contract: lifecycle §5.1). Only the
    /// answer carries its id: when this is dropped, or what comes with the record, no client will ever
    /// know the sandbox, and it is removed.
    ///
    /// # Errors
    /// When a rule is broken or the runtime fails; then nothing of it is left.
    pub async fn create_for_answer(&self, body: Value) -> Result<(Arc<Record>, Unanswered), Error> {
        let mut spec = self.check(body)?;
        self.resolve_source(&mut spec).await?;
        let mut plain = self.acquire(&mut spec).await?;
        loop {
            let unanswered = Unanswered::new(self, spec.id());
            match self.provision(spec, IdSource::Answer).await {
                Ok(record) => {
                    let id = &record.facts.origin.id;
                    self.inner.store.set_answered(id).await?;
                    return Ok((record, unanswered));
                }
                Err(error) => {
                    // Nothing is left to remove.
                    unanswered.answered();
                    spec = instead_of_member(error, plain.take())?;
                }
            }
        }
    }

    /// Checks a request to create by all rules, except for what the store says of its source. The
    /// sandbox may be one that the runtime has begun in advance, and gives to another create if this
    /// one does not get as far as the registry.
    pub(super) fn check(&self, body: Value) -> Result<CreateSpec, Error> {
        let checked = validate::request(body, &self.rules())?;
        self.available()?;
        let (mut spec, unread) = (checked.spec, checked.unread);
        spec.origin.tenant = self.scope.tenant().map(Arc::from);
        spec.origin.owner = self.owner.as_ref().map(Owner::tag);
        self.inner.runtime.prepare(&mut spec);
        if !unread.is_empty() {
            info!(sandbox = %spec.id(), ?unread, "the request has members that mean nothing here");
        }
        Ok(spec)
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
        Ok(query.run(&self.inner.registry, &self.scope))
    }

    /// Replaces, adds and (with `None`) deletes metadata entries (contract: lifecycle §5.5).
    ///
    /// # Errors
    /// When an entry breaks the label grammar, all entries are too long, or the sandbox is gone.
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
            let record = service.known(&id)?;
            let mut metadata = record.facts.metadata().clone();
            service.note_patch(&metadata, &patch);
            for (key, value) in patch {
                match value {
                    Some(value) => metadata.insert(key, value),
                    None => metadata.remove(&key),
                };
            }
            validate::patched_metadata(&metadata, record.facts.metadata())?;
            let change = Amendment {
                metadata: Some(metadata),
                ..Amendment::default()
            };
            let kept_by = service.keep_change(&record.facts.origin, &change).await?;
            service.change(&id, |facts| {
                facts.amend(change, kept_by);
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
        self.renew_if(id, at, |_| true).await
    }

    /// Moves the expiry like [`Self::renew`], if `allows` is true of the present one.
    ///
    /// # Errors
    /// Those of [`Self::renew`], and [`Error::Shortens`] when `allows` is false.
    pub async fn renew_if(
        &self,
        id: &SandboxId,
        at: WireTime,
        allows: impl Fn(WireTime) -> bool + Send + 'static,
    ) -> Result<WireTime, Error> {
        let locks = self.locks(id)?;
        if at <= super::lifecycle::now() {
            return Err(Error::ExpiryPassed);
        }
        let (service, id) = (self.clone(), id.clone());
        self.owned("renew", async move {
            let _one_at_a_time = locks.edit.lock().await;
            let known = service.known(&id)?.sandbox.expires_at;
            match known.filter(|known| !allows(*known)) {
                Some(until) => Err(Error::Shortens { id, until }),
                // One without an expiry cannot be renewed.
                None => service.move_expiry(&id, at).await,
            }
        })
        .await
    }

    /// Moves the expiry. The caller holds the sandbox's `edit` lock.
    pub(super) async fn move_expiry(
        &self,
        id: &SandboxId,
        at: WireTime,
    ) -> Result<WireTime, Error> {
        let record = self.known(id)?;
        if !matches!(record.facts.origin.expiry, Expiry::At(_)) {
            return Err(Error::NoExpiry(id.clone()));
        }
        refuse_deleted(&record.facts)?;
        let change = Amendment {
            expires_at: Some(at),
            ..Amendment::default()
        };
        let kept_by = self.keep_change(&record.facts.origin, &change).await?;
        self.note_renewal(&record.facts, at);
        self.change(id, |facts| {
            refuse_deleted(facts)?;
            facts.amend(change, kept_by);
            Ok(())
        })?;
        Ok(at)
    }

    /// Stores a change where this runtime's changes are stored: in the runtime, or in our store.
    async fn keep_change(&self, origin: &Origin, change: &Amendment) -> Result<KeptBy, Error> {
        let id = &origin.id;
        let kept_by = self.inner.runtime.write_back(id, change).await?;
        if kept_by == KeptBy::Caller {
            let (store, tenant) = (&self.inner.store, origin.tenant.as_deref());
            if let Some(at) = change.expires_at {
                store.set_expiry(id, at, tenant).await?;
            }
            if let Some(metadata) = &change.metadata {
                store.set_metadata(id, metadata, tenant).await?;
            }
        }
        Ok(kept_by)
    }

    /// Where a client reaches a port (contract: lifecycle §6).
    ///
    /// # Errors
    /// When the sandbox does not exist or is being removed, has no address, or does not run any more.
    pub async fn endpoint(&self, id: &SandboxId, query: &EndpointQuery) -> Result<Endpoint, Error> {
        self.available()?;
        let (runtime, hosts) = (&*self.inner.runtime, &self.inner.hosts);
        let record = self.known(id)?;
        if record.facts.is_deleted() {
            // What a client begins now would end in the middle.
            return Err(Error::NotFound(id.clone()));
        }
        match endpoint::for_client(runtime, hosts, &record.facts, query) {
            Err(error) => Err(self.with_last_output(error).await),
            found => found,
        }
    }

    /// Where this server sends traffic for a port of a sandbox, which is the one that the registry has
    /// under the id, if any. Works while the runtime is away: what runs still
    /// answers.
    ///
    /// # Errors
    /// When the sandbox does not exist or has no address.
    pub fn proxy_target(
        &self,
        id: &SandboxId,
        record: Option<Arc<Record>>,
        port: u16,
    ) -> Result<Target, Error> {
        let record = record.ok_or_else(|| Error::NotFound(id.clone()))?;
        let (runtime, hosts) = (&*self.inner.runtime, &self.inner.hosts);
        let route = endpoint::for_proxy(runtime, hosts, &record.facts, port)?;
        Ok(Target { record, route })
    }

    /// The way to a port through execd's proxy, for a program that its own way, `target`, does not
    /// reach: one that listens on the sandbox's loopback interface only.
    #[must_use]
    pub fn through_execd(&self, target: &Target, port: u16) -> Option<Target> {
        endpoint::through_execd(&*self.inner.runtime, &self.inner.hosts, target, port)
    }

    /// Where this server sends requests for the sidecar that enforces a sandbox's network policy.
    ///
    /// # Errors
    /// When the sandbox does not exist, has no network policy, or does not run.
    pub fn sidecar(&self, id: &SandboxId) -> Result<Target, Error> {
        self.note_sandbox_id(id);
        let record = self.known(id)?;
        self.note_sandbox(id);
        if record.facts.origin.egress_token.is_none() {
            return Err(Error::NoNetworkPolicy(id.clone()));
        }
        self.proxy_target(id, Some(record), EGRESS_PORT)
    }

    /// Whether a sandbox could answer what it was asked.
    #[must_use]
    pub fn answering(&self, id: &SandboxId) -> Answering {
        let record = self.inner.registry.get(id);
        record.map_or(Answering::Gone, |record| endpoint::answering(&record.facts))
    }

    /// Whether an address is that of a running sandbox.
    #[must_use]
    pub fn is_sandbox_address(&self, address: IpAddr) -> bool {
        self.inner.registry.has_address(address)
    }

    /// How this server reaches a sandbox's execd.
    ///
    /// # Errors
    /// When the sandbox does not exist or has no address.
    pub fn execd(&self, id: &SandboxId) -> Result<Execd, Error> {
        self.execd_of(&self.known(id)?.facts)
    }

    pub(super) fn execd_of(&self, facts: &Facts) -> Result<Execd, Error> {
        endpoint::for_execd(&*self.inner.runtime, &self.inner.hosts, facts)
    }

    /// The last lines that the sandbox's own command wrote, without the sandbox's tokens.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, Error> {
        let record = self.known(id)?;
        let tail = self.inner.runtime.log_tail(id, lines).await?;
        let masked = tail.into_iter().map(|line| without_tokens(&record, line));
        Ok(masked.collect())
    }

    /// Receives changes from now on.
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

    /// One sandbox as it was last known, whether or not the runtime answers.
    #[must_use]
    pub fn find(&self, id: &SandboxId) -> Option<Arc<Record>> {
        let record = self.inner.registry.get(id);
        record.filter(|record| self.scope.contains(record.facts.origin.tenant.as_deref()))
    }

    /// All sandboxes as they were last known, newest first, and the sequence number they stand at.
    #[must_use]
    pub fn snapshot(&self) -> (Vec<Arc<Record>>, u64) {
        let (mut records, seq) = self.inner.registry.snapshot();
        if self.scope != Scope::All {
            records.retain(|it| self.scope.contains(it.facts.origin.tenant.as_deref()));
        }
        (records, seq)
    }

    pub(super) fn known(&self, id: &SandboxId) -> Result<Arc<Record>, Error> {
        self.find(id).ok_or_else(|| Error::NotFound(id.clone()))
    }

    pub(super) fn locks(&self, id: &SandboxId) -> Result<Arc<super::registry::Locks>, Error> {
        self.note_sandbox_id(id);
        self.available()?;
        if self.scope != Scope::All {
            self.known(id)?;
        }
        self.note_sandbox(id);
        self.inner
            .registry
            .locks(id)
            .ok_or_else(|| Error::NotFound(id.clone()))
    }

    pub(super) fn change(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut Facts) -> Result<(), Error>,
    ) -> Result<Arc<Record>, Error> {
        let changed = self.inner.registry.update(id, change);
        changed.unwrap_or_else(|| Err(Error::NotFound(id.clone())))
    }
}

fn refuse_deleted(facts: &Facts) -> Result<(), Error> {
    if facts.is_deleted() {
        return Err(Error::WrongState {
            id: facts.origin.id.clone(),
            state: "Stopping".to_owned(),
            needs: "it is being removed and cannot be renewed",
        });
    }
    Ok(())
}

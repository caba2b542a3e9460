//! The domain for the console's pages.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use axum::http::StatusCode;
use futures::{StreamExt, TryStreamExt};
use osb_app::{
    backend::{AccessBackend, ConsoleBackend, EventsBackend, SettingsBackend},
    create::preset_images,
    error::ConsoleError,
    live::{LogLine, LogStream},
    view::{
        BulkAct, BulkEnd, BulkResult, Diagnosis, DiagnosisEvent, HostImage, HostImages, LOOKS_ONLY,
        Original, Overview, PortAddress, SandboxDetail, SandboxRow, ServerInfo, StageState,
        TemplateBuilds, extends, is_alive,
    },
};
use osb_protocol::{
    FieldError, SandboxId, WireTime,
    identity::Role,
    lifecycle::{MetricsHistory, Sandbox, SandboxCommand, SandboxState},
};
use osb_runtime::{LocalImage, LogFollow};
use osb_service::ErrorChain;
use osb_store::Store;
use serde_json::Value;

use super::{
    super::{audited::Noted, error::answer_to},
    ConsoleState,
    accounts::Access,
    daemons::Daemons,
    ended,
    events::Events,
    for_request::ForRequest,
    installation::SharedInstallation,
    memory::Memory,
    originals, overview,
    refusal::refused,
    session::Admitted,
    settings::Settings,
    stages,
};
use crate::{
    audit::Act,
    identity::{Authenticator, Principal, Scope},
    sandbox::{Builds, EndpointQuery, Error, Record, Service, explain, metrics::Step},
    webhooks::Webhooks,
};

/// Lines of output shown for a sandbox that failed.
const LOG_LINES: usize = 40;
/// Lines that the logs tab is rendered with.
const TAIL_LINES: usize = 200;
/// Health checks among the events of the diagnostics tab.
const CHECKS: usize = 20;
/// Commands that the run tab lists.
pub(super) const COMMANDS: u32 = 200;
/// Sandboxes of a bulk action that are worked on at the same time.
const BULK_AT_ONCE: usize = 8;

/// Makes the domain of each principal. Clones share it.
#[derive(Clone)]
pub(super) struct Domains {
    /// The domain.
    pub(super) service: Service,
    /// Keeps sessions.
    pub(super) store: Arc<dyn Store>,
    /// Users, keys and tenants.
    pub(super) keys: Arc<Authenticator>,
    /// Subscriptions to events.
    pub(super) webhooks: Option<Webhooks>,
    /// Configuration and store, where the process knows them.
    pub(super) installation: Option<SharedInstallation>,
}

impl Domains {
    /// Settings and health.
    pub(super) fn settings(&self, principal: &Arc<Principal>) -> Arc<dyn SettingsBackend> {
        Arc::new(Settings::new(
            self.service(&principal.scope),
            self.webhooks.clone(),
            self.installation.clone(),
            Arc::clone(principal),
        ))
    }

    /// The audit trail.
    pub(super) fn events(&self, principal: &Arc<Principal>) -> Arc<dyn EventsBackend> {
        let trail = self.service.audit_trail().clone();
        Arc::new(Events::new(trail, Arc::clone(principal)))
    }

    /// Users, keys and sessions, for the act of a request.
    pub(super) fn access(&self, admitted: &Admitted, noted: Noted) -> Arc<dyn AccessBackend> {
        let (store, keys) = (Arc::clone(&self.store), Arc::clone(&self.keys));
        Arc::new(Access::new(store, keys, admitted.clone(), noted))
    }

    /// The domain of a principal, for the act of a request. Without `daemons` it asks no sidecar.
    pub(super) fn of(
        &self,
        principal: &Principal,
        noted: Noted,
        daemons: Option<Daemons>,
    ) -> Arc<dyn ConsoleBackend> {
        let service = self.service.for_principal(principal);
        Arc::new(Domain {
            service: service.noting(noted.0.clone()),
            daemons,
            noted,
            may_change: principal.role >= Role::Operator,
            sees_host: principal.scope == Scope::All && principal.role >= Role::Operator,
            memory: Memory::of_request(),
        })
    }

    /// The domain within a scope, for reading.
    pub(super) fn within(&self, scope: &Scope) -> Arc<dyn ConsoleBackend> {
        Arc::new(Domain {
            service: self.service.within(scope),
            daemons: None,
            noted: Noted::default(),
            may_change: false,
            sees_host: false,
            memory: Memory::default(),
        })
    }

    /// The service within a scope.
    pub(super) fn service(&self, scope: &Scope) -> Service {
        self.service.within(scope)
    }

    /// Whether a principal may have images of templates built.
    fn builds(&self, principal: Option<&Principal>) -> TemplateBuilds {
        let scope = principal.map(|it| it.scope.clone()).unwrap_or_default();
        match self.service.template_limits().builds(&scope) {
            Builds::Allowed => TemplateBuilds::Allowed,
            Builds::Off => TemplateBuilds::Off,
            Builds::OffForTenants => TemplateBuilds::OffForTenants,
        }
    }

    /// What the frame says about the server.
    pub(super) fn info(&self, principal: Option<&Principal>) -> ServerInfo {
        ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime: self.service.runtime_kind().to_owned(),
            secure_runtime: self.service.secure_runtime().map(|it| it.to_string()),
            features: self.service.features(),
            key_required: self.keys.is_required(),
            has_users: self.keys.accounts().has_users(),
            max_timeout_seconds: self.service.max_timeout_seconds(),
            has_previews: false,
            has_default_policy: self.service.default_policy().is_some(),
            enforces_addresses: self.service.enforces_addresses(),
            builds: self.builds(principal),
            identity: principal.map(Principal::identity),
        }
    }
}

impl ForRequest for Arc<dyn ConsoleBackend> {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        let daemons = Daemons::for_request(state, admitted, noted.clone());
        state.domains.of(admitted.principal(), noted, Some(daemons))
    }
}

impl ForRequest for Arc<dyn AccessBackend> {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        state.domains.access(admitted, noted)
    }
}

/// [`ConsoleBackend`] over the service that the REST API calls too.
struct Domain {
    service: Service,
    /// Reaches sidecars.
    daemons: Option<Daemons>,
    /// The act of the request.
    noted: Noted,
    /// Whether the caller's role allows changes.
    may_change: bool,
    /// Whether the caller may know what else is on the host.
    sees_host: bool,
    /// What the request has read.
    memory: Memory,
}

impl Domain {
    /// The result of an act for a page. Forms are answered with a redirect in any case, so the act
    /// learns from here why it was refused.
    fn done<T>(&self, result: Result<T, Error>) -> Result<T, ConsoleError> {
        let codes = &self.service.vocabulary().codes;
        let failure = result.as_ref().err();
        self.noted
            .settle(failure.map(|error| answer_to(error, codes)));
        result.map_err(refused)
    }

    /// A sandbox that is gone.
    async fn remembered(&self, id: &SandboxId) -> Result<SandboxDetail, ConsoleError> {
        let entry = self.service.history(id).await.map_err(refused)?;
        entry.map(ended::detail).ok_or(ConsoleError::NotFound)
    }

    /// The domain for an act on one of several sandboxes.
    fn with_act(&self, act: Option<Act>) -> Self {
        Self {
            service: self.service.clone().noting(act.clone()),
            daemons: None,
            noted: Noted(act),
            may_change: self.may_change,
            sees_host: self.sees_host,
            memory: Memory::default(),
        }
    }

    /// Does one act of a bulk action.
    async fn bulk_one(&self, act: BulkAct, id: &SandboxId) -> BulkEnd {
        if let Some(why) = self.has_no_effect(act, id) {
            if let Some(noted) = &self.noted.0 {
                noted.note("skipped", why.into());
            }
            return BulkEnd::Skipped(why.to_owned());
        }
        let result = match act {
            BulkAct::Extend(at) => self.renew(id, at, false).await.map(drop),
            BulkAct::Pause => self.pause(id).await,
            BulkAct::Resume => self.resume(id).await,
            BulkAct::Delete => self.delete(id).await,
        };
        match result {
            Ok(()) => BulkEnd::Done,
            Err(ConsoleError::Shortens { until }) => {
                BulkEnd::Skipped(format!("it lives until {until} already"))
            }
            Err(error) => BulkEnd::Failed(error.to_string()),
        }
    }

    /// Why an act would change nothing.
    fn has_no_effect(&self, act: BulkAct, id: &SandboxId) -> Option<&'static str> {
        let record = self.service.find(id)?;
        let sandbox = &record.sandbox;
        match (act, &sandbox.status.state) {
            (BulkAct::Extend(_), state) if is_alive(state) && sandbox.expires_at.is_none() => {
                Some("it has no expiry")
            }
            (BulkAct::Pause, SandboxState::Paused) => Some("it is paused already"),
            (BulkAct::Resume, SandboxState::Running) => Some("it runs already"),
            (BulkAct::Delete, SandboxState::Stopping) => Some("it is being deleted already"),
            _ => None,
        }
    }
}

#[async_trait]
impl ConsoleBackend for Domain {
    fn sandboxes(&self) -> Vec<SandboxRow> {
        let (records, _) = self.service.snapshot();
        records.iter().map(|record| row(record)).collect()
    }

    async fn overview(&self) -> Overview {
        overview::of(&self.service, self.sees_host).await
    }

    fn trouble(&self) -> Option<String> {
        self.service
            .available()
            .err()
            .map(|error| explain(ErrorChain(&error).to_string(), error.cause()))
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<SandboxDetail, ConsoleError> {
        let Some(record) = self.service.find(id) else {
            return self.remembered(id).await;
        };
        let ended = [SandboxState::Failed, SandboxState::Terminated];
        let log_tail = if ended.contains(&record.sandbox.status.state) {
            // Without the output the rest of the page is still useful.
            self.service
                .log_tail(id, LOG_LINES)
                .await
                .unwrap_or_default()
        } else {
            Vec::new()
        };
        Ok(detail(&record, log_tail))
    }

    fn validate(&self, body: &Value) -> Vec<FieldError> {
        self.service.validate(body)
    }

    async fn images(&self) -> HostImages {
        let images = self.service.images().await.map(|images| {
            // Names of other images could reveal one tenant to another.
            let may_know = |image: &LocalImage| {
                self.sees_host || preset_images().any(|preset| preset == image.reference)
            };
            let known = images.into_iter().filter(may_know);
            known
                .map(|image| HostImage {
                    reference: image.reference,
                    bytes: image.bytes,
                })
                .collect()
        });
        let host = match self.sees_host {
            true => self.service.host().await,
            false => None,
        };
        HostImages {
            images,
            of_presets_only: !self.sees_host,
            memory_bytes: host.map(|host| host.memory_bytes),
        }
    }

    async fn create(&self, body: Value) -> Result<SandboxId, ConsoleError> {
        self.done(self.service.accept(body).await)
    }

    fn refuse_create(&self, problems: Vec<FieldError>) -> Result<SandboxId, ConsoleError> {
        self.done(Err(Error::Invalid(problems)))
    }

    async fn original(&self, id: &SandboxId) -> Result<Original, ConsoleError> {
        // The form is a page, which others may see as well.
        if !self.may_change {
            let message = LOOKS_ONLY.to_owned();
            return Err(ConsoleError::Refused { message });
        }
        let read = async {
            let original = originals::read(&self.service, self.daemons.as_ref(), id).await;
            original.map_err(refused)
        };
        self.memory
            .once(format!("original/{id}"), Box::pin(read))
            .await
    }

    async fn create_copy(
        &self,
        body: Value,
        of: &SandboxId,
        variables: Vec<String>,
    ) -> Result<SandboxId, ConsoleError> {
        self.done(self.service.accept_copy(body, of, &variables).await)
    }

    async fn renew(
        &self,
        id: &SandboxId,
        expires_at: WireTime,
        may_shorten: bool,
    ) -> Result<WireTime, ConsoleError> {
        let allows = move |known| may_shorten || extends(Some(known), expires_at);
        self.done(self.service.renew_if(id, expires_at, allows).await)
    }

    async fn delete(&self, id: &SandboxId) -> Result<(), ConsoleError> {
        self.done(self.service.delete(id, false).await)
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), ConsoleError> {
        self.done(self.service.pause(id).await)
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), ConsoleError> {
        self.done(self.service.resume(id).await)
    }

    async fn change_labels(
        &self,
        id: &SandboxId,
        patch: BTreeMap<String, Option<String>>,
    ) -> Result<(), ConsoleError> {
        let changed = self.service.patch_metadata(id, patch).await;
        self.done(changed.map(drop))
    }

    async fn log(&self, id: &SandboxId) -> Result<Vec<LogLine>, ConsoleError> {
        let read = async {
            let wanted = LogFollow {
                tail: TAIL_LINES,
                since: None,
                follow: false,
            };
            let lines = match self.service.open_log(id, wanted).await {
                Ok(lines) => lines.take(TAIL_LINES),
                // It has no container yet.
                Err(Error::NotFound(_)) if self.service.find(id).is_some() => return Ok(Vec::new()),
                Err(error) => return Err(refused(error)),
            };
            let lines: Result<Vec<_>, _> = lines.try_collect().await;
            let lines = lines.map_err(|error| refused(error.into()))?;
            Ok(lines.into_iter().map(on_wire).collect())
        };
        self.memory.once(format!("log/{id}"), read).await
    }

    async fn metrics(
        &self,
        id: &SandboxId,
        step_seconds: u32,
    ) -> Result<MetricsHistory, ConsoleError> {
        let read = async {
            let refuse = |message: &str| ConsoleError::Refused {
                message: message.to_owned(),
            };
            if !self.service.has_metrics() {
                return Err(refuse(
                    "Metrics are turned off, or not available on this runtime.",
                ));
            }
            let step = usize::try_from(step_seconds)
                .ok()
                .and_then(Step::of_seconds);
            let step = step.ok_or_else(|| refuse("steps have 10 or 60 seconds"))?;
            self.service.metrics(id, step).await.map_err(refused)
        };
        self.memory
            .once(format!("metrics/{id}/{step_seconds}"), read)
            .await
    }

    async fn diagnosis(&self, id: &SandboxId) -> Result<Diagnosis, ConsoleError> {
        let read = async {
            let events = self.service.diagnostic_events(id, CHECKS).await;
            let events = events.map_err(refused)?.into_iter();
            let inspection = self.service.diagnostic_inspect(id).await.map_err(refused)?;
            let events = events.map(|event| DiagnosisEvent {
                at: event.at,
                name: event.name.to_owned(),
                text: event.text,
            });
            let raw = self.service.diagnostic_raw(id).await.map_err(refused)?;
            Ok(Diagnosis {
                events: events.collect(),
                inspection,
                raw,
            })
        };
        self.memory.once(format!("diagnosis/{id}"), read).await
    }

    async fn commands(&self, id: &SandboxId) -> Result<Vec<SandboxCommand>, ConsoleError> {
        let read = async {
            if !self.service.has_commands() {
                return Err(ConsoleError::Refused {
                    message: "The commands of sandboxes are not recorded on this server."
                        .to_owned(),
                });
            }
            let found = match self.service.commands(id, COMMANDS).await {
                Ok(list) => list.commands,
                // It is known, but ran nothing.
                Err(Error::NotFound(_))
                    if self.service.history(id).await.is_ok_and(|it| it.is_some()) =>
                {
                    Vec::new()
                }
                Err(error) => return Err(refused(error)),
            };
            Ok(found)
        };
        self.memory.once(format!("commands/{id}"), read).await
    }

    async fn interrupt(&self, id: &SandboxId, started_at: WireTime) -> Result<(), ConsoleError> {
        self.done(self.service.interrupt_command(id, started_at).await)
    }

    async fn bulk(&self, act: BulkAct, ids: Vec<SandboxId>) -> Vec<BulkResult> {
        // Each sandbox has an entry of its own in the audit trail.
        let acts = self.noted.0.as_ref().map(|noted| noted.split(&ids));
        let mut acts = acts.unwrap_or_default().into_iter();
        let each = ids.into_iter().map(|id| {
            let noted = acts.next();
            let domain = self.with_act(noted.clone());
            async move {
                let end = domain.bulk_one(act, &id).await;
                if let Some(noted) = noted {
                    noted.finish(StatusCode::OK.as_u16(), None);
                }
                BulkResult { id, end }
            }
        });
        futures::stream::iter(each)
            .buffered(BULK_AT_ONCE)
            .collect()
            .await
    }

    async fn ended(&self, skip: usize, limit: usize) -> Result<Vec<SandboxRow>, ConsoleError> {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let entries = self.service.recent_history(number(skip), number(limit));
        let entries = entries.await.map_err(refused)?;
        Ok(entries.into_iter().map(ended::row).collect())
    }

    async fn ended_count(&self, most: usize) -> Result<usize, ConsoleError> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let count = self.service.count_history(most).await.map_err(refused)?;
        Ok(count as usize)
    }

    async fn port(&self, id: &SandboxId, port: u16) -> Result<PortAddress, ConsoleError> {
        let read = async {
            let endpoint = async |through_proxy| {
                let query = EndpointQuery {
                    port,
                    proxy_base: "/v1".to_owned(),
                    through_proxy,
                };
                self.service.endpoint(id, &query).await.map_err(refused)
            };
            let (direct, proxied) = (endpoint(false).await?, endpoint(true).await?);
            // Their values are secrets.
            let names = |headers: BTreeMap<String, String>| headers.into_keys().collect();
            // The API's answer has what execd wants, which the proxy does not talk to for other ports
            // where it reaches them directly.
            let is_secured = direct.endpoint.starts_with('/');
            let target = self.service.proxy_target(id, self.service.find(id), port);
            let is_open = !is_secured && target.is_ok_and(|it| it.execd_token().is_none());
            let proxied_headers = match is_open {
                true => Vec::new(),
                false => names(proxied.headers),
            };
            Ok(PortAddress {
                port,
                direct: direct.endpoint,
                direct_headers: names(direct.headers),
                proxied: format!("{}/", proxied.endpoint),
                proxied_headers,
            })
        };
        self.memory.once(format!("port/{id}/{port}"), read).await
    }
}

/// A line of a log as pages get it.
pub(super) fn on_wire(line: osb_runtime::LogLine) -> LogLine {
    let stream = match line.stream {
        osb_runtime::LogStream::Output => LogStream::Output,
        osb_runtime::LogStream::Error => LogStream::Error,
    };
    LogLine(line.at.map_or(0, WireTime::unix_us), stream, line.text)
}

/// One row of the list.
/// The sandbox as lists show it: without its entry point, which may be long.
pub(super) fn row(record: &Record) -> SandboxRow {
    let sandbox = Sandbox {
        entrypoint: Vec::new(),
        ..record.sandbox.clone()
    };
    SandboxRow {
        sandbox,
        stage: stage(record),
        tenant: record.facts.origin.tenant.as_deref().map(str::to_owned),
        ended: None,
    }
}

/// The stage of a sandbox that is being created.
fn stage(record: &Record) -> Option<String> {
    if record.sandbox.status.state != SandboxState::Pending {
        return None;
    }
    let mut stages = stages::of_record(record).into_iter();
    let current = stages.find(|stage| stage.state == StageState::Current);
    current.map(|stage| stage.name)
}

fn detail(record: &Record, log_tail: Vec<String>) -> SandboxDetail {
    SandboxDetail {
        sandbox: record.sandbox.clone(),
        stages: stages::of_record(record),
        resources: record.facts.origin.resources.clone(),
        template: record.facts.origin.source.template_id().map(str::to_owned),
        log_tail,
        ended: None,
    }
}

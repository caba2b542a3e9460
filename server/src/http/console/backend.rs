//! The domain for the console's pages.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use osb_app::{
    backend::ConsoleBackend,
    error::ConsoleError,
    live::{LogLine, LogStream},
    view::{PortAddress, SandboxDetail, SandboxRow, ServerInfo, StageState, extends},
};
use osb_protocol::{
    FieldError, SandboxId, WireTime,
    lifecycle::{ImageRef, MetricsHistory, Sandbox, SandboxState, SandboxStatus},
};
use osb_runtime::LogFollow;
use osb_service::ErrorChain;
use osb_store::{HistoryEntry, Outcome};
use serde_json::Value;

use super::{
    super::{audited::Noted, error::answer_to},
    stages,
};
use crate::{
    identity::{Authenticator, Principal, Scope},
    sandbox::{EndpointQuery, Error, Record, Service, explain, metrics::Step},
};

/// Lines of output shown for a sandbox that failed.
const LOG_LINES: usize = 40;
/// Lines that the logs tab is rendered with.
const TAIL_LINES: usize = 200;

/// Makes the domain of each principal. Clones share it.
#[derive(Clone)]
pub(super) struct Domains {
    service: Service,
    keys: Arc<Authenticator>,
}

impl Domains {
    pub(super) fn new(service: Service, keys: Arc<Authenticator>) -> Self {
        Self { service, keys }
    }

    /// The domain of a principal, for the act of a request.
    pub(super) fn of(&self, principal: &Principal, noted: Noted) -> Arc<dyn ConsoleBackend> {
        let service = self.service.for_principal(principal);
        Arc::new(Domain {
            service: service.noting(noted.0.clone()),
            noted,
        })
    }

    /// The domain within a scope, for reading.
    pub(super) fn within(&self, scope: &Scope) -> Arc<dyn ConsoleBackend> {
        Arc::new(Domain {
            service: self.service.within(scope),
            noted: Noted::default(),
        })
    }

    /// The service within a scope.
    pub(super) fn service(&self, scope: &Scope) -> Service {
        self.service.within(scope)
    }

    /// What the frame says about the server.
    pub(super) fn info(&self, principal: Option<&Principal>) -> ServerInfo {
        ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime: self.service.runtime_kind().to_owned(),
            features: self.service.features(),
            key_required: self.keys.is_required(),
            has_users: self.keys.accounts().has_users(),
            identity: principal.map(Principal::identity),
        }
    }
}

/// [`ConsoleBackend`] over the service that the REST API calls too.
struct Domain {
    service: Service,
    /// The act of the request.
    noted: Noted,
}

impl Domain {
    /// The result of an act for a page. Forms are answered with a redirect in any case, so the act
    /// learns from here why it was refused.
    fn done<T>(&self, result: Result<T, Error>) -> Result<T, ConsoleError> {
        if let Some(act) = &self.noted.0 {
            let codes = &self.service.vocabulary().codes;
            let failure = result.as_ref().err().map(|error| {
                let (status, code) = answer_to(error, codes);
                (status.as_u16(), code)
            });
            act.settle(failure);
        }
        result.map_err(refused)
    }

    /// A sandbox that is gone but left a reason: a failed create, or one that vanished.
    async fn remembered(&self, id: &SandboxId) -> Result<SandboxDetail, ConsoleError> {
        let entry = self.service.history(id).await.map_err(refused)?;
        entry
            .filter(is_worth_showing)
            .map(of_history)
            .ok_or(ConsoleError::NotFound)
    }
}

fn is_worth_showing(entry: &HistoryEntry) -> bool {
    matches!(
        entry.outcome,
        Outcome::CreateFailed | Outcome::Abandoned | Outcome::Vanished
    )
}

#[async_trait]
impl ConsoleBackend for Domain {
    fn sandboxes(&self) -> Vec<SandboxRow> {
        let (records, _) = self.service.snapshot();
        records.iter().map(|record| row(record)).collect()
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

    async fn create(&self, body: Value) -> Result<SandboxId, ConsoleError> {
        self.done(self.service.accept(body))
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

    async fn log(&self, id: &SandboxId) -> Result<Vec<LogLine>, ConsoleError> {
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
    }

    async fn metrics(
        &self,
        id: &SandboxId,
        step_seconds: u32,
    ) -> Result<MetricsHistory, ConsoleError> {
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
    }

    async fn port(&self, id: &SandboxId, port: u16) -> Result<PortAddress, ConsoleError> {
        let query = EndpointQuery {
            port,
            proxy_base: "/v1".to_owned(),
            through_proxy: false,
        };
        let endpoint = self.service.endpoint(id, &query).map_err(refused)?;
        Ok(PortAddress {
            port,
            direct: endpoint.endpoint,
            proxied: format!("/v1/sandboxes/{id}/proxy/{port}/"),
        })
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
pub(super) fn row(record: &Record) -> SandboxRow {
    SandboxRow {
        sandbox: record.sandbox.clone(),
        stage: stage(record),
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
        log_tail,
    }
}

fn of_history(entry: HistoryEntry) -> SandboxDetail {
    SandboxDetail {
        stages: stages::of_history(&entry),
        resources: Default::default(),
        log_tail: Vec::new(),
        sandbox: Sandbox {
            id: entry.id,
            image: Some(ImageRef { uri: entry.image }),
            snapshot_id: None,
            platform: None,
            status: SandboxStatus {
                state: SandboxState::Failed,
                reason: Some(entry.reason),
                message: Some(entry.message),
                last_transition_at: Some(entry.ended_at),
            },
            metadata: Default::default(),
            extensions: Default::default(),
            entrypoint: Vec::new(),
            expires_at: None,
            created_at: entry.created_at,
        },
    }
}

/// The domain's error as a page shows it.
fn refused(error: Error) -> ConsoleError {
    let problems = error.fields();
    match error {
        Error::NotFound(_) => ConsoleError::NotFound,
        Error::Shortens { until, .. } => ConsoleError::Shortens { until },
        _ if !problems.is_empty() => ConsoleError::Invalid { problems },
        other => ConsoleError::Refused {
            // The causes hold the runtime's own words, which explain the refusal.
            message: explain(ErrorChain(&other).to_string(), other.cause()),
        },
    }
}

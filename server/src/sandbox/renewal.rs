//! Renewal on access (contract: lifecycle §20).
//!
//! A sandbox that was created with an extension lives on while it is used: an access moves its expiry
//! to that many seconds from now, unless it is later already. Accesses come by the thousand, so most are
//! decided by a look at the record; a renewal takes a write to the store, and a throttle gives each
//! sandbox few of them. An access is neither delayed nor failed by it.

use std::{sync::Arc, time::Duration};

use osb_protocol::{SandboxId, WireTime, lifecycle::SandboxState};
use osb_service::ErrorChain;
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tracing::{debug, info, warn};

use super::{Error, Record, Service, lifecycle::now};

/// Least time between two renewals of a sandbox for accesses that a gateway reports: the gateway has an
/// interval of its own.
const QUEUE_INTERVAL: Duration = Duration::from_secs(1);

/// How accesses renew sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalLimits {
    /// Least time between two renewals of one sandbox. At most half of its extension counts: otherwise
    /// a sandbox that is in use could expire.
    pub min_interval: Duration,
    /// Renewals at once.
    pub concurrency: usize,
}

/// Where an access was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSource {
    /// In this server's proxy.
    ServerProxy,
    /// In a gateway, which reports it through Redis.
    RedisQueue,
}

impl AccessSource {
    /// Name for the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServerProxy => "server_proxy",
            Self::RedisQueue => "redis_queue",
        }
    }
}

/// Accesses whose renewal is to be stored.
pub(super) struct Renewals {
    limits: Option<RenewalLimits>,
    started: Instant,
    /// The throttle lets each sandbox be in it once at most, which bounds it.
    due: mpsc::UnboundedSender<Due>,
}

/// A renewal to be made.
pub(super) struct Due {
    id: SandboxId,
    source: AccessSource,
}

impl Renewals {
    pub(super) fn new(limits: Option<RenewalLimits>) -> (Self, mpsc::UnboundedReceiver<Due>) {
        let (due, receiver) = mpsc::unbounded_channel();
        let renewals = Self {
            limits,
            started: Instant::now(),
            due,
        };
        (renewals, receiver)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Starts the task that stores renewals.
pub(super) fn start(service: Service, mut due: mpsc::UnboundedReceiver<Due>) {
    let Some(limits) = service.inner.renewals.limits else {
        return;
    };
    info!(
        renew_event = "workers_started",
        workers = limits.concurrency,
        "accesses renew sandboxes"
    );
    let places = Arc::new(Semaphore::new(limits.concurrency));
    let tasks = service.inner.tasks.clone();
    tasks.clone().spawn_abortable("renewals", async move {
        while let Some(Due { id, source }) = due.recv().await {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let service = service.clone();
            tasks.spawn("renew on access", async move {
                service.renew_after_access(&id, source).await;
                drop(place);
            });
        }
    });
}

impl Service {
    /// Notes that a sandbox was used. Its expiry may move, soon after.
    pub fn note_access(&self, record: &Record, source: AccessSource) {
        let renewals = &self.inner.renewals;
        let (Some(limits), Some(extension)) = (renewals.limits, extension(record)) else {
            return;
        };
        let interval = match source {
            AccessSource::ServerProxy => limits.min_interval.min(extension / 2),
            AccessSource::RedisQueue => QUEUE_INTERVAL,
        };
        let id = &record.facts.origin.id;
        let Some(locks) = self.inner.registry.locks(id) else {
            return;
        };
        if !locks.renewal.begin(renewals.millis(), interval) {
            debug!(
                renew_source = source.as_str(),
                renew_sandbox_id = %id,
                renew_skip_reason = "throttled",
                "access does not renew"
            );
            return;
        }
        let id = id.clone();
        if renewals.due.send(Due { id, source }).is_err() {
            locks.renewal.end(renewals.millis(), true);
        }
    }

    /// Notes an access by the sandbox's id.
    pub fn note_access_by_id(&self, id: &SandboxId, source: AccessSource) {
        match self.inner.registry.get(id) {
            Some(record) => self.note_access(&record, source),
            None => debug!(
                renew_source = source.as_str(),
                renew_sandbox_id = %id,
                renew_skip_reason = "not_found",
                "access does not renew"
            ),
        }
    }

    async fn renew_after_access(&self, id: &SandboxId, source: AccessSource) {
        let Some(locks) = self.inner.registry.locks(id) else {
            return;
        };
        let renewed = {
            let _one_at_a_time = locks.edit.lock().await;
            self.extend(id).await
        };
        let renewals = &self.inner.renewals;
        locks.renewal.end(renewals.millis(), renewed.is_err());
        let source = source.as_str();
        match renewed {
            Ok(Some(at)) => info!(
                renew_event = "renew_succeeded",
                renew_source = source,
                renew_sandbox_id = %id,
                expires_at = %at,
                "renewed after an access"
            ),
            Ok(None) => {}
            Err(error) => warn!(
                renew_event = "renew_failed",
                renew_source = source,
                renew_sandbox_id = %id,
                error = %ErrorChain(&error),
                "an access could not renew"
            ),
        }
    }

    /// Moves the expiry of a sandbox by its extension, never to an earlier time. Returns the new one.
    /// The caller holds the sandbox's `edit` lock.
    async fn extend(&self, id: &SandboxId) -> Result<Option<WireTime>, Error> {
        let record = self.known(id)?;
        let Some(extension) = extension(&record) else {
            return Ok(None);
        };
        let seconds = i64::try_from(extension.as_secs()).unwrap_or(i64::MAX);
        let later = now().plus_seconds(seconds);
        match (later, record.facts.expires_at()) {
            (Some(later), Some(current)) if later > current => {
                self.move_expiry(id, later).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// How far an access moves the expiry of a sandbox; `None` if it does not.
fn extension(record: &Record) -> Option<Duration> {
    let seconds = record.facts.origin.renew_extend_seconds?;
    let is_running = record.sandbox.status.state == SandboxState::Running;
    let expires = record.sandbox.expires_at.is_some();
    (is_running && expires).then(|| Duration::from_secs(seconds.into()))
}

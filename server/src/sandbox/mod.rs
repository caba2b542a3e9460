//! The domain: what a sandbox is and what may be done with it. No HTTP, no Docker.
//!
//! * [`service`]: create, get, list, delete, renew, patch, endpoints. What the REST API and the
//!   console call.
//! * [`registry`]: every sandbox in memory, fed by the runtime's events; all reads come from it.
//! * [`facts`], [`record`], [`state`]: how the facts about a sandbox become what clients see.
//! * [`lifecycle`]: making and removing, one owner per sandbox.
//! * [`events`]: the runtime's events into the registry. [`failed_hooks`]: why a sandbox ended before
//!   its entry point started.
//! * [`journal`]: history that the store could not take yet. [`ready`]: what an operator asks.
//! * [`acts`]: what the audit trail learns of them.
//! * [`answer`], [`once`]: creates whose client goes away, or asks twice.
//! * [`renewal`]: accesses that move a deadline.
//! * [`expiry`]: deadlines. [`reconcile`]: what a crash or a fault left behind.
//! * [`tally`]: counts for operators. [`takeover`]: what another server kept in files.
//! * [`commands`]: what sandboxes report that they ran. [`metrics`]: resource use over time.
//! * [`diagnostics`]: texts for operators who look for a fault. [`explanation`]: causes with fixes.
//! * [`validate`]: the rules of a request. [`quota`]: what a tenant, a user or
//!   an API key may use. [`disk`]: how much of it is on disk.

pub mod activity;
mod acts;
mod answer;
pub mod commands;
pub mod copies;
pub mod diagnostics;
mod disk;
pub mod endpoint;
pub mod error;
mod events;
pub mod expiry;
mod explanation;
pub mod facts;
mod failed_hooks;
pub mod host;
mod images;
mod journal;
pub mod lifecycle;
pub mod list;
pub mod metrics;
pub mod once;
mod pause;
pub mod quota;
mod readiness;
mod ready;
pub mod reconcile;
pub mod record;
pub mod registry;
mod renewal;
mod renewal_throttle;
pub mod service;
pub mod state;
mod takeover;
mod tally;
pub mod validate;

use std::{sync::Arc, time::Duration};

use osb_protocol::SandboxId;
use osb_runtime::Runtime;
use osb_service::Supervisor;
use osb_store::Store;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::{
    audit::{Act, AuditLimits, AuditTrail},
    identity::Scope,
};

pub use answer::Unanswered;
pub use endpoint::{EndpointQuery, Execd, Hosts};
pub use error::{Error, VolumeFault};
pub use explanation::explain;
pub use facts::{Facts, StageAt};
pub use list::{ListQuery, Page};
pub use once::IdempotencyKey;
pub use quota::Quotas;
pub use record::Record;
pub use registry::{Change, Registry, RuntimeHealth};
pub use renewal::{AccessSource, RenewalLimits};
pub use takeover::ForeignFiles;

/// What the operator allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest `timeout` of a create, in seconds.
    pub max_timeout_seconds: Option<i64>,
    /// Whether every execd gets a token.
    pub execd_auth: bool,
    /// Whether a sandbox may ask for the rights that isolated sessions take.
    pub execd_isolation: bool,
    /// What the sandboxes of a tenant, a user or an API key may use together.
    pub quotas: Quotas,
    /// How much of the audit trail is kept.
    pub audit: AuditLimits,
    /// Longest time that a create waits for execd before it answers anyway.
    pub ready_wait: Duration,
    /// How accesses renew sandboxes; `None` if they do not.
    pub renewal: Option<RenewalLimits>,
    /// Whether resource use is recorded.
    pub metrics: bool,
    /// Whether the commands of sandboxes are stored.
    pub commands: bool,
    /// How long what is recorded of a sandbox is kept after its end, in seconds.
    pub history_seconds: i64,
}

impl Default for Limits {
    fn default() -> Self {
        // SDKs give a create 30 s in all; a pull may have used most of it.
        Self {
            max_timeout_seconds: None,
            execd_auth: true,
            execd_isolation: true,
            quotas: Quotas::default(),
            audit: AuditLimits::default(),
            ready_wait: Duration::from_secs(5),
            renewal: None,
            metrics: true,
            commands: true,
            history_seconds: 7 * 24 * 3600,
        }
    }
}

/// The domain, as it exists within a scope. Clones share it.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
    scope: Scope,
    /// The act that this is called for.
    act: Option<Act>,
    /// Whose sandboxes are created.
    owner: Option<quota::Owner>,
    /// Whether creates may ask for isolated sessions, with which root in a sandbox can become root on the
    /// host.
    may_isolate: bool,
}

struct Inner {
    runtime: Arc<dyn Runtime>,
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    tasks: Supervisor,
    limits: Limits,
    hosts: Hosts,
    /// History that waits for the store.
    journal: journal::Journal,
    /// Reports of commands.
    command_reports: commands::CommandReports,
    /// Resource use.
    metrics: metrics::Metrics,
    /// Creates with an idempotency key.
    under_way: once::KeyedCreates,
    /// Creates that an earlier server left unanswered.
    left_unanswered: Vec<SandboxId>,
    /// Sandboxes whose clients went away.
    abandoned: mpsc::UnboundedSender<SandboxId>,
    /// Places for removals.
    removals: Semaphore,
    /// What has happened since the start.
    tally: tally::Tally,
    /// For readiness.
    seen: ready::Seen,
    /// Who did what.
    trail: AuditTrail,
    /// Sizes of writable layers.
    layers: disk::Layers,
    /// Accesses that move deadlines.
    renewals: renewal::Renewals,
    /// Wakes the reconciler.
    nudge: Notify,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("runtime", &self.inner.runtime.kind())
            .finish()
    }
}

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
//! * [`leaving`]: creates that a removal in progress hinders. [`last_output`]: what a sandbox that ended
//!   wrote last.
//! * [`diagnostics`]: texts for operators who look for a fault. [`explanation`]: causes with fixes.
//! * [`snapshots`]: file systems of sandboxes, kept to create others from.
//! * [`pools`]: sandboxes that are started before they are needed.
//! * [`templates`]: images that are made ready, with what sandboxes from them run.
//! * [`room`], [`unneeded`]: disk that snapshots and templates take, and what of it none needs.
//! * [`default_policy`]: the network policy of sandboxes whose request has none.
//! * [`validate`]: the rules of a request. [`quota`]: what a tenant, a user or
//!   an API key may use. [`disk`]: how much of it is on disk.

pub mod activity;
mod acts;
mod answer;
pub mod commands;
pub mod copies;
pub mod default_policy;
pub mod diagnostics;
mod disk;
mod disk_full;
pub mod endpoint;
pub mod error;
mod events;
pub mod expiry;
mod explanation;
pub mod facts;
mod failed_hooks;
pub mod host;
mod image_gc;
mod images;
mod journal;
mod last_output;
mod leaving;
pub mod lifecycle;
pub mod list;
pub mod metrics;
pub mod once;
mod pause;
pub mod pool_error;
pub mod pools;
pub mod quota;
mod readiness;
mod ready;
pub mod reconcile;
pub mod record;
pub mod registry;
mod renewal;
mod renewal_throttle;
mod room;
pub mod service;
pub mod snapshot_error;
pub mod snapshots;
pub mod state;
mod takeover;
mod tally;
pub mod template_error;
pub mod templates;
mod too_many;
mod unneeded;
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
pub use disk_full::DiskFull;
pub use endpoint::{EndpointQuery, Execd, Hosts};
pub use error::{Error, VolumeFault};
pub use explanation::explain;
pub use facts::{Facts, StageAt};
pub use image_gc::ImageGcLimits;
pub use images::ImageUse;
pub use list::{ListQuery, Page};
pub use once::IdempotencyKey;
pub use pool_error::PoolError;
pub use pools::{PoolCounts, PoolFailure, PoolLimits, PoolOverview, TemplateOverview};
pub use quota::Quotas;
pub use record::Record;
pub use registry::{Change, Registry, RuntimeHealth};
pub use renewal::{AccessSource, RenewalLimits};
pub use snapshot_error::SnapshotError;
pub use snapshots::{SnapshotListQuery, SnapshotPage};
pub use takeover::ForeignFiles;
pub use template_error::TemplateError;
pub use templates::{TemplateEntry, TemplateListQuery, TemplatePage};
pub use too_many::TooMany;

/// Which volumes sandboxes may have.
#[derive(Clone, Debug)]
pub struct StorageRules {
    /// Directories of the host that sandboxes may get, with what is below; none allows none.
    pub allowed_host_paths: Vec<String>,
    /// Names of further options of the programs that mount buckets.
    pub ossfs_options: Vec<String>,
    /// Whether this server sees the files of the runtime's host.
    pub sees_host: bool,
}

impl StorageRules {
    /// No directory of the host, and buckets with harmless options.
    pub const NONE: Self = Self {
        allowed_host_paths: Vec::new(),
        ossfs_options: Vec::new(),
        sees_host: true,
    };
}

impl Default for StorageRules {
    fn default() -> Self {
        Self::NONE
    }
}

/// What templates may be made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Whether images may be built. The runtime runs the steps of a build with its own rights.
    pub allow_builds: bool,
    /// Whether keys and users of a tenant may have images built, too. A build can start from every image
    /// on the host, also from those of other tenants.
    pub allow_tenant_builds: bool,
    /// Longest time that a build may take.
    pub build_time: Duration,
    /// Largest context of a build, in bytes.
    pub max_context_bytes: usize,
    /// Most templates of a tenant, including failed ones.
    pub max_templates: u64,
}

impl Default for TemplateLimits {
    /// No builds.
    fn default() -> Self {
        Self {
            allow_builds: false,
            allow_tenant_builds: false,
            build_time: Duration::from_secs(600),
            max_context_bytes: 8 << 20,
            max_templates: 200,
        }
    }
}

impl TemplateLimits {
    /// Whether a client with this scope may have images built.
    #[must_use]
    pub fn builds(&self, scope: &Scope) -> Builds {
        match (self.allow_builds, scope) {
            (false, _) => Builds::Off,
            (true, Scope::Tenant(_)) if !self.allow_tenant_builds => Builds::OffForTenants,
            (true, _) => Builds::Allowed,
        }
    }
}

/// Whether a client may have images of templates built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builds {
    /// It may.
    Allowed,
    /// No client may.
    Off,
    /// Keys and users of a tenant may not.
    OffForTenants,
}

/// What the operator allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest `timeout` of a create, in seconds.
    pub max_timeout_seconds: Option<i64>,
    /// Whether every execd gets a token.
    pub execd_auth: bool,
    /// Whether a sandbox may ask for the rights that isolated sessions take.
    pub execd_isolation: bool,
    /// The network policy of sandboxes whose request has none, as JSON; `None` if they have none.
    pub default_policy: Option<Arc<str>>,
    /// Which volumes sandboxes may have.
    pub storage: StorageRules,
    /// Whether network policies are enforced for addresses, too, and not for names only.
    pub enforces_addresses: bool,
    /// What the sandboxes of a tenant, a user or an API key may use together.
    pub quotas: Quotas,
    /// How much of the audit trail is kept.
    pub audit: AuditLimits,
    /// Longest time that a create waits for execd before it answers anyway.
    pub ready_wait: Duration,
    /// Of pools.
    pub pools: PoolLimits,
    /// Of templates.
    pub templates: TemplateLimits,
    /// Most snapshots of a tenant, including failed ones.
    pub max_snapshots: u64,
    /// When images that nothing uses are removed; `None` if they are not.
    pub image_gc: Option<ImageGcLimits>,
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
            default_policy: None,
            storage: StorageRules::default(),
            enforces_addresses: false,
            quotas: Quotas::default(),
            audit: AuditLimits::default(),
            ready_wait: Duration::from_secs(5),
            pools: PoolLimits::default(),
            templates: TemplateLimits::default(),
            max_snapshots: 10_000,
            image_gc: None,
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
    /// Snapshots that are being taken.
    captures: Arc<snapshots::Captures>,
    /// One snapshot or template is counted and added at a time, so that those at once cannot exceed a
    /// limit together.
    additions: tokio::sync::Mutex<()>,
    /// Stored file systems without a snapshot.
    unneeded_snapshots: unneeded::Unneeded,
    /// Templates that are being made.
    makings: Arc<templates::Makings>,
    /// Images without a template.
    unneeded_templates: unneeded::Unneeded,
    /// Pools and their members.
    pools: Arc<pools::Pools>,
    /// Claims that are being repeated.
    repeats: pools::Repeats,
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
    unused_images: image_gc::UnusedImages,
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

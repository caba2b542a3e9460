//! What the server must not forget: SQL store and migrations.
//!
//! Container labels hold what was known at create; this store holds what changed since (renewals,
//! metadata, delete intents), the history of ended sandboxes, snapshots, pools, templates, the audit
//! trail, users, API keys, console sessions, webhooks with their deliveries and the id of this
//! installation. Everything in memory is derived from both.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod account;
mod audit;
mod ended_spec;
mod inspection;
mod model;
mod pool;
mod postgres;
mod retention;
mod snapshot;
mod snapshot_migration;
mod sqlite;
mod tables;
mod template;
#[cfg(test)]
mod tests;
mod tool_error;
pub mod tools;
mod webhook;

pub use account::{AccountRows, ApiKeyRow, PasswordHash, UserChange, UserRow};
pub use audit::{AuditPlace, AuditQuery};
pub use inspection::Inspection;
pub use model::{
    Changes, CreateKey, EndedSpec, ForeignImport, HistoryEntry, ImportedFiles, MetricStretch,
    Outcome, ReportedCommand, SessionRow, StageTime, UnansweredCreate,
};
pub use pool::{MemberState, PoolChange, PoolMemberRow, PoolRow, PoolStore};
pub use postgres::InvalidDsn;
pub use snapshot::{
    SnapshotChange, SnapshotQuery, SnapshotRow, SnapshotStore, SnapshotTotal, StoredFor,
};
pub use template::{TemplateChange, TemplateQuery, TemplateRow, TemplateStore, TemplateTotal};
pub use webhook::{
    AnnouncedRow, Announcement, Announcements, AttemptResult, Deliveries, DeliveryBacklog,
    DeliveryRow, DeliveryStatus, NewDelivery, WebhookRow, WebhookSecret, Webhooks,
};

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime, audit::AuditEntry};
use secrecy::SecretString;

/// Most rows that one statement deletes: each holds locks, and must end within its time limit.
const BATCH_ROWS: i64 = 500;
/// Most such statements of one call.
const BATCHES_MAX: u32 = 200;

/// Most bytes of the commands of one sandbox.
pub const COMMAND_BYTES_MAX: i64 = 1 << 20;
/// Most commands that one transaction writes: other writes wait meanwhile.
const COMMAND_BATCH: usize = 100;

/// Which database a store lives in.
#[derive(Clone, Debug)]
pub enum Location {
    /// A SQLite file; it and the folders above it are made when missing.
    Sqlite(PathBuf),
    /// The first schema of the search path in a PostgreSQL database; its tables are made when missing.
    Postgres(PostgresOptions),
}

/// How to use a PostgreSQL database.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Connection string, as a URL.
    pub dsn: SecretString,
    /// Connections that are kept open without work.
    pub min_pool_size: u32,
    /// Most connections, besides the one that holds the store's lock.
    pub max_pool_size: u32,
    /// Longest time for a start to connect.
    pub connect_timeout: Duration,
    /// Longest time to wait for a connection of the pool.
    pub pool_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            dsn: SecretString::default(),
            min_pool_size: 1,
            max_pool_size: 10,
            connect_timeout: Duration::from_secs(5),
            pool_timeout: Duration::from_secs(5),
        }
    }
}

/// Opens the store, makes it when missing and brings its schema up to date.
///
/// # Errors
/// [`StoreError::Open`], [`StoreError::Connect`] and [`StoreError::Migrate`].
pub async fn open(location: &Location) -> Result<Arc<dyn Store>, StoreError> {
    match location {
        Location::Sqlite(path) => Ok(Arc::new(sqlite::SqliteStore::open(path).await?)),
        Location::Postgres(options) => Ok(Arc::new(postgres::PostgresStore::open(options).await?)),
    }
}

/// Opens a store beside the server that may be using it, for administration: takes no lock and
/// changes no schema. `None` when there is no store yet, or its schema is not that of this release.
///
/// # Errors
/// [`StoreError::Open`] and [`StoreError::Connect`].
pub async fn open_shared(location: &Location) -> Result<Option<Arc<dyn Store>>, StoreError> {
    let store: Option<Arc<dyn Store>> = match location {
        Location::Sqlite(path) => match sqlite::SqliteStore::open_shared(path).await? {
            Some(store) => Some(Arc::new(store)),
            None => None,
        },
        Location::Postgres(options) => match postgres::PostgresStore::open_shared(options).await? {
            Some(store) => Some(Arc::new(store)),
            None => None,
        },
    };
    Ok(store)
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be opened.
    #[error("cannot open the store at {path}")]
    Open {
        /// Where it should be.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database cannot be connected to, or another server uses it.
    #[error("cannot open the store in PostgreSQL")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The schema cannot be brought up to date.
    #[error("cannot bring the store's schema up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The store works again as soon as its surroundings let it.
    #[error("cannot {op}: {problem}")]
    Unavailable {
        /// What was asked.
        op: &'static str,
        /// What is in the way.
        problem: Problem,
        /// What the database said.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// A statement failed.
    #[error("store: cannot {op}")]
    Query {
        /// What was asked.
        op: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// A stored value cannot be read back.
    #[error("store: {what} is damaged")]
    Damaged {
        /// Which value.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// What keeps a store from working. The text may be shown to any client: it names no path and no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Another process holds the database, or earlier writes do.
    Locked,
    /// There is no space.
    Full,
    /// The files that are open are not those that the next start would open, or the tables are gone.
    Replaced,
    /// The disk fails.
    Disk,
    /// The database does not answer, or not in time.
    Unreachable,
    /// The database takes no writes.
    ReadOnly,
    /// Another server has written to the store, so what this one has in memory is out of date.
    TakenOver,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Locked => "the store is locked by another process or by earlier writes",
            Self::Full => "no space is left for the store",
            Self::Replaced => {
                "the store was removed or replaced; put it back, or restart the server"
            }
            Self::Disk => "the store's disk fails",
            Self::Unreachable => "the store's database does not answer",
            Self::ReadOnly => "the store's database takes no writes",
            Self::TakenOver => "another server has used the store since; restart this server",
        })
    }
}

/// What the server keeps in a database, a trait per concern. Each call is one transaction.
///
/// A back end implements every concern; the server holds one `Arc<dyn Store>`.
#[async_trait]
pub trait Store:
    std::fmt::Debug
    + SandboxChanges
    + ForeignImports
    + SandboxHistory
    + SandboxMetrics
    + SandboxCommands
    + CreateRequests
    + ConsoleSessions
    + Accounts
    + AuditStore
    + SnapshotStore
    + PoolStore
    + TemplateStore
    + Webhooks
    + Announcements
    + Deliveries
{
    /// Id of this installation, made on first use.
    async fn instance_id(&self) -> Result<String, StoreError>;

    /// Whether a write would be kept now. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the problem.
    async fn check(&self) -> Result<(), StoreError>;

    /// Why this server may not be the only one that uses the store; `None` while it is. What it has in
    /// memory may then be out of date, so it must remove nothing. Answers from memory.
    fn lost_hold(&self) -> Option<Problem> {
        None
    }

    /// Whether another server certainly uses the store now, or has used it since. Answers from memory.
    fn is_used_by_another(&self) -> bool {
        matches!(self.lost_hold(), Some(Problem::Locked | Problem::TakenOver))
    }

    /// Flushes and closes the connections.
    async fn close(&self);
}

/// What changed of sandboxes since their create.
#[async_trait]
pub trait SandboxChanges: Send + Sync + 'static {
    /// What changed, of every sandbox.
    async fn all_changes(&self) -> Result<HashMap<SandboxId, Changes>, StoreError>;

    /// Keeps a new expiry, and the tenant whose sandbox it is.
    async fn set_expiry(
        &self,
        id: &SandboxId,
        at: WireTime,
        tenant: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Keeps the metadata, which replaces that of the labels, and the tenant whose sandbox it is.
    async fn set_metadata(
        &self,
        id: &SandboxId,
        metadata: &BTreeMap<String, String>,
        tenant: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Keeps the intent to delete: whatever happens next, the sandbox goes. Its tenant is kept for the
    /// history, because the container that names it may be gone before the history is written.
    async fn set_deleted(
        &self,
        id: &SandboxId,
        at: WireTime,
        tenant: Option<&str>,
    ) -> Result<(), StoreError>;
}

/// Files in which another server kept what changed of sandboxes.
#[async_trait]
pub trait ForeignImports: Send + Sync + 'static {
    /// The files that were imported, of every sandbox that exists.
    async fn imported_files(&self) -> Result<HashMap<SandboxId, ImportedFiles>, StoreError>;

    /// Keeps what the files of a sandbox say, and that they were imported.
    async fn import(&self, id: &SandboxId, import: &ForeignImport) -> Result<(), StoreError>;
}

/// Sandboxes that are gone.
#[async_trait]
pub trait SandboxHistory: Send + Sync + 'static {
    /// Forgets the changes of a sandbox that is gone, also that it is unanswered, and writes its
    /// history.
    async fn finish(&self, entry: &HistoryEntry) -> Result<(), StoreError>;

    /// One ended sandbox.
    async fn history(&self, id: &SandboxId) -> Result<Option<HistoryEntry>, StoreError>;

    /// The sandboxes that ended last, newest first, without the first `skip`; with `tenant`, only those
    /// of that tenant.
    async fn recent_history(
        &self,
        tenant: Option<&str>,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>, StoreError>;

    /// When the latest sandbox of each image ended.
    async fn image_uses(&self) -> Result<Vec<(String, WireTime)>, StoreError>;

    /// Number of the sandboxes that ended, up to `most`; with `tenant`, only those of that tenant.
    async fn count_history(&self, tenant: Option<&str>, most: u32) -> Result<u32, StoreError>;

    /// Deletes entries of sandboxes that ended before `before`, 100,000 at most; returns their number.
    async fn prune_history(&self, before: WireTime) -> Result<u64, StoreError>;
}

/// Resource use of sandboxes, also of those that are gone.
#[async_trait]
pub trait SandboxMetrics: Send + Sync + 'static {
    /// Writes stretches, each in place of an earlier one with the same sandbox, step and place.
    async fn put_metrics(&self, stretches: &[MetricStretch]) -> Result<(), StoreError>;

    /// The stretches of a sandbox, by step and start.
    async fn metrics(&self, id: &SandboxId) -> Result<Vec<MetricStretch>, StoreError>;

    /// Deletes the stretches of sandboxes that ended before `before`, in Unix seconds, according to the
    /// history; returns their number. A sandbox that is neither there nor in `alive` ended when its
    /// newest stretch was written.
    async fn prune_metrics(&self, before: i64, alive: &[SandboxId]) -> Result<u64, StoreError>;
}

/// Commands that sandboxes reported, also of those that are gone.
#[async_trait]
pub trait SandboxCommands: Send + Sync + 'static {
    /// Writes commands of a sandbox, or how they ended. Of all keeps the newest, at most `most` and
    /// [`COMMAND_BYTES_MAX`]. Other writes take their turns in between.
    async fn put_commands(
        &self,
        id: &SandboxId,
        commands: &[ReportedCommand],
        most: u32,
    ) -> Result<(), StoreError>;

    /// The newest commands of a sandbox, newest first.
    async fn commands(
        &self,
        id: &SandboxId,
        limit: u32,
    ) -> Result<Vec<ReportedCommand>, StoreError>;

    /// Deletes the commands of sandboxes that ended before `before`, in Unix seconds, according to the
    /// history, and those of the oldest sandboxes beyond `most` bytes; returns their number. A sandbox
    /// that is neither there nor in `alive` ended with its last report.
    async fn prune_commands(
        &self,
        before: i64,
        alive: &[SandboxId],
        most: u64,
    ) -> Result<u64, StoreError>;
}

/// Creates, as far as their clients are concerned.
#[async_trait]
pub trait CreateRequests: Send + Sync + 'static {
    /// Keeps that no client knows a sandbox yet that is about to be made.
    async fn set_unanswered(&self, create: &UnansweredCreate) -> Result<(), StoreError>;

    /// Keeps that the client of a create is about to know its sandbox.
    async fn set_answered(&self, id: &SandboxId) -> Result<(), StoreError>;

    /// Keeps the same of every create except these.
    async fn set_all_answered(&self, except: &[SandboxId]) -> Result<(), StoreError>;

    /// The creates that a server left unanswered.
    async fn all_unanswered(&self) -> Result<Vec<UnansweredCreate>, StoreError>;

    /// Takes an idempotency key for a create, unless it was taken at or after `expired`; then
    /// answers who has it.
    async fn claim_key(
        &self,
        claim: &CreateKey,
        expired: WireTime,
    ) -> Result<Option<CreateKey>, StoreError>;

    /// Gives a key back whose sandbox did not come to be; one of another sandbox stays.
    async fn free_key(&self, key: &[u8; 32], id: &SandboxId) -> Result<(), StoreError>;

    /// An idempotency key, unless it was used before `expired`.
    async fn create_key(
        &self,
        key: &[u8; 32],
        expired: WireTime,
    ) -> Result<Option<CreateKey>, StoreError>;

    /// Deletes keys that were claimed before `before`, 100,000 at most; returns their number.
    async fn prune_keys(&self, before: WireTime) -> Result<u64, StoreError>;
}

/// Sessions of the console.
#[async_trait]
pub trait ConsoleSessions: Send + Sync + 'static {
    /// Adds a session; `false` when the id is taken.
    async fn session_create(&self, session: &SessionRow) -> Result<bool, StoreError>;

    /// Writes a session, unless it was deleted meanwhile: a request under way does not undo a logout.
    async fn session_save(&self, session: &SessionRow) -> Result<(), StoreError>;

    /// Reads a session, also an expired one.
    async fn session_load(&self, id: &str) -> Result<Option<SessionRow>, StoreError>;

    /// Reads all sessions, also expired ones.
    async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError>;

    /// Deletes a session; a missing one is fine.
    async fn session_delete(&self, id: &str) -> Result<(), StoreError>;

    /// Deletes sessions that expired before `before`, in Unix seconds, 100,000 at most; returns their
    /// number.
    async fn session_prune(&self, before: i64) -> Result<u64, StoreError>;
}

/// Users and API keys. Other processes may change them while a server runs; the revision shows it.
#[async_trait]
pub trait Accounts: Send + Sync + 'static {
    /// Number of changes of users and keys so far.
    async fn accounts_revision(&self) -> Result<i64, StoreError>;

    /// Reads all users and keys.
    async fn accounts(&self) -> Result<AccountRows, StoreError>;

    /// Adds a user; `false` when the name is taken.
    async fn add_user(&self, user: &UserRow) -> Result<bool, StoreError>;

    /// Changes a user; `false` when there is none.
    async fn change_user(&self, id: &str, change: &UserChange) -> Result<bool, StoreError>;

    /// Deletes a user; `false` when there is none.
    async fn delete_user(&self, id: &str) -> Result<bool, StoreError>;

    /// Adds an API key.
    async fn add_key(&self, key: &ApiKeyRow) -> Result<(), StoreError>;

    /// Revokes an API key, unless it was revoked before; `false` when there is none.
    async fn revoke_key(&self, id: &str, at: WireTime) -> Result<bool, StoreError>;

    /// Notes when keys were used last. No change of the revision.
    async fn touch_keys(&self, used: &[(String, WireTime)]) -> Result<(), StoreError>;
}

/// The audit trail.
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Adds entries in their order. One that is there already is not added again, so that a caller may
    /// repeat a write that it does not know the end of.
    async fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Reads at most `most` entries, newest first, with their places.
    async fn audit(
        &self,
        query: &AuditQuery,
        most: u32,
    ) -> Result<Vec<(AuditPlace, AuditEntry)>, StoreError>;

    /// Deletes entries: up to `most` of those that are more than `keep`, and up to `most` from before
    /// `before`. Of more than `keep`, the oldest that did not succeed go first, until they are a quarter
    /// of `keep`, then the oldest. Returns their number.
    async fn prune_audit(&self, before: WireTime, keep: u64, most: u32) -> Result<u64, StoreError>;
}

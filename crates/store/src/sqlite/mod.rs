//! SQLite: one writer connection, a few readers, WAL.

mod history;
mod private;
mod sandboxes;
mod sessions;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};
use sqlx::{
    SqlSafeStr, SqlitePool,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{Changes, HistoryEntry, SessionRow, Store, StoreError};

/// How long a statement waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Reading connections; reads are rare, the registry answers almost everything.
const READERS: u32 = 4;

/// A store in one SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    /// Exactly one connection, so writers queue here instead of failing with "database is locked".
    writer: SqlitePool,
    reader: SqlitePool,
    /// Held as long as the store is open: two servers over one store would undo each other's work.
    _lock: Arc<File>,
}

impl SqliteStore {
    /// Opens the file, making it and its parents when missing, and migrates it.
    ///
    /// # Errors
    /// When the file cannot be opened or migrated.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let open_error = |source: Box<dyn std::error::Error + Send + Sync>| StoreError::Open {
            path: path.display().to_string(),
            source,
        };
        let lock = private::prepare(path).map_err(|error| open_error(error.into()))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A power cut may lose the last renewals but never damages the file.
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        let connect = |most, options| {
            SqlitePoolOptions::new()
                .max_connections(most)
                .min_connections(1)
                .connect_with(options)
        };
        let writer = connect(1, options.clone())
            .await
            .map_err(|error| open_error(error.into()))?;
        schema().run(&writer).await.map_err(StoreError::Migrate)?;
        let reader = connect(READERS, options.read_only(true))
            .await
            .map_err(|error| open_error(error.into()))?;
        Ok(Self {
            writer,
            reader,
            _lock: Arc::new(lock),
        })
    }
}

/// The steps of the schema, each in a file that never changes once it was released.
fn schema() -> Migrator {
    let steps = [(
        1,
        "start",
        include_str!("../../migrations/sqlite/0001_start.sql"),
    )];
    let steps = steps.map(|(version, name, sql)| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(steps.into())
}

/// Names the operation of a failed statement.
fn failed(op: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |source| StoreError::Query { op, source }
}

/// The trait is implemented in one block, each method beside its SQL in a file per table.
#[async_trait]
impl Store for SqliteStore {
    async fn instance_id(&self) -> Result<String, StoreError> {
        self.read_or_make_instance_id().await
    }
    async fn all_changes(&self) -> Result<HashMap<SandboxId, Changes>, StoreError> {
        self.read_all_changes().await
    }
    async fn set_expiry(&self, id: &SandboxId, at: WireTime) -> Result<(), StoreError> {
        self.write_expiry(id, at).await
    }
    async fn set_metadata(
        &self,
        id: &SandboxId,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        self.write_metadata(id, metadata).await
    }
    async fn set_deleted(&self, id: &SandboxId, at: WireTime) -> Result<(), StoreError> {
        self.write_deleted(id, at).await
    }
    async fn finish(&self, entry: &HistoryEntry) -> Result<(), StoreError> {
        self.write_finish(entry).await
    }
    async fn history(&self, id: &SandboxId) -> Result<Option<HistoryEntry>, StoreError> {
        self.read_history(id).await
    }
    async fn recent_history(&self, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        self.read_recent_history(limit).await
    }
    async fn prune_history(&self, before: WireTime) -> Result<u64, StoreError> {
        self.delete_history(before).await
    }
    async fn session_create(&self, session: &SessionRow) -> Result<bool, StoreError> {
        self.insert_session(session).await
    }
    async fn session_save(&self, session: &SessionRow) -> Result<(), StoreError> {
        self.update_session(session).await
    }
    async fn session_load(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        self.read_session(id).await
    }
    async fn session_delete(&self, id: &str) -> Result<(), StoreError> {
        self.delete_session(id).await
    }
    async fn session_prune(&self, before: i64) -> Result<u64, StoreError> {
        self.delete_sessions(before).await
    }
    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

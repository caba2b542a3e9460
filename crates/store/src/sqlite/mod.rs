//! SQLite: one writer connection, a few readers, WAL. Each concern of the store is implemented in a
//! file of its own, beside its SQL.

mod changes;
mod history;
mod private;
mod sessions;

use std::{fs::File, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    SqlSafeStr, SqlitePool,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use uuid::Uuid;

use crate::{Store, StoreError};

/// How long a statement waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Reading connections; reads are rare, the registry answers almost everything.
const READERS: u32 = 4;

/// A store in one SQLite file.
#[derive(Clone, Debug)]
pub(crate) struct SqliteStore {
    /// Exactly one connection, so writers queue here instead of failing with "database is locked".
    writer: SqlitePool,
    reader: SqlitePool,
    /// Held as long as the store is open: two servers over one store would undo each other's work.
    _lock: Arc<File>,
}

impl SqliteStore {
    /// Opens the file, making it and its parents when missing, and migrates it.
    pub(crate) async fn open(path: &Path) -> Result<Self, StoreError> {
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

#[async_trait]
impl Store for SqliteStore {
    async fn instance_id(&self) -> Result<String, StoreError> {
        let fresh = Uuid::new_v4().simple().to_string();
        sqlx::query_scalar(
            "INSERT INTO instance (only_row, id) VALUES (1, $1)
             ON CONFLICT (only_row) DO UPDATE SET id = id RETURNING id",
        )
        .bind(fresh)
        .fetch_one(&self.writer)
        .await
        .map_err(failed("read the instance id"))
    }

    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

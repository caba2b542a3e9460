//! SQLite: one writer connection, a few readers, WAL. Each concern of the store is implemented in a
//! file of its own, beside its SQL.

mod accounts;
mod audit;
mod changes;
mod commands;
mod creates;
mod database_file;
mod history;
mod imports;
mod metrics;
mod migrations;
mod pools;
mod sessions;
mod snapshots;
mod templates;
pub(crate) mod tools;
mod webhooks;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{
    FromRow, Sqlite, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    query::{Query, QueryAs},
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions,
        SqliteQueryResult, SqliteRow, SqliteSynchronous,
    },
};
use uuid::Uuid;

use self::{database_file::DatabaseFile, migrations::schema};
use crate::{BATCH_ROWS, BATCHES_MAX, Problem, Store, StoreError};

/// How long a statement waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a write waits for those before it. With [`BUSY_TIMEOUT`] this bounds how long a client
/// waits to learn that the store is unavailable.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);
/// Reading connections; reads are rare, the registry answers almost everything.
const READERS: u32 = 2;

/// A store in one SQLite file.
#[derive(Clone, Debug)]
pub(crate) struct SqliteStore {
    /// Exactly one connection, so writers queue here instead of failing with "database is locked".
    writer: SqlitePool,
    reader: SqlitePool,
    /// Whether the disk failed the last write, which only another write can disprove.
    disk_failed: Arc<AtomicBool>,
    /// Held as long as the store is open: two servers over one store would undo each other's work.
    /// The last field: it must outlive the connections.
    file: Arc<DatabaseFile>,
}

impl SqliteStore {
    /// Opens the file, making it and its parents when missing, and migrates it.
    pub(crate) async fn open(path: &Path) -> Result<Self, StoreError> {
        let open_error = open_error(path);
        let file = DatabaseFile::take(path).map_err(|error| open_error(error.into()))?;
        Self::connect(path, file, true).await
    }

    /// Opens the file beside a server that may use it. `None` without one, or with another schema.
    pub(crate) async fn open_shared(path: &Path) -> Result<Option<Self>, StoreError> {
        let open_error = open_error(path);
        let file = DatabaseFile::beside(path).map_err(|error| open_error(error.into()))?;
        let Some(file) = file else {
            return Ok(None);
        };
        let store = Self::connect(path, file, false).await?;
        let newest = schema().iter().map(|step| step.version).max();
        if store.schema_version().await? == newest {
            return Ok(Some(store));
        }
        store.close().await;
        Ok(None)
    }

    /// Version of the stored schema; `None` when there is none.
    async fn schema_version(&self) -> Result<Option<i64>, StoreError> {
        const OP: &str = "read the version of the schema";
        let query = sqlx::query_as("SELECT 1 FROM sqlite_schema WHERE name = '_sqlx_migrations'");
        let table: Option<(i64,)> = self.read_one(OP, query).await?;
        if table.is_none() {
            return Ok(None);
        }
        let query = sqlx::query_as("SELECT MAX(version) FROM _sqlx_migrations WHERE success");
        let row: Option<(Option<i64>,)> = self.read_one(OP, query).await?;
        Ok(row.and_then(|(version,)| version))
    }

    async fn connect(path: &Path, file: DatabaseFile, migrate: bool) -> Result<Self, StoreError> {
        let open_error = open_error(path);
        let file = Arc::new(file);
        let options = SqliteConnectOptions::new()
            .filename(file.canonical())
            .journal_mode(SqliteJournalMode::Wal)
            // A power cut may lose the last renewals but never damages the file.
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        let connect = |most, options| {
            let file = Arc::clone(&file);
            SqlitePoolOptions::new()
                .max_connections(most)
                .min_connections(most)
                .acquire_timeout(QUEUE_TIMEOUT)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                // One that is opened later, after a failure, must not open another file.
                .after_connect(move |_, _| {
                    let in_place = file.is_in_place();
                    Box::pin(async move { in_place.then_some(()).ok_or(sqlx::Error::PoolClosed) })
                })
                .connect_with(options)
        };
        let writer = connect(1, options.clone())
            .await
            .map_err(|error| open_error(error.into()))?;
        if migrate {
            schema().run(&writer).await.map_err(StoreError::Migrate)?;
        }
        let reader = connect(READERS, options.read_only(true))
            .await
            .map_err(|error| open_error(error.into()))?;
        file.note_wal();
        Ok(Self {
            writer,
            reader,
            disk_failed: Arc::default(),
            file,
        })
    }

    /// Runs one statement that writes. It counts only if the next start will find it: that is asked
    /// before, so that nothing is half done, and afterwards, so that nothing is acknowledged in vain.
    async fn write(
        &self,
        op: &'static str,
        statement: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<SqliteQueryResult, StoreError> {
        self.in_place(op)?;
        let done = statement.execute(&self.writer).await;
        let done = done.map_err(self.failed(op))?;
        // What changed nothing has written nothing.
        if done.rows_affected() > 0 {
            self.written(op)?;
        }
        Ok(done)
    }

    /// Runs a statement that deletes rows until none is left, at most [`BATCH_ROWS`] each time: that is
    /// its last parameter. Other writes take their turns in between. Returns the number of rows.
    async fn delete_in_batches(
        &self,
        op: &'static str,
        statement: impl Fn() -> Query<'static, Sqlite, SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for _ in 0..BATCHES_MAX {
            let done = self.write(op, statement().bind(BATCH_ROWS)).await?;
            deleted += done.rows_affected();
            if done.rows_affected() < BATCH_ROWS.unsigned_abs() {
                break;
            }
        }
        Ok(deleted)
    }

    /// Reads all rows of a query.
    async fn read_all<Row>(
        &self,
        op: &'static str,
        query: QueryAs<'_, Sqlite, Row, SqliteArguments>,
    ) -> Result<Vec<Row>, StoreError>
    where
        Row: for<'row> FromRow<'row, SqliteRow> + Send + Unpin,
    {
        let rows = query.fetch_all(&self.reader).await;
        rows.map_err(self.failed(op))
    }

    /// Reads the row of a query that has at most one.
    async fn read_one<Row>(
        &self,
        op: &'static str,
        query: QueryAs<'_, Sqlite, Row, SqliteArguments>,
    ) -> Result<Option<Row>, StoreError>
    where
        Row: for<'row> FromRow<'row, SqliteRow> + Send + Unpin,
    {
        let row = query.fetch_optional(&self.reader).await;
        row.map_err(self.failed(op))
    }

    /// Begins a write of several statements, with the lock that it takes; [`Self::commit`] ends it.
    async fn begin(&self, op: &'static str) -> Result<Write, StoreError> {
        self.in_place(op)?;
        let connection = self.writer.acquire().await.map_err(self.failed(op))?;
        let mut write = Write {
            connection,
            is_open: true,
        };
        let begun = write.run("BEGIN IMMEDIATE").await;
        write.is_open = begun.is_ok();
        begun.map_err(self.failed(op)).map(|()| write)
    }

    /// Ends a write; what was said of [`Self::write`] holds.
    async fn commit(&self, op: &'static str, mut write: Write) -> Result<(), StoreError> {
        self.in_place(op)?;
        write.run("COMMIT").await.map_err(self.failed(op))?;
        write.is_open = false;
        self.written(op)
    }

    /// Ends a write that changed nothing, and keeps its connection.
    async fn roll_back(&self, op: &'static str, mut write: Write) -> Result<(), StoreError> {
        write.run("ROLLBACK").await.map_err(self.failed(op))?;
        write.is_open = false;
        Ok(())
    }

    fn written(&self, op: &'static str) -> Result<(), StoreError> {
        self.disk_failed.store(false, Ordering::Relaxed);
        self.in_place(op)
    }

    fn in_place(&self, op: &'static str) -> Result<(), StoreError> {
        if self.file.is_in_place() {
            return Ok(());
        }
        Err(StoreError::Unavailable {
            op,
            problem: Problem::Replaced,
            source: None,
        })
    }

    /// Names the operation of a failed statement, and what is wrong with the store.
    fn failed(&self, op: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| {
            let Some(problem) = problem(&source) else {
                return StoreError::Query { op, source };
            };
            if matches!(problem, Problem::Full | Problem::Disk) {
                self.disk_failed.store(true, Ordering::Relaxed);
            }
            StoreError::Unavailable {
                op,
                problem,
                source: Some(source),
            }
        }
    }
}

fn open_error(path: &Path) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    move |source| StoreError::Open {
        path: path.display().to_string(),
        source,
    }
}

/// A write of several statements. The library's own transactions count how deep they are, and count
/// wrong once SQLite has rolled one back by itself, as it does on a full disk.
#[derive(Debug)]
struct Write {
    connection: PoolConnection<Sqlite>,
    is_open: bool,
}

impl Write {
    async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(statement)
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }

    fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if self.is_open {
            // Whatever became of it ends with its connection.
            self.connection.close_on_drop();
        }
    }
}

/// What keeps the store from working for now; `None` for any other failure.
fn problem(error: &sqlx::Error) -> Option<Problem> {
    // Primary result codes; the bits above them say more.
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const READ_ONLY: i32 = 8;
    const IO: i32 = 10;
    const FULL: i32 = 13;
    const CANNOT_OPEN: i32 = 14;
    let error = match error {
        // Earlier writes have not ended: they wait for the same lock, or there are too many.
        sqlx::Error::PoolTimedOut => return Some(Problem::Locked),
        sqlx::Error::Io(_) => return Some(Problem::Disk),
        sqlx::Error::Database(error) => error,
        _ => return None,
    };
    let code: i32 = error.code()?.parse().ok()?;
    match code & 0xff {
        BUSY | LOCKED => Some(Problem::Locked),
        FULL => Some(Problem::Full),
        READ_ONLY | IO | CANNOT_OPEN => Some(Problem::Disk),
        _ => None,
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn instance_id(&self) -> Result<String, StoreError> {
        const OP: &str = "read the instance id";
        let fresh = Uuid::new_v4().simple().to_string();
        // Not `RETURNING`: the row comes before the commit, whose failure would go unnoticed.
        let mut write = self.begin(OP).await?;
        sqlx::query(
            "INSERT INTO instance (only_row, id) VALUES (1, $1)
             ON CONFLICT (only_row) DO UPDATE SET id = id",
        )
        .bind(fresh)
        .execute(write.connection())
        .await
        .map_err(self.failed(OP))?;
        let id = sqlx::query_scalar("SELECT id FROM instance")
            .fetch_one(write.connection())
            .await
            .map_err(self.failed(OP))?;
        self.commit(OP, write).await?;
        Ok(id)
    }

    async fn check(&self) -> Result<(), StoreError> {
        const OP: &str = "take a write";
        let mut write = self.begin(OP).await?;
        if !self.disk_failed.load(Ordering::Relaxed) {
            return self.roll_back(OP, write).await;
        }
        // Only a write shows whether the disk has recovered. SQLite skips an update that changes no
        // byte of a row, but always writes the header.
        let probe = write.run("PRAGMA user_version = 0").await;
        probe.map_err(self.failed(OP))?;
        self.commit(OP, write).await
    }

    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

#[cfg(test)]
impl SqliteStore {
    /// Limits the size of the file, as a full disk does.
    pub(crate) async fn limit_pages(&self, most: u32) {
        let limit = format!("PRAGMA max_page_count = {most}");
        let limit = sqlx::raw_sql(sqlx::AssertSqlSafe(limit));
        limit.execute(&self.writer).await.unwrap();
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::{SandboxId, WireTime};
    use sqlx::{ConnectOptions, Connection};

    use super::*;
    use crate::{CreateKey, CreateRequests, SandboxChanges, SandboxHistory};

    /// Opens a store `s.db` in a new folder.
    async fn store() -> (SqliteStore, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        (SqliteStore::open(&path).await.unwrap(), folder)
    }

    fn problem_of<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Problem {
        match result.unwrap_err() {
            StoreError::Unavailable { problem, .. } => problem,
            other => panic!("{other}"),
        }
    }

    async fn write(store: &SqliteStore, id: &str) -> Result<(), StoreError> {
        let metadata = [("k".to_owned(), "v".repeat(1000))].into();
        store
            .set_metadata(&SandboxId::from(id), &metadata, None)
            .await
    }

    #[tokio::test]
    async fn a_folder_in_the_way_is_a_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = SqliteStore::open(folder.path()).await.unwrap_err();
        assert!(
            error.to_string().starts_with("cannot open the store at "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_full_store_says_so_and_recovers() {
        let (store, _folder) = store().await;
        let limit = async |pages: &'static str| {
            let done = sqlx::query(pages).execute(&store.writer).await;
            done.unwrap();
        };
        limit("PRAGMA max_page_count = 1").await;
        let mut kept = 0;
        let full = loop {
            match write(&store, &kept.to_string()).await {
                Ok(()) => kept += 1,
                full => break full,
            }
        };
        assert_eq!(problem_of(full), Problem::Full);
        let at = WireTime::from_unix_us(1).unwrap();
        let renewed = store.set_expiry(&SandboxId::from("new"), at, None).await;
        assert!(renewed.is_ok() || problem_of(renewed) == Problem::Full);
        assert!(store.all_changes().await.unwrap().len() >= kept);
        // A write that fits disproves nothing, one that does not is what counts.
        let checked = store.check().await;
        assert!(checked.is_ok() || problem_of(checked) == Problem::Full);
        limit("PRAGMA max_page_count = 100000").await;
        write(&store, "more").await.unwrap();
        store.check().await.unwrap();
    }

    #[tokio::test]
    async fn another_process_that_locks_the_store_is_not_waited_for_long() {
        let (store, folder) = store().await;
        let options = SqliteConnectOptions::new().filename(folder.path().join("s.db"));
        let mut other = options.connect().await.unwrap();
        let lock = sqlx::query("BEGIN IMMEDIATE").execute(&mut other);
        lock.await.unwrap();
        let writes = (0..8).map(|n| {
            let store = store.clone();
            async move { write(&store, &n.to_string()).await }
        });
        let mut all = tokio::task::JoinSet::new();
        for one in writes {
            all.spawn(one);
        }
        for refused in all.join_all().await {
            assert_eq!(problem_of(refused), Problem::Locked);
        }
        assert_eq!(problem_of(store.check().await), Problem::Locked);
        assert_eq!(store.recent_history(None, 0, 1).await.unwrap(), []);
        other.close().await.unwrap();
        write(&store, "0").await.unwrap();
        store.check().await.unwrap();
    }

    #[tokio::test]
    async fn what_the_next_start_would_not_find_is_not_acknowledged() {
        let (store, folder) = store().await;
        let (path, aside) = (folder.path().join("s.db"), folder.path().join("aside"));
        for moved in [path.clone(), folder.path().join("s.db-wal")] {
            std::fs::rename(&moved, &aside).unwrap();
            assert_eq!(problem_of(write(&store, "a").await), Problem::Replaced);
            assert_eq!(problem_of(store.check().await), Problem::Replaced);
            std::fs::rename(&aside, &moved).unwrap();
            write(&store, "a").await.unwrap();
        }
        store.close().await;
        drop(store);
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(store.all_changes().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_key_that_is_taken_keeps_the_connection() {
        let (store, _folder) = store().await;
        let at = |us| WireTime::from_unix_us(us).unwrap();
        let claim = CreateKey {
            key: [1; 32],
            body: [2; 32],
            sandbox_id: "a".into(),
            used_at: at(10),
        };
        // Lasts as long as the connection.
        let marked = sqlx::query("CREATE TEMPORARY TABLE mark (id INTEGER)");
        marked.execute(&store.writer).await.unwrap();
        for first in [None, Some(claim.clone())] {
            assert_eq!(store.claim_key(&claim, at(0)).await.unwrap(), first);
        }
        let mark = sqlx::query("SELECT id FROM mark");
        mark.execute(&store.writer).await.unwrap();
    }

    #[tokio::test]
    async fn a_disk_that_failed_is_probed_by_a_real_write() {
        let (store, folder) = store().await;
        store.instance_id().await.unwrap();
        let wal = || std::fs::read(folder.path().join("s.db-wal")).unwrap();
        let before = wal();
        store.check().await.unwrap();
        assert_eq!(wal(), before, "nothing has failed");
        store.disk_failed.store(true, Ordering::Relaxed);
        store.check().await.unwrap();
        assert_ne!(wal(), before);
        assert!(!store.disk_failed.load(Ordering::Relaxed));
    }
}

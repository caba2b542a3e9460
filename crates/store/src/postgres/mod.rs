//! PostgreSQL: a pool of connections, and one more that holds the store's lock. Each concern of the
//! store is implemented in a file of its own, beside its SQL.

mod accounts;
mod audit;
mod changes;
mod commands;
mod creates;
mod dsn;
mod history;
mod hold;
mod imports;
mod metrics;
mod pool;
mod pools;
mod problem;
mod sessions;
mod snapshots;
mod templates;
pub(crate) mod tools;
mod values;
mod webhooks;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    FromRow, Postgres,
    postgres::{PgArguments, PgConnectOptions, PgQueryResult, PgRow},
    query::{Query, QueryAs},
};
use uuid::Uuid;

use self::{
    hold::{Hold, answered},
    pool::{Borrowed, ConnectionPool},
    problem::problem,
};
use crate::{BATCH_ROWS, BATCHES_MAX, PostgresOptions, Problem, Store, StoreError};

pub use self::dsn::InvalidDsn;

/// How long a statement waits for a lock of another process, in the database's notation.
const LOCK_TIMEOUT: &str = "1s";
/// How long the database works on a statement.
const STATEMENT_TIMEOUT: &str = "4s";
/// How long this server waits for an answer; longer than the database's own limits, so that it can
/// say what is wrong.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long the database ends a transaction whose server is silent.
const IDLE_TRANSACTION_TIMEOUT: &str = "10s";
/// Longest time to close the connections.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in a PostgreSQL database.
#[derive(Clone, Debug)]
pub(crate) struct PostgresStore {
    pool: ConnectionPool,
    /// `None` beside the server that uses the store.
    hold: Option<Arc<Hold>>,
}

impl PostgresStore {
    /// Connects, takes the lock and migrates.
    pub(crate) async fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        let dsn = usable_dsn(options)?;
        // The database ends the connections of a machine that vanished, and so its lock.
        let dsn = dsn.options([
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ]);
        let hold = Hold::take(dsn.clone(), options.connect_timeout).await?;
        Ok(Self {
            pool: pool(options, dsn),
            hold: Some(Arc::new(hold)),
        })
    }

    /// Connects beside a server that may use the store. `None` with another schema, or without one.
    pub(crate) async fn open_shared(options: &PostgresOptions) -> Result<Option<Self>, StoreError> {
        let dsn = usable_dsn(options)?;
        let options = PostgresOptions {
            min_pool_size: 0,
            max_pool_size: 1,
            ..options.clone()
        };
        let store = Self {
            pool: pool(&options, dsn),
            hold: None,
        };
        if store.schema_version().await? == hold::newest_schema() {
            return Ok(Some(store));
        }
        store.close().await;
        Ok(None)
    }

    /// Version of the stored schema; `None` when there is none.
    async fn schema_version(&self) -> Result<Option<i64>, StoreError> {
        const OP: &str = "read the version of the schema";
        let query = sqlx::query_as(hold::HAS_TABLE).bind("_sqlx_migrations");
        let table: Option<(bool,)> = self.read_one(OP, query).await?;
        if table != Some((true,)) {
            return Ok(None);
        }
        let query = sqlx::query_as("SELECT MAX(version) FROM _sqlx_migrations WHERE success");
        let row: Option<(Option<i64>,)> = self.read_one(OP, query).await?;
        Ok(row.and_then(|(version,)| version))
    }

    /// Runs one statement that writes.
    async fn write(
        &self,
        op: &'static str,
        statement: Query<'_, Postgres, PgArguments>,
    ) -> Result<PgQueryResult, StoreError> {
        let mut write = self.begin(op).await?;
        let done = self.run(op, statement.execute(write.connection())).await?;
        self.commit(op, write).await?;
        Ok(done)
    }

    /// Runs a statement that deletes rows until none is left, at most [`BATCH_ROWS`] each time: that is
    /// its last parameter. Returns the number of rows.
    async fn delete_in_batches(
        &self,
        op: &'static str,
        statement: impl Fn() -> Query<'static, Postgres, PgArguments>,
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
        query: QueryAs<'_, Postgres, Row, PgArguments>,
    ) -> Result<Vec<Row>, StoreError>
    where
        Row: for<'row> FromRow<'row, PgRow> + Send + Unpin,
    {
        let mut borrowed = self.borrow(op).await?;
        let rows = self.run(op, query.fetch_all(borrowed.connection())).await?;
        borrowed.is_idle = true;
        Ok(rows)
    }

    /// Reads the row of a query that has at most one.
    async fn read_one<Row>(
        &self,
        op: &'static str,
        query: QueryAs<'_, Postgres, Row, PgArguments>,
    ) -> Result<Option<Row>, StoreError>
    where
        Row: for<'row> FromRow<'row, PgRow> + Send + Unpin,
    {
        let mut borrowed = self.borrow(op).await?;
        let row = self
            .run(op, query.fetch_optional(borrowed.connection()))
            .await?;
        borrowed.is_idle = true;
        Ok(row)
    }

    /// Begins a write of several statements; [`Self::commit`] ends it.
    async fn begin(&self, op: &'static str) -> Result<Borrowed, StoreError> {
        let mut write = self.borrow(op).await?;
        let begin = sqlx::query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
        self.run(op, begin.execute(write.connection())).await?;
        let Some(hold) = &self.hold else {
            return Ok(write);
        };
        let ours = sqlx::query_scalar("SELECT 1 FROM holder WHERE token = $1 FOR SHARE");
        let ours = ours.bind(hold.token());
        let ours: Option<i32> = self
            .run(op, ours.fetch_optional(write.connection()))
            .await?;
        match ours {
            Some(_) => Ok(write),
            None => Err(unavailable(op, Problem::TakenOver)),
        }
    }

    /// Ends a write.
    async fn commit(&self, op: &'static str, write: Borrowed) -> Result<(), StoreError> {
        self.end(op, "COMMIT", write).await
    }

    async fn end(
        &self,
        op: &'static str,
        statement: &'static str,
        mut write: Borrowed,
    ) -> Result<(), StoreError> {
        let end = sqlx::query(statement);
        self.run(op, end.execute(write.connection())).await?;
        write.is_idle = true;
        Ok(())
    }

    async fn borrow(&self, op: &'static str) -> Result<Borrowed, StoreError> {
        if let Some(problem) = self.lost_hold() {
            return Err(unavailable(op, problem));
        }
        self.pool.borrow().await.map_err(failed(op))
    }

    /// Waits for a statement, but not for long.
    async fn run<T>(
        &self,
        op: &'static str,
        statement: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        answered(ANSWER_TIMEOUT, statement)
            .await
            .map_err(failed(op))
    }
}

/// The connection string, if its files can be read.
fn usable_dsn(options: &PostgresOptions) -> Result<PgConnectOptions, StoreError> {
    let dsn = options
        .parse_dsn()
        .map_err(|error| StoreError::Connect(error.into()))?;
    options
        .check_files()
        .map_err(|error| StoreError::Connect(error.into()))?;
    Ok(dsn)
}

/// Connections whose statements have time limits.
fn pool(options: &PostgresOptions, dsn: PgConnectOptions) -> ConnectionPool {
    let limited = dsn.options([
        ("lock_timeout", LOCK_TIMEOUT),
        ("statement_timeout", STATEMENT_TIMEOUT),
        (
            "idle_in_transaction_session_timeout",
            IDLE_TRANSACTION_TIMEOUT,
        ),
    ]);
    ConnectionPool::new(options, limited)
}

/// Names the operation of a failed statement, and what is wrong with the store.
fn failed(op: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |source| match problem(&source) {
        None => StoreError::Query { op, source },
        Some(problem) => StoreError::Unavailable {
            op,
            problem,
            source: Some(source),
        },
    }
}

fn unavailable(op: &'static str, problem: Problem) -> StoreError {
    StoreError::Unavailable {
        op,
        problem,
        source: None,
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn instance_id(&self) -> Result<String, StoreError> {
        const OP: &str = "read the instance id";
        let fresh = Uuid::new_v4().simple().to_string();
        let mut write = self.begin(OP).await?;
        let insert = sqlx::query(
            "INSERT INTO instance (only_row, id) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
        )
        .bind(fresh);
        self.run(OP, insert.execute(write.connection())).await?;
        let read = sqlx::query_scalar("SELECT id FROM instance");
        let id = self.run(OP, read.fetch_one(write.connection())).await?;
        self.commit(OP, write).await?;
        Ok(id)
    }

    async fn check(&self) -> Result<(), StoreError> {
        const OP: &str = "take a write";
        let write = self.begin(OP).await?;
        self.end(OP, "ROLLBACK", write).await
    }

    fn lost_hold(&self) -> Option<Problem> {
        self.hold.as_ref().and_then(|hold| hold.problem())
    }

    async fn close(&self) {
        // A connection that hangs must not keep the server from ending.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.pool.close()).await;
        if let Some(hold) = &self.hold {
            hold.release().await;
        }
    }
}

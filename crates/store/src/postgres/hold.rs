//! Who uses the store: one server, which holds an advisory lock for as long as it runs.
//!
//! The lock ends with its connection, which the server may notice late. So each server also writes a
//! token, and a write counts only while the token is that of its server.

use std::{io, time::Duration};

use osb_service::{ErrorChain, Supervisor};
use sqlx::{
    ConnectOptions, Connection, PgConnection, SqlSafeStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    postgres::PgConnectOptions,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};
use uuid::Uuid;

use super::{failed, problem::problem};
use crate::{Problem, StoreError};

/// How often the lock's connection is tested, and how often a lost one is replaced.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time the database may take to answer a test of the connection.
const TEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a start waits for the lock: the connection of a server that was killed ends soon after
/// its process.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// Time between attempts to take the lock at a start.
const LOCK_RETRY: Duration = Duration::from_millis(100);
/// How long the token, or a step of the schema, waits for a lock of another program, in the
/// database's notation. Statements of other programs queue behind one that waits.
const LOCK_TIMEOUT: &str = "10s";
/// How long a statement of a step of the schema may take: it may visit every row of a table.
const STEP_TIMEOUT: &str = "30min";
/// Longest time for the database to write the token, which waits for a lock at most.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time to give the lock back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The lock's key. The store lies in the first schema of the search path.
const LOCK: &str = "SELECT pg_try_advisory_lock(
    hashtextextended('opensandbox-server store ' || COALESCE(current_schema(), ''), 0))";

/// Whether the store has a table. One of that name in a later schema of the search path belongs to
/// another store.
pub(super) const HAS_TABLE: &str = "SELECT EXISTS (
    SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1)";

/// The right to use a store. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    token: Uuid,
    problem: watch::Receiver<Option<Problem>>,
    tasks: Supervisor,
}

impl Hold {
    /// Connects, takes the lock and the token, and brings the schema up to date.
    pub(super) async fn take(
        options: PgConnectOptions,
        connect_timeout: Duration,
    ) -> Result<Self, StoreError> {
        let options = options.options([
            ("lock_timeout", LOCK_TIMEOUT),
            ("statement_timeout", STEP_TIMEOUT),
        ]);
        let lock = Lock {
            options,
            connect_timeout,
        };
        let mut connection = lock.wait().await?;
        let token = Uuid::new_v4();
        // First of all: a server that lost the lock without noticing must not write while the schema
        // changes. A new store has no table for the token yet, and no other server.
        let exists = sqlx::query_scalar(HAS_TABLE).bind("holder");
        let exists = answered(TEST_TIMEOUT, exists.fetch_one(&mut connection)).await;
        if exists.map_err(failed("look for the store"))? {
            write_token(&mut connection, token).await?;
        }
        schema()
            .run_direct(None, &mut connection, false)
            .await
            .map_err(migration_failed)?;
        write_token(&mut connection, token).await?;
        let (sender, problem) = watch::channel(None);
        let tasks = Supervisor::new();
        let keeper = Keeper {
            lock,
            token,
            problem: sender,
            tasks: tasks.clone(),
        };
        tasks.spawn("store lock", keeper.keep(connection));
        Ok(Self {
            token,
            problem,
            tasks,
        })
    }

    /// What a write compares with the stored token.
    pub(super) fn token(&self) -> Uuid {
        self.token
    }

    /// Why the store must not be used now.
    pub(super) fn problem(&self) -> Option<Problem> {
        *self.problem.borrow()
    }

    /// Gives the lock back.
    pub(super) async fn release(&self) {
        self.tasks.drain(RELEASE_TIMEOUT * 2).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// Excludes every other server from writing. Waits for writes under way.
async fn write_token(connection: &mut PgConnection, token: Uuid) -> Result<(), StoreError> {
    let write = sqlx::query(
        "INSERT INTO holder (only_row, token) VALUES (1, $1)
         ON CONFLICT (only_row) DO UPDATE SET token = excluded.token",
    )
    .bind(token)
    .execute(connection);
    let written = answered(TOKEN_TIMEOUT, write).await;
    written.map(drop).map_err(failed("take the store over"))
}

/// A lock of another program is no defect of the schema.
fn migration_failed(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)
            if problem(&source).is_some() =>
        {
            failed("bring the store's schema up to date")(source)
        }
        other => StoreError::Migrate(other),
    }
}

/// How to take the lock.
struct Lock {
    options: PgConnectOptions,
    connect_timeout: Duration,
}

impl Lock {
    /// Takes the lock on a new connection; `None` when another server has it.
    async fn attempt(&self) -> Result<Option<PgConnection>, sqlx::Error> {
        let mut connection = answered(self.connect_timeout, self.options.connect()).await?;
        let is_ours = try_lock(&mut connection).await?;
        Ok(is_ours.then_some(connection))
    }

    /// Takes the lock for a server that starts.
    async fn wait(&self) -> Result<PgConnection, StoreError> {
        let failed = |error: sqlx::Error| StoreError::Connect(error.into());
        let connection = answered(self.connect_timeout, self.options.connect()).await;
        let mut connection = connection.map_err(failed)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        while !try_lock(&mut connection).await.map_err(failed)? {
            if Instant::now() >= deadline {
                let used = "another server uses it; give each a database or a schema of its own";
                return Err(StoreError::Connect(io::Error::other(used).into()));
            }
            sleep(LOCK_RETRY).await;
        }
        Ok(connection)
    }
}

async fn try_lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    answered(
        TEST_TIMEOUT,
        sqlx::query_scalar(LOCK).fetch_one(&mut *connection),
    )
    .await
}

/// Bounds how long the database may take.
pub(super) async fn answered<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let late = |_| sqlx::Error::Io(io::Error::from(io::ErrorKind::TimedOut));
    timeout(limit, work).await.map_err(late)?
}

/// Keeps the lock until the store is closed.
struct Keeper {
    lock: Lock,
    token: Uuid,
    problem: watch::Sender<Option<Problem>>,
    tasks: Supervisor,
}

impl Keeper {
    async fn keep(self, connection: PgConnection) {
        let mut held = Some(connection);
        while self.pause().await {
            held = match held {
                Some(connection) => self.test(connection).await,
                None if self.is_taken_over() => None,
                None => self.regain().await,
            };
        }
        if let Some(connection) = held
            && let Err(error) = release(connection).await
        {
            warn!(error = %ErrorChain(&error), "the lock of the store ends with its connection");
        }
    }

    /// Waits for the next round; `false` when the store is being closed.
    async fn pause(&self) -> bool {
        tokio::select! {
            () = self.tasks.stopping().cancelled() => false,
            () = sleep(INTERVAL) => true,
        }
    }

    fn is_taken_over(&self) -> bool {
        *self.problem.borrow() == Some(Problem::TakenOver)
    }

    /// Returns the connection if it works.
    async fn test(&self, mut connection: PgConnection) -> Option<PgConnection> {
        match answered(TEST_TIMEOUT, connection.ping()).await {
            Ok(()) => Some(connection),
            Err(error) => {
                warn!(error = %ErrorChain(&error), "the lock of the store is lost; writes are rejected");
                self.problem.send_replace(Some(Problem::Unreachable));
                None
            }
        }
    }

    /// Takes the lock again, unless another server has used the store since: what this one has in
    /// memory is then out of date.
    async fn regain(&self) -> Option<PgConnection> {
        let (held, found) = match self.try_regain().await {
            Ok(Some((connection, true))) => (Some(connection), None),
            Ok(Some((_, false))) => (None, Some(Problem::TakenOver)),
            Ok(None) => (None, Some(Problem::Locked)),
            Err(error) => {
                let found = problem(&error).unwrap_or(Problem::Unreachable);
                (None, Some(found))
            }
        };
        match self.problem.send_replace(found) {
            before if before == found => {}
            _ => match found {
                None => info!("the lock of the store is held again"),
                Some(problem) => warn!(%problem, "the lock of the store is still lost"),
            },
        }
        held
    }

    async fn try_regain(&self) -> Result<Option<(PgConnection, bool)>, sqlx::Error> {
        let Some(mut connection) = self.lock.attempt().await? else {
            return Ok(None);
        };
        let ours = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM holder WHERE token = $1)")
            .bind(self.token)
            .fetch_one(&mut connection);
        let is_ours = answered(TEST_TIMEOUT, ours).await?;
        Ok(Some((connection, is_ours)))
    }
}

/// Gives the lock back before the connection ends, which the database notices later.
async fn release(mut connection: PgConnection) -> Result<(), sqlx::Error> {
    answered(RELEASE_TIMEOUT, async {
        sqlx::query("SELECT pg_advisory_unlock_all()")
            .execute(&mut connection)
            .await?;
        connection.close().await
    })
    .await
}

/// Version of the schema that this release needs.
pub(super) fn newest_schema() -> Option<i64> {
    schema().iter().map(|step| step.version).max()
}

/// The steps of the schema, each in a file that never changes once it was released. The lock of the
/// store, which the caller holds, keeps other servers from running them at the same time.
pub(super) fn schema() -> Migrator {
    let steps = [
        (
            1,
            "start",
            include_str!("../../migrations/postgres/0001_start.sql"),
        ),
        (
            2,
            "accounts",
            include_str!("../../migrations/postgres/0002_accounts.sql"),
        ),
        (
            3,
            "metrics and commands",
            include_str!("../../migrations/postgres/0003_metrics_and_commands.sql"),
        ),
        (
            4,
            "tenants",
            include_str!("../../migrations/postgres/0004_tenants.sql"),
        ),
        (
            5,
            "audit",
            include_str!("../../migrations/postgres/0005_audit.sql"),
        ),
        (
            6,
            "webhooks",
            include_str!("../../migrations/postgres/0006_webhooks.sql"),
        ),
        (
            7,
            "imports",
            include_str!("../../migrations/postgres/0007_imports.sql"),
        ),
        (
            9,
            "audit reads",
            include_str!("../../migrations/postgres/0009_audit_reads.sql"),
        ),
        (
            10,
            "webhook pages",
            include_str!("../../migrations/postgres/0010_webhook_pages.sql"),
        ),
        (
            11,
            "history",
            include_str!("../../migrations/postgres/0011_history.sql"),
        ),
        (
            12,
            "snapshots",
            include_str!("../../migrations/postgres/0012_snapshots.sql"),
        ),
        (
            13,
            "pools",
            include_str!("../../migrations/postgres/0013_pools.sql"),
        ),
        (
            14,
            "templates",
            include_str!("../../migrations/postgres/0014_templates.sql"),
        ),
    ];
    let steps = steps.map(|(version, name, sql)| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    let mut schema = Migrator::with_migrations(steps.into());
    schema.set_locking(false);
    schema
}

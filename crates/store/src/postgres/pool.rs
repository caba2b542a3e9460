//! Connections to the database.
//!
//! A database that hangs must block nothing for longer than its time limits, so each wait here has
//! one. The library's pool has waits without one: when a connection is given back, and when it opens
//! those that it keeps. Where few connections are allowed, they block all of them for minutes after the
//! database has recovered.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_service::{ErrorChain, Supervisor};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use super::hold::answered;
use crate::PostgresOptions;

/// Longest time for an idle connection to answer; then it is replaced.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection above the least number stays without work.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// How long a connection is used. The database keeps memory for each, which only grows.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// Time between two rounds of upkeep.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// A bounded number of connections, opened when they are needed.
#[derive(Clone)]
pub(super) struct ConnectionPool(Arc<Shared>);

struct Shared {
    options: PgConnectOptions,
    connect_timeout: Duration,
    /// Longest time to borrow a connection.
    borrow_timeout: Duration,
    least: usize,
    most: u32,
    /// A permit for each connection that is in use or may be opened.
    permits: Arc<Semaphore>,
    /// Connections without work; the one used last is at the back.
    idle: Mutex<VecDeque<OpenConnection>>,
    tasks: Supervisor,
}

struct OpenConnection {
    connection: PgConnection,
    opened_at: Instant,
    used_at: Instant,
}

/// A connection in use. It is closed when it is dropped, unless it is marked as idle: the next user
/// must not wait for the answer to an abandoned statement, nor continue its transaction.
pub(super) struct Borrowed {
    open: Option<OpenConnection>,
    /// Whether nothing is left to be done on the connection.
    pub(super) is_idle: bool,
    pool: ConnectionPool,
    /// Dropped last: who gets it next finds the connection.
    _permit: OwnedSemaphorePermit,
}

impl Borrowed {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.open.as_mut().expect("only a drop takes it").connection
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(open) = self.open.take().filter(|_| self.is_idle) {
            self.pool.put(open);
        }
    }
}

impl fmt::Debug for ConnectionPool {
    /// Without the options, which include the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool")
            .field("idle", &self.idle().len())
            .finish_non_exhaustive()
    }
}

impl ConnectionPool {
    /// A pool that opens its first connections soon.
    pub(super) fn new(options: &PostgresOptions, dsn: PgConnectOptions) -> Self {
        let size = |number: u32| usize::try_from(number).unwrap_or(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
            options: dsn,
            connect_timeout: options.connect_timeout,
            borrow_timeout: options.pool_timeout,
            least: size(options.min_pool_size),
            most: options.max_pool_size,
            permits: Arc::new(Semaphore::new(size(options.max_pool_size))),
            idle: Mutex::default(),
            tasks: Supervisor::new(),
        });
        let weak = Arc::downgrade(&shared);
        shared
            .tasks
            .spawn_abortable("store connections", async move {
                while let Some(shared) = weak.upgrade() {
                    Self(shared).keep_up().await;
                    sleep(UPKEEP_INTERVAL).await;
                }
            });
        Self(shared)
    }

    /// Borrows a connection that answers.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] when none is free or can be opened in time, else why it cannot be
    /// opened.
    pub(super) async fn borrow(&self) -> Result<Borrowed, sqlx::Error> {
        let borrowed = timeout(self.0.borrow_timeout, self.acquire()).await;
        borrowed.map_err(|_| sqlx::Error::PoolTimedOut)?
    }

    async fn acquire(&self) -> Result<Borrowed, sqlx::Error> {
        let permit = Arc::clone(&self.0.permits).acquire_owned().await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let open = match self.take().await {
            Some(open) => open,
            None => self.connect().await?,
        };
        Ok(Borrowed {
            open: Some(open),
            is_idle: false,
            pool: self.clone(),
            _permit: permit,
        })
    }

    /// Waits until no connection is in use, and closes all. The caller limits the time.
    pub(super) async fn close(&self) {
        self.0.tasks.stop();
        // An error means that it is closed already.
        let all = self.0.permits.acquire_many(self.0.most).await;
        self.0.permits.close();
        drop(all);
        let idle: Vec<OpenConnection> = self.idle().drain(..).collect();
        for OpenConnection { connection, .. } in idle {
            // The database notices the end of a connection in any case.
            let _ = answered(PING_TIMEOUT, connection.close()).await;
        }
    }

    /// An idle connection, tested; `None` when a new one is needed.
    async fn take(&self) -> Option<OpenConnection> {
        let mut open = self.idle().pop_back().filter(|open| !open.is_old())?;
        match answered(PING_TIMEOUT, open.connection.ping()).await {
            Ok(()) => Some(open),
            Err(error) => {
                debug!(error = %ErrorChain(&error), "the idle connections are replaced");
                // What ended or blocked this one did the same to those that were used before it.
                self.idle().clear();
                None
            }
        }
    }

    async fn connect(&self) -> Result<OpenConnection, sqlx::Error> {
        let connection = answered(self.0.connect_timeout, self.0.options.connect()).await?;
        let now = Instant::now();
        Ok(OpenConnection {
            connection,
            opened_at: now,
            used_at: now,
        })
    }

    fn put(&self, mut open: OpenConnection) {
        // One that came back too late ends here.
        if !self.0.permits.is_closed() {
            open.used_at = Instant::now();
            self.idle().push_back(open);
        }
    }

    /// Closes connections that are old or not needed, and opens those that should be there.
    async fn keep_up(&self) {
        self.idle().retain(|open| !open.is_old());
        while self.size() > self.0.least {
            let unused = self
                .idle()
                .pop_front_if(|open| open.used_at.elapsed() > IDLE_MAX);
            if unused.is_none() {
                break;
            }
        }
        while self.size() < self.0.least {
            // Without a permit there are users enough.
            let Ok(_permit) = Arc::clone(&self.0.permits).try_acquire_owned() else {
                return;
            };
            match self.connect().await {
                Ok(open) => self.put(open),
                Err(error) => {
                    debug!(error = %ErrorChain(&error), "a connection cannot be opened");
                    return;
                }
            }
        }
    }

    /// Connections in use and idle ones.
    fn size(&self) -> usize {
        let most = usize::try_from(self.0.most).unwrap_or(usize::MAX);
        let used = most.saturating_sub(self.0.permits.available_permits());
        used.saturating_add(self.idle().len())
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<OpenConnection>> {
        // The queue is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    fn is_old(&self) -> bool {
        self.opened_at.elapsed() > AGE_MAX
    }
}

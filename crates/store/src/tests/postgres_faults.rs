//! A PostgreSQL that is locked, cut off, hung, or used by another server.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use osb_protocol::{SandboxId, WireTime};
use sqlx::Connection;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use url::Url;

use super::{
    Database, Stage, location, run,
    writes::{all_refused, every_write},
};
use crate::{Location, PostgresOptions, Problem, Store, StoreError};

/// More than ten times what a rejected write, or a recovery, may take.
const PATIENCE: Duration = Duration::from_secs(120);

async fn write(store: &Arc<dyn Store>) -> Result<(), StoreError> {
    let at = WireTime::from_unix_us(1).unwrap();
    let id = SandboxId::from("a");
    let work = store.set_expiry(&id, at, None);
    timeout(PATIENCE, work).await.expect("a write that ends")
}

fn problem_of<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Problem {
    match result.unwrap_err() {
        StoreError::Unavailable { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

async fn until_it_works(store: &Arc<dyn Store>) {
    let works = async {
        while write(store).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, works)
        .await
        .expect("a store that recovers");
}

#[tokio::test]
async fn the_audit_trail_is_written_while_the_database_vacuums_it() {
    let Some(database) = Database::find().await else {
        return;
    };
    let store = crate::open(&database.location()).await.unwrap();
    let mut vacuum = database.connect().await;
    // What VACUUM holds while it works.
    let lock = format!(
        "BEGIN; LOCK TABLE {}.audit_entries IN SHARE UPDATE EXCLUSIVE MODE",
        database.schema
    );
    run(&mut vacuum, lock).await;
    let entries = [super::audit::entry(1)];
    let written = timeout(PATIENCE, store.append_audit(&entries)).await;
    written.unwrap().unwrap();
    vacuum.close().await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_lock_of_another_program_is_not_waited_for_long() {
    let Some(database) = Database::find().await else {
        return;
    };
    let store = crate::open(&database.location()).await.unwrap();
    let mut other = database.connect().await;
    let lock = format!(
        "BEGIN; LOCK TABLE {}.holder IN EXCLUSIVE MODE",
        database.schema
    );
    run(&mut other, lock).await;
    let mut writes = JoinSet::new();
    for _ in 0..16 {
        let store = Arc::clone(&store);
        writes.spawn(async move { write(&store).await });
    }
    for refused in writes.join_all().await {
        assert_eq!(problem_of(refused), Problem::Locked);
    }
    assert_eq!(problem_of(store.check().await), Problem::Locked);
    assert_eq!(
        store.recent_history(None, 0, 1).await.unwrap(),
        [],
        "reads go on"
    );
    other.close().await.unwrap();
    until_it_works(&store).await;
    store.check().await.unwrap();
    store.close().await;
}

/// Ends every connection of the store, as a restart of the database does.
async fn disconnect(database: &Database) {
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
        database.schema
    );
    run(&mut database.connect().await, end).await;
}

#[tokio::test]
async fn a_lost_lock_is_regained() {
    let Some(database) = Database::find().await else {
        return;
    };
    let store = crate::open(&database.location()).await.unwrap();
    write(&store).await.unwrap();
    for _ in 0..2 {
        disconnect(&database).await;
        let lost = async {
            loop {
                match write(&store).await {
                    Ok(()) => sleep(Duration::from_millis(20)).await,
                    refused => break problem_of(refused),
                }
            }
        };
        let problem = timeout(PATIENCE, lost).await;
        assert_eq!(
            problem.expect("a loss that is noticed"),
            Problem::Unreachable
        );
        until_it_works(&store).await;
    }
    let second = crate::open(&database.location()).await.unwrap_err();
    assert!(
        second
            .source()
            .unwrap()
            .to_string()
            .contains("another server")
    );
    store.close().await;
}

#[tokio::test]
async fn a_server_whose_store_was_used_by_another_never_writes_again() {
    let Some(database) = Database::find().await else {
        return;
    };
    let first = crate::open(&database.location()).await.unwrap();
    write(&first).await.unwrap();
    let taken = async {
        loop {
            disconnect(&database).await;
            // Unless the first server was faster.
            if let Ok(second) = crate::open(&database.location()).await {
                break second;
            }
        }
    };
    let second = timeout(PATIENCE, taken).await.expect("a free lock");
    second
        .set_deleted(&"a".into(), WireTime::from_unix_us(2).unwrap(), None)
        .await
        .unwrap();
    assert!(write(&first).await.is_err());
    let noticed = async {
        while !first.is_used_by_another() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, noticed).await.expect("it is noticed");
    assert!(!second.is_used_by_another());
    second.close().await;
    drop(second);
    let taken_over = async {
        while problem_of(write(&first).await) != Problem::TakenOver {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, taken_over).await.expect("the reason");
    sleep(Duration::from_secs(3)).await;
    all_refused(every_write(&*first).await, Problem::TakenOver);
    assert!(first.is_used_by_another());
    first.close().await;
    drop(first);
    let third = crate::open(&database.location()).await.unwrap();
    let changes = &third.all_changes().await.unwrap()[&SandboxId::from("a")];
    assert_eq!(changes.expires_at, WireTime::from_unix_us(1));
    third.close().await;
}

/// What becomes of data that arrives while the gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    /// It waits.
    Delays,
    /// It is lost, and so is all that follows on its connection, also that the database ends it.
    Loses,
}

/// Forwards to the database while the gate is open.
async fn proxy(database: &Url, gate: watch::Receiver<bool>, closed: Closed) -> (Url, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut url = database.clone();
    url.set_port(Some(listener.local_addr().unwrap().port()))
        .unwrap();
    let to = format!(
        "{}:{}",
        database.host_str().unwrap(),
        database.port().unwrap_or(5432)
    );
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, to_client) = client.into_split();
            let server = TcpStream::connect(&to).await.unwrap();
            let (from_server, to_server) = server.into_split();
            let lost = Arc::new(AtomicBool::new(false));
            let requests = Direction {
                gate: gate.clone(),
                closed,
                lost: Arc::clone(&lost),
                is_client: true,
            };
            let answers = Direction {
                gate: gate.clone(),
                closed,
                lost,
                is_client: false,
            };
            connections.spawn(requests.forward(from_client, to_server));
            connections.spawn(answers.forward(from_server, to_client));
        }
    });
    (url, task)
}

/// One direction of a connection.
struct Direction {
    gate: watch::Receiver<bool>,
    closed: Closed,
    /// Of both directions.
    lost: Arc<AtomicBool>,
    is_client: bool,
}

impl Direction {
    async fn forward(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 1 << 14];
        loop {
            let read = from.read(&mut buffer).await.unwrap_or(0);
            if self.closed == Closed::Loses && !*self.gate.borrow() {
                self.lost.store(true, SeqCst);
            }
            let is_lost = self.lost.load(SeqCst);
            match read {
                0 if is_lost && !self.is_client => std::future::pending().await,
                0 => return,
                _ if is_lost => continue,
                _ => {}
            }
            if self.gate.wait_for(|open| *open).await.is_err() {
                return;
            }
            if to.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_database_that_hangs_is_reported_and_recovers() {
    let Some(database) = Database::find().await else {
        return;
    };
    let (open, gate) = watch::channel(true);
    let (dsn, _proxy) = proxy(&database.dsn(), gate, Closed::Delays).await;
    let store = crate::open(&location(&dsn)).await.unwrap();
    write(&store).await.unwrap();
    open.send_replace(false);
    let mut writes = JoinSet::new();
    for _ in 0..32 {
        let store = Arc::clone(&store);
        writes.spawn(async move { write(&store).await });
    }
    for refused in writes.join_all().await {
        assert_eq!(problem_of(refused), Problem::Unreachable);
    }
    let checked = timeout(PATIENCE, store.check()).await.unwrap();
    assert_eq!(problem_of(checked), Problem::Unreachable);
    let read = timeout(PATIENCE, store.history(&"a".into())).await.unwrap();
    assert_eq!(problem_of(read), Problem::Unreachable);
    open.send_replace(true);
    until_it_works(&store).await;
    open.send_replace(false);
    timeout(PATIENCE, store.close())
        .await
        .expect("a close that ends");
    open.send_replace(true);
}

/// How long a database loses what is sent to it: longer than every limit on one answer.
const HANG: Duration = Duration::from_secs(12);

/// Lets connections hang for good in the middle of writes. New ones work afterwards.
async fn a_pool_recovers(min_pool_size: u32, max_pool_size: u32) {
    let Some(database) = Database::find().await else {
        return;
    };
    let (open, gate) = watch::channel(true);
    let (dsn, _proxy) = proxy(&database.dsn(), gate, Closed::Loses).await;
    let options = PostgresOptions {
        dsn: dsn.as_str().into(),
        min_pool_size,
        max_pool_size,
        ..PostgresOptions::default()
    };
    let store = crate::open(&Location::Postgres(options)).await.unwrap();
    write(&store).await.unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..8 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            loop {
                if write(&store).await.is_err() {
                    sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    sleep(Duration::from_millis(300)).await;
    open.send_replace(false);
    sleep(HANG).await;
    open.send_replace(true);
    until_it_works(&store).await;
    until_connected(&database, max_pool_size).await;
    writers.shutdown().await;
    store.close().await;
}

/// Waits until the store has so many connections besides the one with the lock.
async fn until_connected(database: &Database, pooled: u32) {
    let mut seen = 0;
    let connected = async {
        while seen != i64::from(pooled) + 1 {
            sleep(Duration::from_millis(50)).await;
            seen = connections(database).await;
        }
    };
    let connected = timeout(PATIENCE, connected).await;
    assert!(connected.is_ok(), "{seen} connections");
}

async fn connections(database: &Database) -> i64 {
    sqlx::query_scalar("SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = $1")
        .bind(&database.schema)
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_pool_of_one_connection_recovers_from_a_hang() {
    a_pool_recovers(1, 1).await;
}

#[tokio::test]
async fn a_pool_that_keeps_all_its_connections_recovers_from_a_hang() {
    a_pool_recovers(3, 3).await;
}

#[tokio::test]
async fn the_least_number_of_connections_is_kept() {
    let Some(database) = Database::find().await else {
        return;
    };
    let options = PostgresOptions {
        dsn: database.dsn().as_str().into(),
        min_pool_size: 3,
        max_pool_size: 3,
        ..PostgresOptions::default()
    };
    let store = crate::open(&Location::Postgres(options)).await.unwrap();
    for _ in 0..2 {
        until_connected(&database, 3).await;
        disconnect(&database).await;
        until_it_works(&store).await;
    }
    store.close().await;
    let closed = async {
        while connections(&database).await > 0 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, closed).await.expect("no connections");
}

#[tokio::test]
async fn old_rows_are_deleted_although_each_takes_long() {
    let Some(database) = Database::find().await else {
        return;
    };
    let store = crate::open(&database.location()).await.unwrap();
    // In one statement they would take longer than the database works on one.
    let slow = format!(
        "SET search_path TO {};
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
           AS 'BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END';
         CREATE TRIGGER slow BEFORE DELETE ON sandbox_history
           FOR EACH ROW EXECUTE FUNCTION slow();
         INSERT INTO sandbox_history
           SELECT 's' || n, '', to_timestamp(0), to_timestamp(n), 'deleted', '', '', '[]', NULL
           FROM generate_series(1, 2400) AS n",
        database.schema
    );
    run(&mut database.connect().await, slow).await;
    let before = WireTime::from_unix_us(2_400_000_000).unwrap();
    let pruned = timeout(PATIENCE, store.prune_history(before)).await;
    assert_eq!(pruned.expect("an end").unwrap(), 2399);
    assert_eq!(store.recent_history(None, 0, 5).await.unwrap().len(), 1);
    store.close().await;
}

#[tokio::test]
async fn a_start_excludes_other_servers_first_and_does_not_wait_for_long() {
    let Some(database) = Database::find().await else {
        return;
    };
    let first = crate::open(&database.location()).await.unwrap();
    let token = async || -> uuid::Uuid {
        let query = format!("SELECT token FROM {}.holder", database.schema);
        sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .fetch_one(&mut database.connect().await)
            .await
            .unwrap()
    };
    let before = token().await;
    first.close().await;
    // Another program keeps the schema from being changed.
    let mut other = database.connect().await;
    let lock = format!(
        "BEGIN; LOCK TABLE {}._sqlx_migrations IN ACCESS EXCLUSIVE MODE",
        database.schema
    );
    run(&mut other, lock).await;
    let here = database.location();
    let (second, waiting) = tokio::join!(timeout(PATIENCE, crate::open(&here)), async {
        let waits = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity
                         WHERE application_name = $1 AND wait_event_type = 'Lock')";
        let until = async {
            while !sqlx::query_scalar::<_, bool>(waits)
                .bind(&database.schema)
                .fetch_one(&mut database.connect().await)
                .await
                .unwrap()
            {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, until).await.expect("a start that waits");
        token().await
    });
    assert_ne!(waiting, before, "another server could still write");
    let second = second.expect("a start that ends").map(drop);
    let message = second.as_ref().unwrap_err().to_string();
    assert_eq!(problem_of(second), Problem::Locked);
    assert!(message.contains("schema"), "{message}");
    other.close().await.unwrap();
    let third = crate::open(&database.location()).await.unwrap();
    write(&third).await.unwrap();
    third.close().await;
}

#[tokio::test]
async fn a_table_of_another_schema_in_the_search_path_is_left_alone() {
    let (Some(mine), Some(others)) = (Database::find().await, Database::find().await) else {
        return;
    };
    let other = crate::open(&others.location()).await.unwrap();
    let mut dsn = mine.url.clone();
    let path = format!("-c search_path={},{}", mine.schema, others.schema);
    dsn.query_pairs_mut().append_pair("options", &path);
    let here = location(&dsn);
    assert!(crate::open_shared(&here).await.unwrap().is_none());
    let store = crate::open(&here).await.unwrap();
    write(&store).await.unwrap();
    write(&other).await.unwrap();
    assert_eq!(other.all_changes().await.unwrap().len(), 1);
    store.close().await;
    other.close().await;
}

#[tokio::test]
async fn dropped_tables_are_reported() {
    let Some(database) = Database::find().await else {
        return;
    };
    let store = crate::open(&database.location()).await.unwrap();
    let drop = format!("DROP SCHEMA {} CASCADE", database.schema);
    run(&mut database.connect().await, drop).await;
    assert_eq!(problem_of(write(&store).await), Problem::Replaced);
    store.close().await;
}

#[tokio::test]
async fn times_before_the_range_of_the_database_are_stored_as_its_oldest() {
    let Some(database) = Database::find().await else {
        return;
    };
    let store = crate::open(&database.location()).await.unwrap();
    // Before the range of the database, which has no year 9000 BC.
    let early = WireTime::from_unix_us(-300_000_000_000_000_000).unwrap();
    store
        .set_expiry(&"early".into(), early, None)
        .await
        .unwrap();
    let read = store.all_changes().await.unwrap();
    assert!(read[&SandboxId::from("early")].expires_at < WireTime::from_unix_us(0));
    store.close().await;
}

#[tokio::test]
async fn an_unreachable_database_is_an_error_without_the_password() {
    let location = Location::Postgres(PostgresOptions {
        dsn: "postgresql://me:hunter2@127.0.0.1:1/boxes".into(),
        ..PostgresOptions::default()
    });
    let error = Stage {
        location,
        database: None,
        _folder: None,
    }
    .try_open()
    .await
    .unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("refused"), "{error}: {cause}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

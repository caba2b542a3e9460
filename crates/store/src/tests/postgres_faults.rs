//! A PostgreSQL that is locked, cut off, hung, or used by another server.

use std::{error::Error, sync::Arc, time::Duration};

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

use super::{Database, Stage, location, run};
use crate::{Location, PostgresOptions, Problem, Store, StoreError};

/// More than ten times what a rejected write, or a recovery, may take.
const PATIENCE: Duration = Duration::from_secs(120);

async fn write(store: &Arc<dyn Store>) -> Result<(), StoreError> {
    let at = WireTime::from_unix_us(1).unwrap();
    let id = SandboxId::from("a");
    let work = store.set_expiry(&id, at);
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
        store.recent_history(None, 1).await.unwrap(),
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
    assert_eq!(problem_of(write(&first).await), Problem::TakenOver);
    assert!(first.is_used_by_another());
    first.close().await;
    drop(first);
    let third = crate::open(&database.location()).await.unwrap();
    let changes = &third.all_changes().await.unwrap()[&SandboxId::from("a")];
    assert_eq!(changes.expires_at, WireTime::from_unix_us(1));
    third.close().await;
}

/// Forwards to the database while the gate is open.
async fn proxy(database: &Url, gate: watch::Receiver<bool>) -> (Url, JoinSet<()>) {
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
            connections.spawn(forward(from_client, to_server, gate.clone()));
            connections.spawn(forward(from_server, to_client, gate.clone()));
        }
    });
    (url, task)
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: watch::Receiver<bool>) {
    let mut buffer = vec![0; 1 << 14];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if gate.wait_for(|open| *open).await.is_err() || read == 0 {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_database_that_hangs_is_reported_and_recovers() {
    let Some(database) = Database::find().await else {
        return;
    };
    let (open, gate) = watch::channel(true);
    let (dsn, _proxy) = proxy(&database.dsn(), gate).await;
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
    store.set_expiry(&"early".into(), early).await.unwrap();
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

//! The tools of operators.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use osb_protocol::{SandboxId, WireTime};
use sqlx::{AssertSqlSafe, ConnectOptions, sqlite::SqliteConnectOptions};

use super::{Stage, run};
use crate::{
    Location, Store,
    tools::{self, ToolError},
};

async fn set_expiry(store: &dyn Store, id: &str) {
    let at = WireTime::from_unix_us(1_935_396_000_000_000).unwrap();
    store.set_expiry(&SandboxId::from(id), at).await.unwrap();
}

pub(super) async fn a_store_in_use_is_inspected(stage: Stage) {
    let store = stage.open().await;
    store.instance_id().await.unwrap();
    set_expiry(&*store, "a").await;
    let found = tools::inspect(&stage.location).await.unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found:?}");
    assert_eq!(found.schema, found.newest_schema);
    assert_eq!(
        (found.tables["sandbox_changes"], found.tables["instance"]),
        (1, 1)
    );
    store.close().await;
}

pub(super) async fn unreadable_rows_are_named(stage: Stage) {
    let store = stage.open().await;
    set_expiry(&*store, "sound").await;
    stage
        .execute("INSERT INTO sandbox_changes (id, metadata) VALUES ('bad-1', '[1]'), ('fine', '{\"a\": \"b\"}')")
        .await;
    stage.execute("UPDATE instance SET id = 'x'").await;
    let found = tools::inspect(&stage.location).await.unwrap();
    assert_eq!(
        found.problems,
        ["sandbox_changes: metadata cannot be read (1): bad-1"]
    );
    store.close().await;
}

impl Stage {
    /// Runs a statement of another program.
    pub(super) async fn execute(&self, statement: &'static str) {
        match &self.location {
            Location::Sqlite(path) => execute(path, statement).await,
            Location::Postgres(_) => {
                let database = self.database.as_ref().unwrap();
                let path = format!("SET search_path TO {}", database.schema);
                let mut connection = database.connect().await;
                run(&mut connection, path).await;
                run(&mut connection, statement.to_owned()).await;
            }
        }
    }

    fn file(&self) -> &Path {
        match &self.location {
            Location::Sqlite(path) => path,
            Location::Postgres(_) => panic!("no file"),
        }
    }
}

async fn execute(path: &Path, statement: &'static str) {
    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .connect()
        .await
        .unwrap();
    let statement = sqlx::raw_sql(AssertSqlSafe(statement));
    statement.execute(&mut connection).await.unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Names of the files in the folder of a store, without the lock.
fn files(store: &Path) -> Vec<String> {
    let folder = fs::read_dir(store.parent().unwrap()).unwrap();
    let names = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_is_put_back() {
    let stage = Stage::sqlite();
    let saved = stage.file().with_file_name("saved.db");
    let store = stage.open().await;
    let instance = store.instance_id().await.unwrap();
    set_expiry(&*store, "before").await;
    let written = tools::backup(&stage.location, &saved).await.unwrap();
    assert_eq!(
        (mode(&saved), written.bytes),
        (0o600, saved.metadata().unwrap().len())
    );
    set_expiry(&*store, "after").await;
    let refused = tools::restore(&stage.location, &saved).await.unwrap_err();
    let ToolError::Store(refused) = refused else {
        panic!("{refused}");
    };
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("another server"), "{cause}");
    assert_eq!(store.all_changes().await.unwrap().len(), 2);
    store.close().await;
    drop(store);
    let written = tools::restore(&stage.location, &saved).await.unwrap();
    assert_eq!(mode(stage.file()), 0o600);
    let store = stage.open().await;
    assert_eq!(store.instance_id().await.unwrap(), instance);
    let changes = store.all_changes().await.unwrap();
    assert!(
        changes.contains_key(&"before".into()) && changes.len() == 1,
        "{changes:?}"
    );
    store.close().await;
    drop(store);
    let old = Location::Sqlite(written.replaced.unwrap());
    let old = crate::open(&old).await.unwrap();
    assert_eq!(old.all_changes().await.unwrap().len(), 2);
    old.close().await;
}

#[tokio::test]
async fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let stage = Stage::sqlite();
    let missing = tools::backup(&stage.location, Path::new("/tmp/never")).await;
    assert!(matches!(missing, Err(ToolError::NoStore(_))), "{missing:?}");
    assert!(!stage.file().exists(), "a tool makes no store");
    let store = stage.open().await;
    store.close().await;
    drop(store);
    let other = stage.file().with_file_name("other");
    for junk in [&b"text"[..], b""] {
        fs::write(&other, junk).unwrap();
        let exists = tools::backup(&stage.location, &other).await.unwrap_err();
        assert!(matches!(exists, ToolError::Exists(_)), "{exists}");
        tools::restore(&stage.location, &other).await.unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), junk);
    }
    execute(
        stage.file(),
        "INSERT INTO _sqlx_migrations VALUES (99, 'x', 0, TRUE, x'00', 1)",
    )
    .await;
    let newer = tools::backup(&stage.location, &stage.file().with_file_name("new")).await;
    let reason = newer.unwrap_err().to_string();
    assert!(reason.contains("of a later release"), "{reason}");
    assert_eq!(files(stage.file()), ["other", "store.db"]);
}

#[tokio::test]
async fn a_restored_store_does_not_get_the_log_of_another() {
    let stage = Stage::sqlite();
    let store = stage.open().await;
    set_expiry(&*store, "saved").await;
    let saved = stage.file().with_file_name("saved.db");
    tools::backup(&stage.location, &saved).await.unwrap();
    set_expiry(&*store, "in the log").await;
    // What a crash leaves.
    let crashed = tempfile::tempdir().unwrap();
    for name in ["store.db", "store.db-wal"] {
        fs::copy(stage.file().with_file_name(name), crashed.path().join(name)).unwrap();
    }
    store.close().await;
    drop(store);
    let path = crashed.path().join("store.db");
    for has_database in [true, false] {
        if !has_database {
            fs::remove_file(&path).unwrap();
            fs::write(crashed.path().join("store.db-wal"), b"of another").unwrap();
        }
        let location = Location::Sqlite(path.clone());
        let written = tools::restore(&location, &saved).await.unwrap();
        assert_eq!(written.replaced.is_some(), has_database);
        let store = crate::open(&location).await.unwrap();
        let changes = store.all_changes().await.unwrap();
        assert!(
            changes.contains_key(&"saved".into()) && changes.len() == 1,
            "{changes:?}"
        );
        store.close().await;
    }
    assert!(
        files(&path).iter().all(|name| !name.starts_with('.')),
        "{:?}",
        files(&path)
    );
}

#[tokio::test]
async fn files_that_others_can_read_are_reported() {
    let stage = Stage::sqlite();
    stage.open().await.close().await;
    fs::set_permissions(stage.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let found = tools::inspect(&stage.location).await.unwrap();
    let [note] = found.notes.as_slice() else {
        panic!("{found:?}");
    };
    assert!(
        note.contains("store.db (644)") && found.is_sound(),
        "{note}"
    );
}

//! Snapshots of another server.

use std::path::{Path, PathBuf};

use osb_protocol::{WireTime, lifecycle::SnapshotState};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use super::Stage;
use crate::{
    SnapshotRow,
    tools::{self, SnapshotMigration, ToolError},
};

/// A file of another server, of a release with or without tenants.
struct Foreign {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Foreign {
    async fn new(has_namespace: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("opensandbox.db");
        let namespace = match has_namespace {
            true => "namespace TEXT DEFAULT NULL,",
            false => "",
        };
        let create = format!(
            "CREATE TABLE snapshots (id TEXT PRIMARY KEY, source_sandbox_id TEXT NOT NULL, {namespace}
               name TEXT, description TEXT, restore_config TEXT NOT NULL, state TEXT NOT NULL,
               reason TEXT, message TEXT, last_transition_at TEXT, created_at TEXT NOT NULL,
               updated_at TEXT NOT NULL)"
        );
        execute(&path, "PRAGMA journal_mode = WAL".to_owned()).await;
        execute(&path, create).await;
        Self {
            path,
            _folder: folder,
        }
    }

    /// Adds a row whose columns are given with their values.
    async fn add(&self, id: &str, more: &[(&str, &str)]) {
        let mut values = vec![
            ("id", id),
            ("source_sandbox_id", "a"),
            ("restore_config", r#"{"image": null}"#),
            ("state", "Creating"),
            ("created_at", "2031-05-01T10:00:00.000001+02:00"),
            ("updated_at", "2031-05-01T10:00:00+00:00"),
        ];
        for (name, value) in more {
            values.retain(|(known, _)| known != name);
            values.push((name, value));
        }
        let (names, values): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let insert = format!(
            "INSERT INTO snapshots ({}) VALUES ('{}')",
            names.join(", "),
            values.join("', '")
        );
        execute(&self.path, insert).await;
    }
}

async fn execute(path: &Path, statement: String) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let done = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection);
    done.await.unwrap();
    connection.close().await.unwrap();
}

fn migrated(total: u64, migrated: u64, skipped: u64) -> SnapshotMigration {
    SnapshotMigration {
        total,
        migrated,
        skipped,
    }
}

pub(super) async fn a_dry_run_writes_nothing_and_a_second_run_skips(stage: Stage) {
    let foreign = Foreign::new(true).await;
    foreign.add("open", &[]).await;
    let whole = [
        ("name", "before"),
        ("namespace", "ns-a"),
        ("description", "dropped"),
        (
            "restore_config",
            r#"{"backend": null, "image": "opensandbox-snapshots:ready"}"#,
        ),
        ("state", "Ready"),
        ("reason", "snapshot_runtime_ready"),
        ("message", "It is ready."),
        ("last_transition_at", "2031-05-01T10:00:09Z"),
    ];
    foreign.add("ready", &whole).await;
    let run = async |dry| {
        tools::migrate_snapshots(&foreign.path, &stage.location, dry)
            .await
            .unwrap()
    };
    // There is no store yet, and a dry run makes none.
    assert_eq!(run(true).await, migrated(2, 2, 0));
    assert!(stage.open_shared().await.is_none());
    assert_eq!(run(false).await, migrated(2, 2, 0));
    let at = |text| WireTime::parse(text).unwrap();
    let ready = SnapshotRow {
        id: "ready".into(),
        sandbox_id: "a".into(),
        name: Some("before".into()),
        tenant: Some("ns-a".into()),
        owner: None,
        state: SnapshotState::Ready,
        reason: "snapshot_runtime_ready".into(),
        message: "It is ready.".into(),
        image: Some("opensandbox-snapshots:ready".into()),
        size_bytes: None,
        parent_id: None,
        created_at: at("2031-05-01T08:00:00.000001Z"),
        changed_at: at("2031-05-01T10:00:09Z"),
    };
    // Also while a server uses the store.
    let store = stage.open().await;
    assert_eq!(store.snapshot("ready").await.unwrap(), Some(ready));
    let open = store.snapshot("open").await.unwrap().unwrap();
    assert_eq!((open.image, open.tenant), (None, None));
    assert_eq!(open.changed_at, open.created_at);
    foreign.add("later", &[]).await;
    assert_eq!(run(true).await, migrated(3, 1, 2));
    assert_eq!(store.snapshot("later").await.unwrap(), None);
    assert_eq!(run(false).await, migrated(3, 1, 2));
    assert_eq!(run(false).await, migrated(3, 0, 3));
    assert!(store.snapshot("later").await.unwrap().is_some());
    store.close().await;
}

pub(super) async fn a_file_from_before_tenants_is_read(stage: Stage) {
    let foreign = Foreign::new(false).await;
    foreign.add("old", &[]).await;
    let before = std::fs::read(&foreign.path).unwrap();
    let done = tools::migrate_snapshots(&foreign.path, &stage.location, false).await;
    assert_eq!(done.unwrap(), migrated(1, 1, 0));
    assert_eq!(std::fs::read(&foreign.path).unwrap(), before);
    let store = stage.open().await;
    let row = store.snapshot("old").await.unwrap().unwrap();
    assert_eq!((row.tenant, row.state), (None, SnapshotState::Creating));
    store.close().await;
}

pub(super) async fn what_cannot_be_read_is_named_and_nothing_is_copied(stage: Stage) {
    let migrate = async |path: &Path| -> ToolError {
        let done = tools::migrate_snapshots(path, &stage.location, false).await;
        done.unwrap_err()
    };
    let missing = migrate(Path::new("/nowhere/opensandbox.db")).await;
    assert!(matches!(missing, ToolError::NoFile(_)), "{missing}");
    for (column, value) in [
        ("restore_config", "[]"),
        ("state", "Unheard"),
        ("created_at", "yesterday"),
        ("last_transition_at", "soon"),
    ] {
        let foreign = Foreign::new(true).await;
        foreign.add("sound", &[]).await;
        foreign.add("torn", &[(column, value)]).await;
        let text = migrate(&foreign.path).await.to_string();
        let want = format!("snapshot torn: {column} cannot be read");
        assert!(text.ends_with(&want), "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.db");
    execute(&other, "CREATE TABLE t (a)".to_owned()).await;
    let text = migrate(&other).await.to_string();
    assert!(text.ends_with("it has no table of snapshots"), "{text}");
    assert!(stage.open_shared().await.is_none(), "no store was made");
}

#[tokio::test]
async fn the_store_itself_may_have_the_other_servers_table() {
    let foreign = Foreign::new(true).await;
    foreign.add("s", &[]).await;
    // The default path of both servers is the same.
    let location = crate::Location::Sqlite(foreign.path.clone());
    let done = tools::migrate_snapshots(&foreign.path, &location, false).await;
    assert_eq!(done.unwrap(), migrated(1, 1, 0));
    let again = tools::migrate_snapshots(&foreign.path, &location, false).await;
    assert_eq!(again.unwrap(), migrated(1, 0, 1));
}

//! The tools of operators.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use osb_protocol::{SandboxId, WireTime, identity::Role};
use sqlx::{AssertSqlSafe, ConnectOptions, sqlite::SqliteConnectOptions};

use super::{Stage, run};
use crate::{
    AnnouncedRow, Announcement, ApiKeyRow, CreateKey, DeliveryStatus, EndedSpec, HistoryEntry,
    Location, MemberState, MetricStretch, Outcome, PasswordHash, ReportedCommand, SessionRow,
    SnapshotRow, Store, UnansweredCreate, UserRow, WebhookRow,
    tables::{Column, TABLES, Value},
    tools::{self, ToolError},
};

async fn set_expiry(store: &dyn Store, id: &str) {
    let at = WireTime::from_unix_us(1_935_396_000_000_000).unwrap();
    let id = SandboxId::from(id);
    store.set_expiry(&id, at, None).await.unwrap();
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

/// Puts a row into every table.
async fn fill(stage: &Stage, store: &dyn Store) {
    let at = WireTime::from_unix_us(1_935_396_000_000_000).unwrap();
    store.instance_id().await.unwrap();
    let metadata = [("k".to_owned(), "v".to_owned())].into();
    store
        .set_metadata(&"changed".into(), &metadata, None)
        .await
        .unwrap();
    set_expiry(store, "changed").await;
    store
        .set_deleted(&"changed".into(), at, Some("team-a"))
        .await
        .unwrap();
    let ended = HistoryEntry {
        id: "ended".into(),
        image: "debian:12".into(),
        created_at: at,
        ended_at: at,
        outcome: Outcome::Deleted,
        reason: "DELETED".into(),
        message: String::new(),
        stages: Vec::new(),
        tenant: Some("team-a".into()),
        spec: EndedSpec {
            expires_at: Some(at),
            ..EndedSpec::default()
        },
    };
    let webhook = WebhookRow {
        disabled: Some("410".into()),
        ..super::webhooks::webhook("w1", 1)
    };
    store.add_webhook(&webhook).await.unwrap();
    store.start_tracking(&[]).await.unwrap();
    let announcement = Announcement {
        announced: vec![AnnouncedRow {
            tenant: Some("team-a".into()),
            ..super::webhooks::sandbox("changed", "Running")
        }],
        ended: Vec::new(),
        deliveries: vec![super::webhooks::message("w1", "e1", 1)],
    };
    store.announce(&announcement).await.unwrap();
    let delivery = store.next_delivery("w1").await.unwrap().unwrap();
    let dead = super::webhooks::result(DeliveryStatus::Dead, 1);
    store.end_attempt(delivery.id, &dead).await.unwrap();
    store.finish(&ended).await.unwrap();
    let session = SessionRow {
        id: "hidden".into(),
        data: vec![1],
        expires_at: 1,
    };
    store.session_create(&session).await.unwrap();
    let create = UnansweredCreate {
        id: "begun".into(),
        image: "debian:12".into(),
        created_at: at,
        tenant: Some("team-a".into()),
    };
    store.set_unanswered(&create).await.unwrap();
    let stretch = MetricStretch {
        id: "changed".into(),
        step: 10,
        place: 0,
        start: 1,
        written_at: 1,
        points: vec![1],
    };
    store.put_metrics(&[stretch]).await.unwrap();
    let command = ReportedCommand {
        started_at: 1,
        number: 1,
        kind: "foreground".into(),
        command: "make".into(),
        cwd: Some("/".into()),
        uid: Some(0),
        finished_at: Some(2),
        exit_code: Some(1),
        error: Some("no".into()),
        reported_at: 1,
    };
    store.append_audit(&[super::audit::entry(1)]).await.unwrap();
    let snapshot = SnapshotRow {
        image: Some("image".into()),
        size_bytes: Some(1),
        ..super::snapshots::snapshot("s1", 1)
    };
    store.add_snapshots(&[snapshot]).await.unwrap();
    let template = super::templates::template("t1", 1);
    store.add_template(&template).await.unwrap();
    let of_pool = super::pools::pool(Some("team-a"), "p");
    assert!(store.add_pool(&of_pool).await.unwrap());
    let member = super::pools::member("m", Some("team-a"), "p");
    assert!(store.add_member(&member).await.unwrap());
    let ways = [
        (MemberState::Warming, MemberState::Ready),
        (MemberState::Ready, MemberState::Claimed),
    ];
    for (from, to) in ways {
        assert!(super::pools::go(store, "m", from, to).await);
    }
    stage
        .execute("INSERT INTO imported_files (id) VALUES ('changed')")
        .await;
    let id = "changed".into();
    store.put_commands(&id, &[command], 10).await.unwrap();
    let key = CreateKey {
        key: [1; 32],
        body: [2; 32],
        sandbox_id: "changed".into(),
        used_at: at,
    };
    store.claim_key(&key, at).await.unwrap();
    let user = UserRow {
        id: "u1".into(),
        name: "ann".into(),
        password: PasswordHash("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA".into()),
        role: Role::Operator,
        tenant: Some("team-a".into()),
        disabled: false,
        created_at: at,
        password_changed_at: at,
    };
    store.add_user(&user).await.unwrap();
    let key = ApiKeyRow {
        id: "k1".into(),
        name: "ci".into(),
        digest: [3; 32],
        prefix: "osb_".into(),
        role: Role::Operator,
        tenant: Some("team-a".into()),
        created_at: at,
        expires_at: Some(at),
        last_used_at: Some(at),
        revoked_at: Some(at),
    };
    store.add_key(&key).await.unwrap();
}

/// A value that a column must not hold; `None` when the database takes none.
fn bad_value(stage: &Stage, column: &Column) -> Option<&'static str> {
    let is_json = matches!(column.name, "metadata" | "stages");
    match &stage.location {
        // The databases take no other values for these.
        _ if matches!(column.name, "only_row" | "seq") => None,
        Location::Sqlite(_) => Some(match column.value {
            Value::Text | Value::Uuid => "x'00'",
            Value::Readable(_) => "'damaged'",
            Value::Moment | Value::Number | Value::Bytes => "'damaged'",
            Value::Boolean => "7",
            Value::Digest => "x'00'",
        }),
        Location::Postgres(_) => match column.value {
            Value::Readable(_) if is_json => Some("'5'"),
            Value::Readable(_) => Some("'damaged'"),
            Value::Moment => Some("'infinity'"),
            Value::Digest => Some("'\\x00'"),
            Value::Text | Value::Number | Value::Boolean | Value::Bytes | Value::Uuid => None,
        },
    }
}

pub(super) async fn damage_of_every_column_is_found(stage: Stage) {
    let store = stage.open().await;
    fill(&stage, &*store).await;
    let found = tools::inspect(&stage.location).await.unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found:?}");
    let empty: Vec<_> = found
        .tables
        .iter()
        .filter(|(_, rows)| **rows == 0)
        .collect();
    assert!(empty.is_empty(), "no row to damage in {empty:?}");
    for table in &TABLES {
        for column in table.columns {
            let Some(bad) = bad_value(&stage, column) else {
                continue;
            };
            let (table, column) = (table.name, column.name);
            stage
                .execute(format!("UPDATE {table} SET {column} = {bad}"))
                .await;
            let found = tools::inspect(&stage.location).await.unwrap();
            let want = format!("{table}: {column} cannot be read (1)");
            let is_named = found.problems.iter().any(|it| it.starts_with(&want));
            assert!(is_named, "{want}: {:?}", found.problems);
        }
    }
    let found = tools::inspect(&stage.location).await.unwrap();
    let shown = format!("{found:?}");
    assert!(
        !shown.contains("hidden") && !shown.contains("argon2"),
        "{shown}"
    );
}

pub(super) async fn tables_that_are_missing_or_not_of_the_store_are_named(stage: Stage) {
    stage.open().await.close().await;
    stage.execute("DROP TABLE unanswered_creates").await;
    stage.execute("ALTER TABLE users DROP COLUMN tenant").await;
    stage.execute("CREATE TABLE foreign_table (id TEXT)").await;
    stage
        .execute("ALTER TABLE users ADD COLUMN more TEXT")
        .await;
    let found = tools::inspect(&stage.location).await.unwrap();
    assert_eq!(
        found.problems,
        [
            "unanswered_creates: is missing",
            "users: has no column tenant"
        ]
    );
    assert_eq!(
        found.notes[..2],
        [
            "foreign_table: is not of this store and was not checked",
            "users: column more is not of this store and was not checked"
        ]
    );
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

pub(super) async fn many_damaged_rows_are_counted_and_the_first_named(stage: Stage) {
    const ROWS: u64 = 25_000;
    stage.open().await.close().await;
    let time = stage.dialect("'soon'", "TIMESTAMPTZ 'infinity'");
    let json = stage.dialect("TEXT", "JSONB");
    stage
        .execute(format!(
            "WITH RECURSIVE numbers(n) AS (
               SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS}
             )
             INSERT INTO sandbox_changes (id, expires_at, metadata)
             SELECT 'row-' || n, {time}, CAST(CASE n % 5 WHEN 0 THEN '{{}}' ELSE '[]' END AS {json})
             FROM numbers"
        ))
        .await;
    let found = tools::inspect(&stage.location).await.unwrap();
    assert_eq!(found.tables["sandbox_changes"], ROWS);
    let [times, metadata] = found.problems.as_slice() else {
        panic!("{:.1000}", format!("{:?}", found.problems));
    };
    for (problem, start) in [
        (
            times,
            format!("sandbox_changes: expires_at cannot be read ({ROWS}): "),
        ),
        (
            metadata,
            format!(
                "sandbox_changes: metadata cannot be read ({}): ",
                ROWS / 5 * 4
            ),
        ),
    ] {
        let named = problem.strip_prefix(&start);
        let named = named.unwrap_or_else(|| panic!("{problem:.500}"));
        let mut names: Vec<_> = named.split(", ").collect();
        assert_eq!((names.len(), names.pop()), (6, Some("…")), "{problem:.500}");
        assert!(
            names.iter().all(|name| name.starts_with("row-")),
            "{names:?}"
        );
    }
}

impl Stage {
    /// Runs a statement of another program.
    pub(super) async fn execute(&self, statement: impl Into<String>) {
        let statement = statement.into();
        match &self.location {
            Location::Sqlite(path) => execute(path, statement).await,
            Location::Postgres(_) => {
                let database = self.database.as_ref().unwrap();
                let path = format!("SET search_path TO {}", database.schema);
                let mut connection = database.connect().await;
                run(&mut connection, path).await;
                run(&mut connection, statement).await;
            }
        }
    }

    /// What a statement has where the databases differ.
    pub(super) fn dialect(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match &self.location {
            Location::Sqlite(_) => sqlite,
            Location::Postgres(_) => postgres,
        }
    }

    fn file(&self) -> &Path {
        match &self.location {
            Location::Sqlite(path) => path,
            Location::Postgres(_) => panic!("no file"),
        }
    }
}

async fn execute(path: &Path, statement: impl Into<String>) {
    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .connect()
        .await
        .unwrap();
    let statement = sqlx::raw_sql(AssertSqlSafe(statement.into()));
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
    let under_way = UnansweredCreate {
        id: "under way".into(),
        image: "debian:12".into(),
        created_at: WireTime::from_unix_us(1).unwrap(),
        tenant: None,
    };
    store.set_unanswered(&under_way).await.unwrap();
    let written = tools::backup(&stage.location, &saved).await.unwrap();
    assert_eq!(
        (mode(&saved), written.bytes),
        (0o600, saved.metadata().unwrap().len())
    );
    set_expiry(&*store, "after").await;
    let refused = tools::restore(&stage.location, &saved).await.unwrap_err();
    assert!(matches!(refused, ToolError::InUse(_)), "{refused}");
    assert!(refused.to_string().contains("stop it"), "{refused}");
    assert_eq!(store.all_changes().await.unwrap().len(), 2);
    store.close().await;
    drop(store);
    let written = tools::restore(&stage.location, &saved).await.unwrap();
    assert_eq!(mode(stage.file()), 0o600);
    let store = stage.open().await;
    assert_eq!(store.instance_id().await.unwrap(), instance);
    // It was answered after the backup, for all that is known.
    assert_eq!(store.all_unanswered().await.unwrap(), []);
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

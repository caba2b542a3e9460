//! Every write of every concern, on a store that must not take it.

use osb_protocol::{SandboxId, WireTime, identity::Role, lifecycle::SnapshotState};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use super::{Stage, snapshots, webhooks};
use crate::{
    Announcement, Announcements, ApiKeyRow, CreateKey, Deliveries, DeliveryStatus, EndedSpec,
    HistoryEntry, Location, MetricStretch, NewDelivery, Outcome, PasswordHash, Problem,
    ReportedCommand, SandboxCommands, SandboxHistory, SandboxMetrics, SessionRow, Store,
    StoreError, UnansweredCreate, UserChange, UserRow,
};

/// Larger than the free pages of a new store.
const LARGE: usize = 1 << 20;

fn at() -> WireTime {
    WireTime::from_unix_us(1_935_396_000_000_000).unwrap()
}

fn entry(message: String) -> HistoryEntry {
    HistoryEntry {
        id: "ended".into(),
        image: "debian:12".into(),
        created_at: at(),
        ended_at: at(),
        outcome: Outcome::Deleted,
        reason: "DELETED".into(),
        message,
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    }
}

fn stretch(points: Vec<u8>) -> MetricStretch {
    MetricStretch {
        id: "a".into(),
        step: 10,
        place: 0,
        start: 1,
        written_at: 1,
        points,
    }
}

fn command(number: i64, command: String) -> ReportedCommand {
    ReportedCommand {
        started_at: 1,
        number,
        kind: "foreground".into(),
        command,
        cwd: None,
        uid: None,
        finished_at: None,
        exit_code: None,
        error: None,
        reported_at: 1,
    }
}

/// Tries every write, one by one.
pub(super) async fn every_write(store: &dyn Store) -> Vec<(&'static str, Result<(), StoreError>)> {
    let id = SandboxId::from("a");
    let create = UnansweredCreate {
        id: id.clone(),
        image: "debian:12".into(),
        created_at: at(),
        tenant: None,
    };
    let key = CreateKey {
        key: [1; 32],
        body: [2; 32],
        sandbox_id: id.clone(),
        used_at: at(),
    };
    let session = SessionRow {
        id: "s".into(),
        data: vec![1],
        expires_at: 1,
    };
    let user = UserRow {
        id: "u1".into(),
        name: "ann".into(),
        password: PasswordHash("$argon2id$".into()),
        role: Role::Operator,
        tenant: None,
        disabled: false,
        created_at: at(),
        password_changed_at: at(),
    };
    let api_key = ApiKeyRow {
        id: "k1".into(),
        name: "ci".into(),
        digest: [3; 32],
        prefix: "osb_".into(),
        role: Role::Operator,
        tenant: None,
        created_at: at(),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    };
    let used = [("k1".to_owned(), at())];
    let metadata = [("k".to_owned(), "v".to_owned())].into();
    let commands = [command(1, "make".to_owned())];
    let webhook = webhooks::webhook("w1", 1);
    let announcement = Announcement {
        announced: vec![webhooks::sandbox("a", "Running")],
        ended: vec!["b".into()],
        deliveries: vec![webhooks::message("w1", "e1", 1)],
    };
    let delivered = webhooks::result(DeliveryStatus::Delivered, 1);
    let snapshot = snapshots::snapshot("s1", 1);
    let deleting = snapshots::change(SnapshotState::Deleting, 2);
    vec![
        ("expiry", store.set_expiry(&id, at(), None).await),
        ("metadata", store.set_metadata(&id, &metadata, None).await),
        ("delete intent", store.set_deleted(&id, at(), None).await),
        ("history", store.finish(&entry(String::new())).await),
        ("prune history", store.prune_history(at()).await.map(drop)),
        ("metrics", store.put_metrics(&[stretch(vec![1])]).await),
        ("prune metrics", store.prune_metrics(9, &[]).await.map(drop)),
        ("commands", store.put_commands(&id, &commands, 9).await),
        (
            "prune commands",
            store.prune_commands(9, &[], 9).await.map(drop),
        ),
        ("audit", store.append_audit(&[super::audit::entry(1)]).await),
        ("prune audit", store.prune_audit(at(), 9, 9).await.map(drop)),
        ("snapshot", store.add_snapshots(&[snapshot]).await.map(drop)),
        (
            "change snapshot",
            store
                .change_snapshot("s1", SnapshotState::Creating, &deleting)
                .await
                .map(drop),
        ),
        (
            "end snapshot",
            store
                .remove_snapshot("s1", SnapshotState::Deleting)
                .await
                .map(drop),
        ),
        ("unanswered", store.set_unanswered(&create).await),
        ("answered", store.set_answered(&id).await),
        ("all answered", store.set_all_answered(&[]).await),
        ("claim", store.claim_key(&key, at()).await.map(drop)),
        ("free", store.free_key(&key.key, &id).await),
        ("prune keys", store.prune_keys(at()).await.map(drop)),
        ("session", store.session_create(&session).await.map(drop)),
        ("save session", store.session_save(&session).await),
        ("end session", store.session_delete("s").await),
        ("prune sessions", store.session_prune(9).await.map(drop)),
        ("user", store.add_user(&user).await.map(drop)),
        (
            "change user",
            store
                .change_user("u1", &UserChange::default())
                .await
                .map(drop),
        ),
        ("end user", store.delete_user("u1").await.map(drop)),
        ("key", store.add_key(&api_key).await),
        ("revoke key", store.revoke_key("k1", at()).await.map(drop)),
        ("touch key", store.touch_keys(&used).await),
        ("webhook", store.add_webhook(&webhook).await),
        (
            "change webhook",
            store.change_webhook(&webhook).await.map(drop),
        ),
        ("track", store.start_tracking(&[]).await),
        ("announce", store.announce(&announcement).await),
        ("begin an attempt", store.begin_attempt(1).await.map(drop)),
        ("end an attempt", store.end_attempt(1, &delivered).await),
        ("redeliver", store.redeliver("w1", 1, at()).await.map(drop)),
        (
            "give up",
            store.give_up("w1", "no", at(), 9).await.map(drop),
        ),
        (
            "prune deliveries",
            store.prune_deliveries(at(), at(), 9).await.map(drop),
        ),
        ("end webhook", store.delete_webhook("w1").await.map(drop)),
        ("stop tracking", store.stop_tracking().await),
    ]
}

/// Checks that every write was refused for this reason.
pub(super) fn all_refused(writes: Vec<(&'static str, Result<(), StoreError>)>, want: Problem) {
    for (write, result) in writes {
        let found = match &result {
            Err(StoreError::Unavailable { problem, .. }) => Some(*problem),
            _ => None,
        };
        assert_eq!(found, Some(want), "{write}: {result:?}");
    }
}

pub(super) async fn every_write_works(stage: Stage) {
    let store = stage.open().await;
    for (write, result) in every_write(&*store).await {
        assert!(result.is_ok(), "{write}: {result:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn every_write_to_a_locked_file_is_refused() {
    let stage = Stage::sqlite();
    let store = stage.open().await;
    let Location::Sqlite(path) = &stage.location else {
        panic!("{:?}", stage.location);
    };
    let options = SqliteConnectOptions::new().filename(path);
    let mut other = options.connect().await.unwrap();
    let lock = sqlx::query("BEGIN IMMEDIATE").execute(&mut other);
    lock.await.unwrap();
    all_refused(every_write(&*store).await, Problem::Locked);
    other.close().await.unwrap();
    for (write, result) in every_write(&*store).await {
        assert!(result.is_ok(), "{write}: {result:?}");
    }
}

#[tokio::test]
async fn what_does_not_fit_on_a_full_disk_leaves_nothing_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let store = crate::sqlite::SqliteStore::open(&path).await.unwrap();
    let id = SandboxId::from("a");
    let large = || "x".repeat(LARGE);
    let commands = [command(1, "small".to_owned()), command(2, large())];
    let stretches = [
        stretch(vec![1]),
        MetricStretch {
            place: 1,
            ..stretch(vec![0; LARGE])
        },
    ];
    let mut refused = Vec::new();
    // The limit belongs to the connection, which a refused write may replace.
    store.limit_pages(1).await;
    refused.push(("history", store.finish(&entry(large())).await));
    store.limit_pages(1).await;
    refused.push(("metrics", store.put_metrics(&stretches).await));
    store.limit_pages(1).await;
    refused.push(("commands", store.put_commands(&id, &commands, 9).await));
    store.limit_pages(1).await;
    let announcement = Announcement {
        announced: vec![webhooks::sandbox("a", "Running")],
        ended: Vec::new(),
        deliveries: vec![
            webhooks::message("w", "small", 1),
            NewDelivery {
                body: large(),
                ..webhooks::message("w", "large", 1)
            },
        ],
    };
    refused.push(("announce", store.announce(&announcement).await));
    all_refused(refused, Problem::Full);
    assert_eq!(store.announced().await.unwrap(), []);
    assert_eq!(store.next_delivery("w").await.unwrap(), None);
    store.limit_pages(100_000).await;
    store.announce(&announcement).await.unwrap();
    assert_eq!(store.announced().await.unwrap(), announcement.announced);
    let kept = store.deliveries("w", None, None, 9).await.unwrap();
    assert_eq!(kept.len(), 2, "each once");
    assert_eq!(store.recent_history(None, 0, 9).await.unwrap(), []);
    assert_eq!(store.metrics(&id).await.unwrap(), []);
    assert_eq!(store.commands(&id, 9).await.unwrap(), []);
}

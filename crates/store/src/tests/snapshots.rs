//! Snapshots.

use std::sync::Arc;

use osb_protocol::{WireTime, lifecycle::SnapshotState};

use super::Stage;
use crate::{SnapshotChange, SnapshotQuery, SnapshotRow, SnapshotTotal, Store, StoredFor};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

/// A snapshot that was accepted at a time.
pub(super) fn snapshot(id: &str, us: i64) -> SnapshotRow {
    SnapshotRow {
        id: id.into(),
        sandbox_id: "a".into(),
        name: Some("before".into()),
        tenant: Some("team-a".into()),
        owner: Some("user:1".into()),
        state: SnapshotState::Creating,
        reason: "snapshot_accepted".into(),
        message: "Snapshot creation accepted.".into(),
        image: None,
        size_bytes: None,
        parent_id: Some("parent".into()),
        created_at: at(us),
        changed_at: at(us),
    }
}

/// A transition at a time.
pub(super) fn change(state: SnapshotState, us: i64) -> SnapshotChange {
    SnapshotChange {
        state,
        reason: "snapshot_runtime_ready",
        message: "done".into(),
        image: Some("image".into()),
        size_bytes: Some(5),
        at: at(us),
    }
}

async fn list(store: &dyn Store, query: SnapshotQuery) -> (Vec<String>, u64) {
    let query = match query.limit {
        0 => SnapshotQuery { limit: 9, ..query },
        _ => query,
    };
    let (rows, total) = store.snapshots(&query).await.unwrap();
    (rows.into_iter().map(|row| row.id).collect(), total)
}

pub(super) async fn a_snapshot_is_read_back_whole_after_a_restart(stage: Stage) {
    let store = stage.open().await;
    let bare = SnapshotRow {
        name: None,
        tenant: None,
        owner: None,
        parent_id: None,
        ..snapshot("bare", 1_935_396_000_123_456)
    };
    let whole = SnapshotRow {
        state: SnapshotState::Ready,
        image: Some("opensandbox-snapshots:whole".into()),
        size_bytes: Some(1 << 40),
        changed_at: at(3),
        ..snapshot("whole", 2)
    };
    let both = [bare.clone(), whole.clone()];
    assert_eq!(store.add_snapshots(&both).await.unwrap(), 2);
    store.close().await;
    drop(store);
    let store = stage.open().await;
    assert_eq!(store.snapshot("bare").await.unwrap(), Some(bare));
    assert_eq!(store.snapshot("whole").await.unwrap(), Some(whole.clone()));
    assert_eq!(store.snapshot("none").await.unwrap(), None);
    // An id that is taken stays as it is, and keeps the others from nothing.
    let again = [snapshot("whole", 9), snapshot("new", 9)];
    assert_eq!(store.add_snapshots(&again).await.unwrap(), 1);
    assert_eq!(store.snapshot("whole").await.unwrap(), Some(whole));
}

pub(super) async fn lists_are_filtered_ordered_and_paged(stage: Stage) {
    let store = stage.open().await;
    let rows = [
        snapshot("a", 5),
        snapshot("b", 5),
        SnapshotRow {
            sandbox_id: "other".into(),
            ..snapshot("c", 1)
        },
        SnapshotRow {
            name: None,
            ..snapshot("d", 9)
        },
        SnapshotRow {
            tenant: Some("team-b".into()),
            ..snapshot("e", 7)
        },
        SnapshotRow {
            tenant: None,
            name: Some("Before".into()),
            state: SnapshotState::Ready,
            ..snapshot("f", 8)
        },
    ];
    store.add_snapshots(&rows).await.unwrap();
    let any = SnapshotQuery::default;
    let text = |text: &str| Some(text.to_owned());
    let states = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (query, ids, total) in [
        // Newest first, then by descending id.
        (any(), vec!["d", "f", "e", "b", "a", "c"], 6),
        (
            SnapshotQuery {
                skip: 2,
                limit: 3,
                ..any()
            },
            vec!["e", "b", "a"],
            6,
        ),
        (SnapshotQuery { skip: 6, ..any() }, vec![], 6),
        (
            SnapshotQuery {
                tenant: text("team-a"),
                ..any()
            },
            vec!["d", "b", "a", "c"],
            4,
        ),
        (
            SnapshotQuery {
                sandbox_id: text("other"),
                ..any()
            },
            vec!["c"],
            1,
        ),
        (
            SnapshotQuery {
                name: text("before"),
                ..any()
            },
            vec!["e", "b", "a", "c"],
            4,
        ),
        (
            SnapshotQuery {
                states: states(&["Ready", "Gone"]),
                ..any()
            },
            vec!["f"],
            1,
        ),
        (
            SnapshotQuery {
                states: states(&["ready"]),
                ..any()
            },
            vec![],
            0,
        ),
        (
            SnapshotQuery {
                states: states(&["Creating", "Ready"]),
                tenant: text("team-a"),
                name: text("before"),
                limit: 1,
                ..any()
            },
            vec!["b"],
            3,
        ),
    ] {
        let found = list(&*store, query.clone()).await;
        let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
        assert_eq!(found, (ids, total), "{query:?}");
    }
}

pub(super) async fn a_snapshot_changes_only_from_the_state_that_was_seen(stage: Stage) {
    use SnapshotState::{Creating, Deleting, Failed, Ready};
    let store = stage.open().await;
    store.add_snapshots(&[snapshot("s", 1)]).await.unwrap();
    let to_ready = change(Ready, 2);
    assert!(
        store
            .change_snapshot("s", Creating, &to_ready)
            .await
            .unwrap()
    );
    // The worker of another attempt comes too late.
    let failed = change(Failed, 3);
    assert!(!store.change_snapshot("s", Creating, &failed).await.unwrap());
    assert!(!store.change_snapshot("x", Creating, &failed).await.unwrap());
    let deleting = SnapshotChange {
        reason: "snapshot_delete_requested",
        message: "going".into(),
        image: None,
        size_bytes: None,
        ..change(Deleting, 4)
    };
    assert!(!store.remove_snapshot("s", Deleting).await.unwrap());
    assert!(store.change_snapshot("s", Ready, &deleting).await.unwrap());
    let row = store.snapshot("s").await.unwrap().unwrap();
    let want = SnapshotRow {
        state: Deleting,
        reason: "snapshot_delete_requested".into(),
        message: "going".into(),
        image: Some("image".into()),
        size_bytes: Some(5),
        changed_at: at(4),
        ..snapshot("s", 1)
    };
    assert_eq!(row, want);
    assert!(store.remove_snapshot("s", Deleting).await.unwrap());
    assert!(!store.remove_snapshot("s", Deleting).await.unwrap());
    assert_eq!(store.snapshot("s").await.unwrap(), None);
}

pub(super) async fn concurrent_changes_have_one_winner(stage: Stage) {
    let store = stage.open().await;
    store.add_snapshots(&[snapshot("s", 1)]).await.unwrap();
    let mut changes = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        changes.spawn(async move {
            let state = match n % 2 {
                0 => SnapshotState::Ready,
                _ => SnapshotState::Failed,
            };
            let change = change(state, n);
            let done = store.change_snapshot("s", SnapshotState::Creating, &change);
            (state, n, done.await.unwrap())
        });
    }
    let changes = changes.join_all().await;
    let won: Vec<_> = changes.iter().filter(|(.., done)| *done).collect();
    let [(state, n, _)] = won[..] else {
        panic!("{changes:?}");
    };
    let row = store.snapshot("s").await.unwrap().unwrap();
    assert_eq!((row.state, row.changed_at), (*state, at(*n)));
}

pub(super) async fn open_snapshots_states_and_totals_are_found(stage: Stage) {
    use SnapshotState::{Creating, Deleting, Failed, Ready};
    let store = stage.open().await;
    let sized = |id: &str, state, size_bytes| SnapshotRow {
        state,
        size_bytes,
        ..snapshot(id, 1)
    };
    assert_eq!(store.snapshot_totals(None).await.unwrap(), []);
    let rows = [
        sized("a", Creating, None),
        sized("b", Ready, Some(3)),
        sized("c", Deleting, Some(4)),
        sized("d", Failed, None),
        sized("e", Creating, None),
        SnapshotRow {
            tenant: Some("red".to_owned()),
            owner: Some("api_key:1".to_owned()),
            ..sized("f", Ready, Some(5))
        },
    ];
    store.add_snapshots(&rows).await.unwrap();
    let open = async |after: &str, most| -> Vec<String> {
        let rows = store.open_snapshots(after, most).await.unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(open("", 2).await, ["a", "c"]);
    assert_eq!(open("c", 2).await, ["e"]);
    assert_eq!(open("e", 2).await, [""; 0]);
    // More ids than one statement takes.
    let ids: Vec<String> = (0..2_000).map(|n| format!("x{n}")).collect();
    let ids: Vec<String> = ids.into_iter().chain(["d".into(), "f".into()]).collect();
    let states = store.snapshot_states(&ids).await.unwrap();
    assert_eq!(
        states,
        [("d".to_owned(), Failed), ("f".to_owned(), Ready)].into()
    );
    let total = |state, count, bytes| SnapshotTotal {
        state,
        count,
        bytes,
    };
    assert_eq!(
        store.snapshot_totals(None).await.unwrap(),
        [
            total(Creating, 2, 0),
            total(Deleting, 1, 4),
            total(Failed, 1, 0),
            total(Ready, 2, 8)
        ]
    );
    for (of, bytes) in [
        (StoredFor::Tenant("team-a"), 7),
        (StoredFor::Tenant("red"), 5),
        (StoredFor::Tenant("user:1"), 0),
        (StoredFor::Owner("user:1"), 7),
        (StoredFor::Owner("api_key:1"), 5),
        (StoredFor::Owner("red"), 0),
    ] {
        assert_eq!(store.snapshot_bytes(of).await.unwrap(), bytes, "{of:?}");
    }
    let red = store.snapshot_totals(Some("red")).await.unwrap();
    assert_eq!(red, [total(Ready, 1, 5)]);
    assert_eq!(store.snapshot_totals(Some("blue")).await.unwrap(), []);
}

//! What a crash or a fault left half done, and file systems that no snapshot needs.

use std::{path::Path, sync::Arc, time::Duration};

use osb_protocol::{WireTime, lifecycle::SnapshotState};
use osb_runtime::{
    Runtime,
    sim::{Faults, SimRuntime},
};
use osb_store::{SnapshotChange, SnapshotRow, Store};
use osb_testkit::{TestServer, store_in, wait_until};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{accepted, created, get, held, release, restored, sim, start, taken, until, up};

/// A time that is longer ago than a capture takes.
fn long_ago() -> WireTime {
    let now = WireTime::new(jiff::Timestamp::now());
    now.plus_seconds(-2 * 3600).unwrap()
}

fn row(id: &str, state: SnapshotState) -> SnapshotRow {
    SnapshotRow {
        id: id.to_owned(),
        sandbox_id: "gone".into(),
        name: None,
        tenant: None,
        owner: None,
        state,
        reason: "snapshot_accepted".to_owned(),
        message: String::new(),
        image: None,
        size_bytes: None,
        parent_id: None,
        created_at: long_ago(),
        changed_at: long_ago(),
    }
}

/// Opens the store of a server beside it.
async fn beside(folder: &Path) -> Arc<dyn Store> {
    let location = store_in(folder).await.unwrap();
    osb_store::open_shared(&location).await.unwrap().unwrap()
}

/// Writes what an earlier server left.
async fn leave(folder: &Path, rows: &[SnapshotRow]) {
    let store = osb_store::open(&store_in(folder).await.unwrap()).await;
    let store = store.unwrap();
    store.add_snapshots(rows).await.unwrap();
    store.close().await;
}

async fn over(sim: &Arc<SimRuntime>, folder: &Path) -> TestServer {
    let server = TestServer::over(Arc::clone(sim) as _, folder, "").await;
    server.unwrap()
}

async fn status(server: &TestServer, id: &str) -> Value {
    get(server, &format!("/v1/snapshots/{id}")).await.1["status"].clone()
}

#[tokio::test]
async fn what_is_stored_decides_after_a_crash() {
    use SnapshotState::{Creating, Deleting, Failed, Ready};
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    for stored in ["complete", "unremoved", "ready", "failed"] {
        sim.put_snapshot(stored, WireTime::new(jiff::Timestamp::now()));
    }
    let rows = [
        row("complete", Creating),
        row("cut-off", Creating),
        row("unremoved", Deleting),
        row("removed", Deleting),
        row("ready", Ready),
        row("failed", Failed),
    ];
    leave(folder.path(), &rows).await;
    let server = over(&sim, folder.path()).await;
    up(&server).await;
    let ready = until(&server, "complete", "Ready").await;
    assert_eq!(ready["status"]["reason"], "snapshot_recovery_ready");
    assert_eq!(ready["sizeBytes"], 1_000, "{ready}");
    let failed = until(&server, "cut-off", "Failed").await;
    assert_eq!(
        failed["status"]["reason"],
        "snapshot_recovery_missing_image"
    );
    for gone in ["unremoved", "removed"] {
        let path = format!("/v1/snapshots/{gone}");
        wait_until(gone, || get(&server, &path), |seen| seen.0 == 404).await;
    }
    assert_eq!(status(&server, "ready").await["state"], "Ready");
    assert_eq!(sim.stored_snapshots(), ["complete", "failed", "ready"]);
    restored(&server, "complete").await;
    server.stop().await;
}

#[tokio::test]
async fn a_capture_that_outlives_the_server_is_not_lost() {
    for is_stored in [true, false] {
        let (server, sim, folder) = start().await;
        let sandbox = created(&server).await;
        server.stop().await;
        drop(server);
        // The engine freezes the sandbox while it stores the file system.
        sim.pausing().unwrap().pause(&sandbox).await.unwrap();
        let begun = SnapshotRow {
            sandbox_id: sandbox.clone(),
            created_at: WireTime::new(jiff::Timestamp::now()),
            ..row("s", SnapshotState::Creating)
        };
        let old = SnapshotRow {
            sandbox_id: sandbox.clone(),
            ..row("old", SnapshotState::Creating)
        };
        leave(folder.path(), &[begun, old]).await;
        let server = over(&sim, folder.path()).await;
        up(&server).await;
        until(&server, "old", "Failed").await;
        server.service.reconcile().await;
        assert_eq!(status(&server, "s").await["state"], "Creating");
        if is_stored {
            sim.put_snapshot("s", WireTime::new(jiff::Timestamp::now()));
        }
        sim.pausing().unwrap().resume(&sandbox).await.unwrap();
        server.service.reconcile().await;
        let end = if is_stored { "Ready" } else { "Failed" };
        assert_eq!(status(&server, "s").await["state"], end);
        server.stop().await;
    }
}

#[tokio::test]
async fn many_are_recovered_in_one_round() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    let rows: Vec<_> = (0..450)
        .map(|n| row(&format!("s{n}"), SnapshotState::Creating))
        .collect();
    leave(folder.path(), &rows).await;
    let server = over(&sim, folder.path()).await;
    up(&server).await;
    let failed = async || {
        let (_, body) = get(&server, "/v1/snapshots?state=Failed").await;
        body["pagination"]["totalItems"].clone()
    };
    wait_until("the recovery", failed, |seen| *seen == json!(450)).await;
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_decided_while_the_runtime_is_away() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    sim.put_snapshot("complete", long_ago());
    leave(folder.path(), &[row("complete", SnapshotState::Creating)]).await;
    sim.go_down("unplugged").await;
    let server = over(&sim, folder.path()).await;
    server.service.reconcile().await;
    assert_eq!(status(&server, "complete").await["state"], "Creating");
    sim.come_back().await;
    until(&server, "complete", "Ready").await;
    server.stop().await;
}

#[tokio::test]
async fn a_runtime_without_snapshots_ends_what_it_cannot_take() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        row("open", SnapshotState::Creating),
        row("deleted", SnapshotState::Deleting),
    ];
    leave(folder.path(), &rows).await;
    let server = over(&Arc::new(SimRuntime::new()), folder.path()).await;
    up(&server).await;
    server.service.reconcile().await;
    let store = beside(folder.path()).await;
    let open = store.snapshot("open").await.unwrap().unwrap();
    assert_eq!(open.state, SnapshotState::Failed);
    assert_eq!(open.reason, "snapshot_recovery_not_supported");
    // Another runtime may have what it keeps.
    let deleted = store.snapshot("deleted").await.unwrap().unwrap();
    assert_eq!(deleted.state, SnapshotState::Deleting);
    store.close().await;
    server.stop().await;
}

#[tokio::test]
async fn file_systems_that_no_snapshot_needs_are_removed_after_a_while() {
    let (server, sim, folder) = start().await;
    let sandbox = created(&server).await;
    let kept = taken(&server, &sandbox).await;
    sim.put_snapshot(&kept, long_ago());
    sim.put_snapshot("unknown", long_ago());
    sim.put_snapshot("young", WireTime::new(jiff::Timestamp::now()));
    // A capture was complete only after its time limit.
    sim.put_snapshot("late", long_ago());
    let store = beside(folder.path()).await;
    let late = row("late", SnapshotState::Failed);
    store.add_snapshots(&[late]).await.unwrap();
    store.close().await;
    server.service.reconcile().await;
    let mut all = vec![kept.clone()];
    all.extend(["late", "unknown", "young"].map(str::to_owned));
    all.sort();
    // Whatever their age: the store may be an older one, and the newer one may be put back.
    assert_eq!(sim.stored_snapshots(), all);
    for _ in 0..13 {
        pass(Duration::from_secs(300)).await;
    }
    let mut left = vec![kept, "young".to_owned()];
    left.sort();
    // A database may have to confirm first that no other server has it.
    let seen = async || {
        server.service.reconcile().await;
        sim.stored_snapshots()
    };
    wait_until("only what is needed", seen, |seen| *seen == left).await;
    assert_eq!(status(&server, "late").await["state"], "Failed");
    server.stop().await;
}

/// Lets time pass in which nothing happens.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_capture_whose_answer_is_lost_is_recovered() {
    for is_stored in [true, false] {
        let (server, sim, _folder) = start().await;
        let sandbox = created(&server).await;
        let (faults, gate) = held();
        sim.set_faults(faults);
        let id = accepted(&server, &sandbox).await;
        let captures = async || sim.captures().0;
        wait_until("the capture", captures, |seen| *seen == 1).await;
        sim.go_down("unplugged").await;
        release(&sim, &gate);
        let captures = async || sim.captures().0;
        wait_until("the outage", captures, |seen| *seen == 0).await;
        server.service.reconcile().await;
        assert_eq!(status(&server, &id).await["state"], "Creating");
        if is_stored {
            sim.put_snapshot(&id, WireTime::new(jiff::Timestamp::now()));
        }
        sim.come_back().await;
        let state = async || {
            server.service.reconcile().await;
            status(&server, &id).await["state"].clone()
        };
        let end = wait_until("an end", state, |seen| seen != "Creating").await;
        assert_eq!(end, if is_stored { "Ready" } else { "Failed" });
        server.stop().await;
    }
}

#[tokio::test]
async fn a_capture_that_goes_on_after_its_time_limit_keeps_its_place() {
    let (server, sim, _folder) = start().await;
    let gate = Arc::new(Notify::new());
    sim.set_faults(Faults {
        capture_times_out: true,
        thaw_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    for _ in 0..2 {
        let sandbox = created(&server).await;
        let id = accepted(&server, &sandbox).await;
        let failed = until(&server, &id, "Failed").await;
        assert_eq!(failed["status"]["reason"], "snapshot_runtime_timeout");
    }
    sim.set_faults(Faults {
        thaw_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    let sandbox = created(&server).await;
    let waiting = accepted(&server, &sandbox).await;
    server.service.reconcile().await;
    assert_eq!(status(&server, &waiting).await["state"], "Creating");
    let state = async || {
        gate.notify_waiters();
        status(&server, &waiting).await["state"].clone()
    };
    wait_until("a place", state, |seen| seen == "Ready").await;
    server.stop().await;
}

#[tokio::test]
async fn a_source_that_is_deleted_meanwhile_fails_the_capture() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &sandbox).await;
    let captures = async || sim.captures().0;
    wait_until("the capture", captures, |seen| *seen == 1).await;
    server.service.delete(&sandbox, true).await.unwrap();
    release(&sim, &gate);
    let failed = until(&server, &id, "Failed").await;
    assert_eq!(failed["status"]["reason"], "snapshot_runtime_failed");
    assert_eq!(sim.stored_snapshots(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_capture_leaves_a_newer_state_and_nothing_of_a_deleted_snapshot() {
    let (server, sim, folder) = start().await;
    let sandbox = created(&server).await;
    let store = beside(folder.path()).await;
    let change = |state| SnapshotChange {
        state,
        reason: "by_hand",
        message: String::new(),
        image: None,
        size_bytes: None,
        at: long_ago(),
    };
    let from = SnapshotState::Creating;
    for state in [
        None,
        Some(SnapshotState::Deleting),
        Some(SnapshotState::Failed),
    ] {
        let (faults, gate) = held();
        sim.set_faults(faults);
        let id = accepted(&server, &sandbox).await;
        let captures = async || sim.captures().0;
        wait_until("the capture", &captures, |seen| *seen == 1).await;
        let is_done = match state {
            None => store.remove_snapshot(&id, from).await,
            Some(state) => store.change_snapshot(&id, from, &change(state)).await,
        };
        assert!(is_done.unwrap());
        release(&sim, &gate);
        // The file system is stored by then, and removed after that.
        wait_until("the runtime", &captures, |seen| *seen == 0).await;
        let found = async || store.snapshot(&id).await.unwrap().map(|row| row.state);
        match state {
            Some(SnapshotState::Failed) => {
                assert!(sim.stored_snapshots().contains(&id));
                assert_eq!(found().await, state);
            }
            _ => {
                wait_until("the end", found, Option::is_none).await;
                let stored = async || sim.stored_snapshots();
                wait_until("the removal", stored, |seen| !seen.contains(&id)).await;
                assert_eq!(get(&server, &format!("/v1/snapshots/{id}")).await.0, 404);
            }
        }
    }
    store.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_running_captures_and_leaves_the_others_to_the_next_start() {
    let (server, sim, folder) = start().await;
    let (one, two) = (created(&server).await, created(&server).await);
    let (faults, gate) = held();
    sim.set_faults(faults);
    let mut ids = Vec::new();
    for sandbox in [&one, &two, &one] {
        ids.push(accepted(&server, sandbox).await);
    }
    let captures = async || sim.captures().0;
    wait_until("two captures", captures, |seen| *seen == 2).await;
    let stopping = async {
        tokio::task::yield_now().await;
        release(&sim, &gate);
    };
    tokio::join!(server.stop(), stopping);
    assert_eq!(sim.captures(), (0, 2));
    drop(server);
    let server = over(&sim, folder.path()).await;
    up(&server).await;
    let mut states = Vec::new();
    for id in &ids {
        let path = format!("/v1/snapshots/{id}");
        let look = async || get(&server, &path).await.1["status"]["state"].clone();
        states.push(wait_until("an end", look, |seen| seen != "Creating").await);
    }
    let ready = states.iter().filter(|state| **state == "Ready").count();
    assert_eq!(ready, sim.stored_snapshots().len(), "{states:?}");
    assert!(ready >= 2, "{states:?}");
    server.stop().await;
}

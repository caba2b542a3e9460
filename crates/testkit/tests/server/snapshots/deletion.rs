//! Deletions: of snapshots that sandboxes use, and those that fail.

use std::time::Duration;

use osb_runtime::sim::Faults;

use super::{create, created, delete, from_snapshot, get, refused, restored, start, taken, unplug};

#[tokio::test]
async fn a_snapshot_in_use_stays_deleting_until_its_sandboxes_are_gone() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    let id = taken(&server, &sandbox).await;
    let copy = restored(&server, &id).await;
    let path = format!("/v1/snapshots/{id}");
    for _ in 0..2 {
        let used = delete(&server, &path).await;
        refused(&used, 409, "SNAPSHOT::DELETE_CONFLICT");
        let shown = get(&server, &path).await.1;
        assert_eq!(shown["status"]["state"], "Deleting");
        assert_eq!(shown["status"]["reason"], "snapshot_delete_requested");
    }
    let more = create(&server, &from_snapshot(&id)).await;
    refused(&more, 409, "SNAPSHOT::NOT_READY");
    server.service.reconcile().await;
    assert_eq!(get(&server, &path).await.1["status"]["state"], "Deleting");
    server.service.delete(&copy, true).await.unwrap();
    // Without another request.
    server.service.reconcile().await;
    refused(&get(&server, &path).await, 404, "SNAPSHOT::NOT_FOUND");
    assert_eq!(sim.stored_snapshots(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_snapshot_goes_right_after_the_last_sandbox_from_it() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    let id = taken(&server, &sandbox).await;
    let copy = restored(&server, &id).await;
    sim.set_faults(Faults {
        remove_delay: Duration::from_millis(300),
        ..Faults::default()
    });
    assert_eq!(
        delete(&server, &format!("/v1/sandboxes/{copy}")).await.0,
        204
    );
    assert_eq!(delete(&server, &format!("/v1/snapshots/{id}")).await.0, 204);
    assert_eq!(sim.sandboxes(), [sandbox]);
    assert_eq!(sim.stored_snapshots(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_failed_deletion_can_be_repeated() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    let id = taken(&server, &sandbox).await;
    let path = format!("/v1/snapshots/{id}");
    sim.set_faults(Faults {
        snapshot_remove_fails: Some("the disk fails".to_owned()),
        ..Faults::default()
    });
    let (status, body) = delete(&server, &path).await;
    assert_eq!(status, 500, "{body}");
    assert_eq!(get(&server, &path).await.1["status"]["state"], "Deleting");
    server.service.reconcile().await;
    assert_eq!(get(&server, &path).await.1["status"]["state"], "Deleting");
    sim.set_faults(Faults::default());
    assert_eq!(delete(&server, &path).await.0, 204);
    assert_eq!(get(&server, &path).await.0, 404);
    // Nothing is marked while the runtime is away.
    let id = taken(&server, &sandbox).await;
    let path = format!("/v1/snapshots/{id}");
    unplug(&server, &sim).await;
    assert_eq!(delete(&server, &path).await.0, 503);
    assert_eq!(get(&server, &path).await.1["status"]["state"], "Ready");
    server.stop().await;
}

//! What a crash or a fault left half done, and images that no template needs.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use osb_protocol::{WireTime, lifecycle::TemplatePhase};
use osb_runtime::sim::SimRuntime;
use osb_store::TemplateRow;
use osb_testkit::{TestServer, store_in, wait_until};
use serde_json::{Value, json};

use super::{
    BUILDS, accepted, created, delete, get, held, image, reached, release, sim, start, until, up,
};

fn row(id: &str, phase: TemplatePhase) -> TemplateRow {
    let at = WireTime::new(jiff::Timestamp::now());
    TemplateRow {
        id: id.to_owned(),
        tenant: None,
        owner: None,
        spec: image().to_string(),
        metadata: BTreeMap::new(),
        phase,
        image: None,
        message: None,
        size_bytes: None,
        created_at: at,
        changed_at: at,
    }
}

/// Writes what an earlier server left.
async fn leave(folder: &Path, rows: &[TemplateRow]) {
    let store = osb_store::open(&store_in(folder).await.unwrap()).await;
    let store = store.unwrap();
    for row in rows {
        assert!(store.add_template(row).await.unwrap());
    }
    store.close().await;
}

async fn over(sim: &Arc<SimRuntime>, folder: &Path) -> TestServer {
    let server = TestServer::over(Arc::clone(sim) as _, folder, "").await;
    server.unwrap()
}

async fn status(server: &TestServer, id: &str) -> Value {
    get(server, &format!("/v1/templates/{id}")).await.1["status"].clone()
}

#[tokio::test]
async fn what_the_runtime_has_decides_after_a_crash() {
    use TemplatePhase::{Building, Deleting, Failed, Pending, Succeeded};
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    for kept in ["complete", "unremoved", "made"] {
        sim.put_template(kept);
    }
    let rows = [
        row("complete", Building),
        row("cut-off", Building),
        row("waiting", Pending),
        row("unremoved", Deleting),
        row("removed", Deleting),
        row("made", Succeeded),
        row("failed", Failed),
    ];
    leave(folder.path(), &rows).await;
    let server = over(&sim, folder.path()).await;
    up(&server).await;
    server.service.reconcile().await;
    let seen = until(&server, "complete", "Succeeded").await;
    assert_eq!(seen["status"]["manifestRef"], "sim-templates:complete");
    for id in ["cut-off", "waiting"] {
        let seen = until(&server, id, "Failed").await;
        let message = seen["status"]["message"].as_str().unwrap();
        assert!(message.contains("interrupted"), "{message}");
    }
    for gone in ["unremoved", "removed"] {
        // The API shows none that was deleted.
        let look = async || server.service.template_entry(gone).await.unwrap();
        wait_until(gone, look, |seen| seen.is_none()).await;
    }
    assert_eq!(status(&server, "failed").await["phase"], "Failed");
    assert_eq!(sim.stored_templates(), ["complete", "made"]);
    for id in ["complete", "made"] {
        created(&server, id).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_decided_while_the_runtime_is_away() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    sim.put_template("complete");
    let rows = [row("complete", TemplatePhase::Building)];
    leave(folder.path(), &rows).await;
    sim.go_down("unplugged").await;
    let server = over(&sim, folder.path()).await;
    server.service.reconcile().await;
    assert_eq!(status(&server, "complete").await["phase"], "Building");
    sim.come_back().await;
    up(&server).await;
    server.service.reconcile().await;
    until(&server, "complete", "Succeeded").await;
    server.stop().await;
}

#[tokio::test]
async fn a_stop_ends_a_build_and_says_so() {
    let (server, sim, folder) = start(BUILDS).await;
    let (faults, _gate) = held();
    sim.set_faults(faults);
    let build = json!({"build": {"dockerfile": "FROM a"}, "publish": "p"});
    let id = accepted(&server, &build).await;
    until(&server, &id, "Building").await;
    server.stop().await;
    drop(server);
    let server = over(&sim, folder.path()).await;
    up(&server).await;
    let seen = until(&server, &id, "Failed").await;
    let message = seen["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("before the template was made"),
        "{message}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_runtime_that_goes_away_meanwhile_is_asked_later() {
    let (server, sim, _folder) = start("").await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &image()).await;
    until(&server, &id, "Building").await;
    reached(&sim, 1).await;
    sim.go_down("unplugged").await;
    release(&sim, &gate, 1).await;
    let look = async || {
        server.service.reconcile().await;
        status(&server, &id).await["phase"].clone()
    };
    assert_eq!(look().await, "Building");
    sim.come_back().await;
    wait_until("an end", look, |phase| phase == "Failed").await;
    assert_eq!(delete(&server, &id).await.0, 204);
    server.stop().await;
}

/// Lets time pass in which nothing happens.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_pull_that_does_not_end_gives_its_place_back() {
    let (server, sim, _folder) = start("").await;
    let (faults, _gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &image()).await;
    reached(&sim, 1).await;
    for _ in 0..25 {
        pass(Duration::from_secs(300)).await;
    }
    let look = async || {
        server.service.reconcile().await;
        status(&server, &id).await["phase"].clone()
    };
    wait_until("an end", look, |phase| phase == "Failed").await;
    assert_eq!(sim.stored_templates(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn an_image_without_a_template_is_removed_after_an_hour() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    for kept in ["unknown", "failed", "made"] {
        sim.put_template(kept);
    }
    let rows = [
        row("failed", TemplatePhase::Failed),
        row("made", TemplatePhase::Succeeded),
    ];
    leave(folder.path(), &rows).await;
    let server = over(&sim, folder.path()).await;
    up(&server).await;
    server.service.reconcile().await;
    assert_eq!(sim.stored_templates(), ["failed", "made", "unknown"]);
    for _ in 0..13 {
        pass(Duration::from_secs(300)).await;
    }
    // A database may have to confirm first that no other server has it.
    let seen = async || {
        server.service.reconcile().await;
        sim.stored_templates()
    };
    wait_until("only what is needed", seen, |seen| seen == &["made"]).await;
    server.stop().await;
}

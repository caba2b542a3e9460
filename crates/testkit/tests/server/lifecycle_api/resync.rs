//! A runtime that is lost, and lists that race with creates and deletes.

use std::sync::Arc;

use osb_protocol::SandboxId;
use osb_runtime::sim::{Faults, SimRuntime};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::calls::{answer, create, get, made};

#[tokio::test]
async fn a_lost_runtime_is_reported_and_recovers() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let id = made(&server, |_| {}).await;
    let vanished = made(&server, |_| {}).await;
    sim.go_down("the engine was stopped").await;
    let ready = || answer(server.bare(Method::GET, "/ready"));
    wait_until("the loss", ready, |seen| seen.0 == 503).await;
    for request in [
        server.request(Method::GET, "/v1/sandboxes"),
        server.request(Method::GET, &format!("/v1/sandboxes/{id}")),
        server
            .request(Method::POST, "/v1/sandboxes")
            .json(&TestServer::good_create()),
        server.request(Method::DELETE, &format!("/v1/sandboxes/{id}")),
    ] {
        let (status, body) = answer(request).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (503, &json!("GENERAL::RUNTIME_UNAVAILABLE"))
        );
        assert!(
            body["message"]
                .as_str()
                .unwrap()
                .contains("the engine was stopped")
        );
    }
    let wrong = server
        .request(Method::POST, "/v1/sandboxes")
        .json(&json!({"timeout": 1}));
    assert_eq!(
        answer(wrong).await.0,
        422,
        "a bad request is refused as such also during an outage"
    );
    assert_eq!(answer(server.bare(Method::GET, "/health")).await.0, 200);
    sim.vanish(&vanished.as_str().into()).await;
    sim.come_back().await;
    wait_until("the return", ready, |seen| seen.0 == 200).await;
    assert_eq!(get(&server, &id).await.0, 200);
    assert_eq!(get(&server, &vanished).await.0, 404);
    server.stop().await;
}

/// Ends a sandbox and waits until that is visible: all earlier events were processed by then.
async fn settle(server: &TestServer, sim: &SimRuntime, other: &str) {
    sim.exit(&other.into(), 3).await;
    let failed = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
    wait_until("the marker", || get(server, other), failed).await;
}

/// Returns the sandbox, besides `other`, whose create waits for the start of its container.
async fn half_made(sim: &SimRuntime, other: &str) -> SandboxId {
    let look = || async { sim.sandboxes() };
    let all = wait_until("the container", look, |all| all.len() == 2).await;
    all.into_iter().find(|id| id.as_str() != other).unwrap()
}

#[tokio::test]
async fn a_retried_create_survives_a_resync() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let other = made(&server, |_| {}).await;
    let gate = Arc::new(Notify::new());
    sim.set_faults(Faults {
        start_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    let meanwhile = async {
        let id = half_made(&sim, &other).await;
        sim.come_back().await;
        // The first attempt's container is removed.
        sim.vanish(&id).await;
        settle(&server, &sim, &other).await;
        assert_eq!(
            get(&server, id.as_str()).await.1["status"]["state"],
            "Pending"
        );
        gate.notify_one();
    };
    let ((status, body), ()) = tokio::join!(create(&server, |_| {}), meanwhile);
    assert_eq!(status, 202, "{body}");
    let id = body["id"].as_str().unwrap();
    assert_eq!(get(&server, id).await.1["status"]["state"], "Running");
    sim.vanish(&id.into()).await;
    wait_until("its end", || get(&server, id), |seen| seen.0 == 404).await;
    let end = server.service.history(&id.into()).await.unwrap().unwrap();
    assert_eq!(end.reason, "VANISHED");
    server.stop().await;
}

#[tokio::test]
async fn a_create_that_fails_after_the_start_keeps_its_reason() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let other = made(&server, |_| {}).await;
    let gate = Arc::new(Notify::new());
    sim.set_faults(Faults {
        start_gate: Some(Arc::clone(&gate)),
        start_fails: Some("it cannot be inspected".into()),
        ..Faults::default()
    });
    let meanwhile = async {
        let id = half_made(&sim, &other).await;
        // The events of a forced removal of the running container.
        sim.exit(&id, 137).await;
        sim.vanish(&id).await;
        settle(&server, &sim, &other).await;
        gate.notify_one();
        id
    };
    let ((status, body), id) = tokio::join!(create(&server, |_| {}), meanwhile);
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (500, &json!("DOCKER::SANDBOX_START_FAILED"))
    );
    let end = server.service.history(&id).await.unwrap().unwrap();
    assert_eq!(end.reason, "START_FAILED", "{end:?}");
    assert!(end.message.contains("it cannot be inspected"), "{end:?}");
    assert!(
        end.stages.iter().any(|reached| reached.stage == "created"),
        "{end:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_stale_list_does_not_restore_a_deleted_sandbox() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (other, id) = (made(&server, |_| {}).await, made(&server, |_| {}).await);
    let late = sim.look();
    let path = format!("/v1/sandboxes/{id}");
    let delete = server.request(Method::DELETE, &path);
    assert_eq!(answer(delete.header("Prefer", "wait")).await.0, 204);
    sim.emit(late).await;
    settle(&server, &sim, &other).await;
    assert_eq!(get(&server, &id).await.0, 404);
    let end = server.service.history(&id.as_str().into()).await.unwrap();
    assert_eq!(end.unwrap().reason, "DELETED");
    server.stop().await;
}

#[tokio::test]
async fn a_list_without_news_is_no_change() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (other, id) = (made(&server, |_| {}).await, made(&server, |_| {}).await);
    let mut changes = server.service.subscribe();
    sim.emit(sim.look()).await;
    settle(&server, &sim, &other).await;
    while let Ok(change) = changes.try_recv() {
        assert_ne!(change.id.as_str(), id, "{change:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_vanishes_while_locked_is_noticed_afterwards() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (other, id) = (made(&server, |_| {}).await, made(&server, |_| {}).await);
    let locks = server
        .service
        .registry()
        .locks(&id.as_str().into())
        .unwrap();
    let owner = locks.life.lock().await;
    sim.vanish(&id.as_str().into()).await;
    settle(&server, &sim, &other).await;
    assert_eq!(
        get(&server, &id).await.0,
        200,
        "the task that holds the lock decides"
    );
    drop(owner);
    wait_until("its end", || get(&server, &id), |seen| seen.0 == 404).await;
    server.stop().await;
}

//! Snapshots belong to the tenant of their sandbox (contract: lifecycle A7).

use std::sync::Arc;

use osb_protocol::SandboxId;
use osb_runtime::sim::SimRuntime;
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{answer, from_snapshot, held, refused, release, sim, up};

const TEAMS: &str = "[[tenants]]\nname = 'team-a'\nnamespace = 'ns'\napi_keys = ['key-a']\n\
    [[tenants]]\nname = 'team-b'\nnamespace = 'ns'\napi_keys = ['key-b']\n";

#[tokio::test]
async fn a_snapshot_of_another_tenant_does_not_exist() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let server = TestServer::with_tenants_over(Arc::clone(&sim) as _, folder.path()).await;
    let server = server.unwrap();
    up(&server).await;
    let as_key = |key: &str, method: Method, path: &str| -> RequestBuilder {
        server.request_as(key, method, path)
    };
    let create = async |key: &str, body: &Value| {
        let request = as_key(key, Method::POST, "/v1/sandboxes");
        answer(request.json(body)).await
    };
    let (status, sandbox) = create("key-a", &TestServer::good_create()).await;
    assert_eq!(status, 202, "{sandbox}");
    let sandbox = SandboxId::from(sandbox["id"].as_str().unwrap());
    let take = format!("/v1/sandboxes/{sandbox}/snapshots");
    let foreign = answer(as_key("key-b", Method::POST, &take)).await;
    refused(&foreign, 404, "DOCKER::SANDBOX_NOT_FOUND");
    let (status, taken) = answer(as_key("key-a", Method::POST, &take)).await;
    assert_eq!(status, 202, "{taken}");
    let id = taken["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/snapshots/{id}");
    let own = async || answer(as_key("key-a", Method::GET, &path)).await.1;
    let is_ready = |seen: &Value| seen["status"]["state"] == "Ready";
    wait_until("the snapshot", own, is_ready).await;

    for method in [Method::GET, Method::DELETE] {
        let foreign = answer(as_key("key-b", method, &path)).await;
        refused(&foreign, 404, "SNAPSHOT::NOT_FOUND");
    }
    refused(
        &create("key-b", &from_snapshot(&id)).await,
        404,
        "SNAPSHOT::NOT_FOUND",
    );
    let list = async |key: &str, query: &str| {
        let path = format!("/v1/snapshots{query}");
        let (status, body) = answer(as_key(key, Method::GET, &path)).await;
        assert_eq!(status, 200, "{body}");
        body["pagination"]["totalItems"].clone()
    };
    assert_eq!(list("key-a", "").await, json!(1));
    assert_eq!(list("key-b", "").await, json!(0));
    let of_sandbox = format!("?sandboxId={sandbox}");
    assert_eq!(list("key-b", &of_sandbox).await, json!(0));

    let (status, copy) = create("key-a", &from_snapshot(&id)).await;
    assert_eq!(status, 202, "{copy}");
    let copy = SandboxId::from(copy["id"].as_str().unwrap());
    let tenant = sim.spec(&copy).unwrap().origin.tenant;
    assert_eq!(tenant.as_deref(), Some("team-a"));
    server.service.delete(&copy, true).await.unwrap();
    let deleted = answer(as_key("key-a", Method::DELETE, &path)).await;
    assert_eq!(deleted.0, 204, "{deleted:?}");
    server.stop().await;
}

/// A sandbox of the tenant of a key.
async fn created_as(server: &TestServer, key: &str) -> SandboxId {
    let request = server.request_as(key, Method::POST, "/v1/sandboxes");
    let (status, sandbox) = answer(request.json(&TestServer::good_create())).await;
    assert_eq!(status, 202, "{sandbox}");
    sandbox["id"].as_str().unwrap().into()
}

async fn take_as(server: &TestServer, key: &str, sandbox: &SandboxId) -> (u16, Value) {
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    answer(server.request_as(key, Method::POST, &path)).await
}

async fn with_teams(sim: &Arc<SimRuntime>, folder: &std::path::Path, more: &str) -> TestServer {
    std::fs::write(folder.join("tenants.toml"), TEAMS).unwrap();
    let server = TestServer::with_tenants_and(Arc::clone(sim) as _, folder, more).await;
    let server = server.unwrap();
    up(&server).await;
    server
}

#[tokio::test]
async fn captures_of_one_tenant_leave_a_place_to_others() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    let server = with_teams(&sim, folder.path(), "").await;
    let mut sandboxes = Vec::new();
    for key in ["key-a", "key-a", "key-a", "key-b"] {
        sandboxes.push((key, created_as(&server, key).await));
    }
    let (faults, gate) = held();
    sim.set_faults(faults);
    let mut taken = Vec::new();
    for (key, sandbox) in &sandboxes[..3] {
        taken.push((*key, take_as(&server, key, sandbox).await.1));
    }
    let captures = async || sim.captures().0;
    wait_until("the first capture", captures, |count| *count == 1).await;
    let (key, sandbox) = &sandboxes[3];
    taken.push((*key, take_as(&server, key, sandbox).await.1));
    wait_until("that of the other tenant", captures, |count| *count == 2).await;
    release(&sim, &gate);
    for (key, snapshot) in &taken {
        let path = format!("/v1/snapshots/{}", snapshot["id"].as_str().unwrap());
        let own = async || answer(server.request_as(key, Method::GET, &path)).await.1;
        let is_ready = |seen: &Value| seen["status"]["state"] == "Ready";
        wait_until("the snapshot", own, is_ready).await;
    }
    assert_eq!(sim.captures(), (0, 2));
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_has_a_limited_number_of_snapshots() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    let server = with_teams(&sim, folder.path(), "[snapshots]\nmax_snapshots = 1\n").await;
    for key in ["key-a", "key-b"] {
        let sandbox = created_as(&server, key).await;
        let (status, taken) = take_as(&server, key, &sandbox).await;
        assert_eq!(status, 202, "{taken}");
        let full = take_as(&server, key, &sandbox).await;
        refused(&full, 403, "SANDBOX::QUOTA_EXCEEDED");
        let message = full.1["message"].as_str().unwrap();
        let wanted = "there are 1 snapshots, and snapshots.max_snapshots allows 1 of one tenant";
        assert!(message.starts_with(wanted), "{message}");
        let path = format!("/v1/snapshots/{}", taken["id"].as_str().unwrap());
        let deleted = async || {
            answer(server.request_as(key, Method::DELETE, &path))
                .await
                .0
        };
        wait_until("the deletion", deleted, |status| *status == 204).await;
        assert_eq!(take_as(&server, key, &sandbox).await.0, 202);
    }
    server.stop().await;
}

#[tokio::test]
async fn snapshots_at_once_do_not_exceed_the_limit_together() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    let server = with_teams(&sim, folder.path(), "[snapshots]\nmax_snapshots = 2\n").await;
    let mut sandboxes = Vec::new();
    for _ in 0..6 {
        sandboxes.push(created_as(&server, "key-a").await);
    }
    let at_once = sandboxes.iter().cycle().take(24);
    let at_once = at_once.map(|sandbox| take_as(&server, "key-a", sandbox));
    let answers = futures::future::join_all(at_once).await;
    let taken = answers.iter().filter(|(status, _)| *status == 202).count();
    assert!((1..=2).contains(&taken), "{answers:?}");
    // Those that had to wait for another of their tenant get the rest, and no more.
    let again = async || take_as(&server, "key-a", &sandboxes[0]).await.0;
    wait_until("the limit", again, |status| *status == 403).await;
    let list = answer(server.request_as("key-a", Method::GET, "/v1/snapshots"))
        .await
        .1;
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    server.stop().await;
}

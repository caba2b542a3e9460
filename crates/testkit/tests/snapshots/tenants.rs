//! Snapshots belong to the tenant of their sandbox (contract: lifecycle A7).

use std::sync::Arc;

use osb_protocol::SandboxId;
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{answer, from_snapshot, refused, sim, up};

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

//! Quotas for disk, measured by the engine.

use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::stage::{Stage, ask, body, docker, ready};

/// Sends a request with a key; its status and its body.
async fn send(
    server: &TestServer,
    key: &str,
    method: Method,
    path: &str,
    sent: &Value,
) -> (u16, Value) {
    let request = server.request_as(key, method, path).json(sent);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_sandbox_count_and_its_owner_is_remembered() {
    const MORE: &str = "[quotas.key]\ndisk = '16Mi'";
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.configured_server(Vec::new(), MORE).await;
    ready(&server).await;
    let new = json!({"name": "ci", "role": "operator"});
    let (_, issued) = send(
        &server,
        osb_testkit::API_KEY,
        Method::POST,
        "/v1/api-keys",
        &new,
    )
    .await;
    let key = issued["secret"].as_str().unwrap();
    let (status, made) = send(&server, key, Method::POST, "/v1/sandboxes", &body()).await;
    assert_eq!(status, 202, "{made}");
    let id = made["id"].as_str().unwrap();
    let format = "{{index .Config.Labels \"opensandbox.io/owner\"}}";
    let label = docker(&["inspect", "--format", format, &stage.container_of(id)]);
    let owner = format!("api_key:{}", issued["apiKey"]["id"].as_str().unwrap());
    assert_eq!(label, owner);
    let write = json!({"command": "dd if=/dev/urandom of=/tmp/large bs=1M count=20"});
    let (status, events) = ask(&server, id, Method::POST, "/command", Some(write)).await;
    assert_eq!(status, 200, "{events}");
    server.stop().await;
    drop(server);
    // A start measures at once, and finds the owner in the labels.
    let server = stage.configured_server(Vec::new(), MORE).await;
    ready(&server).await;
    let look = || send(&server, key, Method::GET, "/v1/quotas", &Value::Null);
    let is_measured = |(_, seen): &(u16, Value)| {
        let used = seen["items"][0]["used"]["diskBytes"].as_u64();
        used.is_some_and(|bytes| bytes >= 20 << 20)
    };
    wait_until("the measurement", look, is_measured).await;
    let (status, refused) = send(&server, key, Method::POST, "/v1/sandboxes", &body()).await;
    assert_eq!(status, 403, "{refused}");
    let message = refused["message"].as_str().unwrap();
    let expected = "the API key ci has a quota of 16 MiB for disk: ";
    assert!(message.starts_with(expected), "{message}");
    let path = format!("/v1/sandboxes/{id}");
    let gone = server.request_as(key, Method::DELETE, &path);
    let gone = gone.header("prefer", "wait").send().await.unwrap();
    assert_eq!(gone.status(), 204);
    server.stop().await;
}

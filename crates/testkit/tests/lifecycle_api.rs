//! The REST API over the simulated runtime, as clients see it.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::sync::Arc;

use osb_protocol::SandboxId;
use osb_runtime::sim::{Faults, SimRuntime};
use osb_testkit::{API_KEY, TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let request_id = response.headers().get("x-request-id");
    assert!(request_id.is_some(), "every answer has a request id");
    let text = response.text().await.unwrap();
    let body = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap()
    };
    (status, body)
}

async fn create(server: &TestServer, change: impl FnOnce(&mut Value)) -> (StatusCode, Value) {
    let mut body = TestServer::good_create();
    change(&mut body);
    answer(server.request(Method::POST, "/v1/sandboxes").json(&body)).await
}

async fn made(server: &TestServer, change: impl FnOnce(&mut Value)) -> String {
    let (status, body) = create(server, change).await;
    assert_eq!(status, 202, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

async fn get(server: &TestServer, id: &str) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

#[tokio::test]
async fn a_sandbox_lives_from_create_to_delete_under_both_prefixes() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (status, created) =
        create(&server, |body| body["metadata"] = json!({"team": "core"})).await;
    assert_eq!(status, 202);
    assert_eq!(created["status"]["state"], "Running");
    assert_eq!(created["entrypoint"], json!(["sleep", "infinity"]));
    assert!(
        created.get("image").is_none(),
        "the reply to create has no image"
    );
    let id = created["id"].as_str().unwrap();
    for prefix in ["", "/v1"] {
        let one = answer(server.request(Method::GET, &format!("{prefix}/sandboxes/{id}"))).await;
        assert_eq!(
            (one.0.as_u16(), &one.1["image"]["uri"]),
            (200, &json!("debian:12"))
        );
        let (_, list) = answer(server.request(Method::GET, &format!("{prefix}/sandboxes"))).await;
        assert_eq!(list["items"][0], one.1);
        assert_eq!(list["pagination"]["totalItems"], 1);
    }
    let path = format!("/v1/sandboxes/{id}");
    let gone = server
        .request(Method::DELETE, &path)
        .header("Prefer", "wait");
    assert_eq!(answer(gone).await.0, 204);
    assert!(sim.sandboxes().is_empty());
    let (status, body) = get(&server, id).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (404, &json!("DOCKER::SANDBOX_NOT_FOUND"))
    );
    assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_delete_is_answered_at_once_and_may_be_repeated() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let id = made(&server, |_| {}).await;
    sim.set_faults(Faults {
        remove_fails: Some("busy".into()),
        ..Faults::default()
    });
    let path = format!("/v1/sandboxes/{id}");
    for _ in 0..2 {
        assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 204);
    }
    let failed = |seen: &(StatusCode, Value)| seen.1["status"]["reason"] == "REMOVAL_FAILED";
    let (_, seen) = wait_until("the failure", || get(&server, &id), failed).await;
    assert_eq!(seen["status"]["state"], "Failed");
    assert!(seen["status"]["message"].as_str().unwrap().contains("busy"));
    let renew = server.request(Method::POST, &format!("{path}/renew-expiration"));
    let (status, _) = answer(renew.json(&json!({"expiresAt": "2099-01-01T00:00:00Z"}))).await;
    assert_eq!(status, 409, "a sandbox cannot be renewed during removal");
    sim.set_faults(Faults::default());
    server.service.reconcile().await;
    wait_until("the end", || get(&server, &id), |seen| seen.0 == 404).await;
    server.stop().await;
}

#[tokio::test]
async fn a_create_that_fails_leaves_nothing_but_history() {
    let (server, sim) = TestServer::sim().await.unwrap();
    for (faults, code) in [
        (
            Faults {
                no_image: true,
                ..Faults::default()
            },
            "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
        ),
        (
            Faults {
                start_fails: Some("no such device".into()),
                ..Faults::default()
            },
            "DOCKER::SANDBOX_START_FAILED",
        ),
    ] {
        sim.set_faults(faults);
        let (status, body) = create(&server, |_| {}).await;
        assert_eq!((status.as_u16(), &body["code"]), (500, &json!(code)));
        let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
        assert_eq!(list["items"], json!([]));
    }
    let history = server.service.recent_history(10).await.unwrap();
    assert_eq!(history.len(), 2);
    assert!(
        history
            .iter()
            .any(|entry| entry.message.contains("no such device"))
    );
    assert!(
        history
            .iter()
            .all(|entry| entry.stages[0].stage == "accepted")
    );
    server.stop().await;
}

#[tokio::test]
async fn pending_is_visible_and_may_be_deleted() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let slow = std::time::Duration::from_millis(300);
    sim.set_faults(Faults {
        stage_delay: slow,
        ..Faults::default()
    });
    let watch = async {
        let list = || answer(server.request(Method::GET, "/v1/sandboxes"));
        let (_, seen) =
            wait_until("the pending one", list, |seen| seen.1["items"] != json!([])).await;
        assert_eq!(seen["items"][0]["status"]["state"], "Pending");
        let id = seen["items"][0]["id"].as_str().unwrap().to_owned();
        let endpoint = format!("/v1/sandboxes/{id}/endpoints/44772");
        let (status, body) = answer(server.request(Method::GET, &endpoint)).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (404, &json!("KUBERNETES::POD_IP_NOT_AVAILABLE"))
        );
        let path = format!("/v1/sandboxes/{id}");
        assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 204);
        id
    };
    let ((status, _), id) = tokio::join!(create(&server, |_| {}), watch);
    assert_eq!(status, 409, "deleted before it was made");
    wait_until("the end", || get(&server, &id), |seen| seen.0 == 404).await;
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn renewing_moves_the_deadline_both_ways_and_expiry_removes() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let id = made(&server, |_| {}).await;
    let renew = |at: Value| {
        let path = format!("/v1/sandboxes/{id}/renew-expiration");
        answer(
            server
                .request(Method::POST, &path)
                .json(&json!({"expiresAt": at})),
        )
    };
    let (status, body) = renew(json!("2099-05-01T14:00:00+02:00")).await;
    assert_eq!(
        (status.as_u16(), &body["expiresAt"]),
        (200, &json!("2099-05-01T12:00:00Z"))
    );
    assert_eq!(
        get(&server, &id).await.1["expiresAt"],
        "2099-05-01T12:00:00Z"
    );
    for (wrong, status) in [
        (json!("2001-01-01T00:00:00Z"), 400),
        (json!("soon"), 422),
        (Value::Null, 422),
    ] {
        assert_eq!(renew(wrong).await.0.as_u16(), status);
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let (status, _) = renew(json!(now.as_secs_f64() + 2.0)).await;
    assert_eq!(status, 200);
    wait_until("its expiry", || get(&server, &id), |seen| seen.0 == 404).await;
    assert!(sim.sandboxes().is_empty());
    let manual = made(&server, |body| body["timeout"] = Value::Null).await;
    let path = format!("/v1/sandboxes/{manual}/renew-expiration");
    let body = json!({"expiresAt": "2099-01-01T00:00:00Z"});
    let (status, body) = answer(server.request(Method::POST, &path).json(&body)).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (409, &json!("DOCKER::INVALID_EXPIRATION"))
    );
    server.stop().await;
}

#[tokio::test]
async fn lists_filter_and_page() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let mut ids = Vec::new();
    for n in 0..5 {
        let tag = if n % 2 == 0 { "even" } else { "odd" };
        ids.push(
            made(&server, |body| {
                body["metadata"] = json!({"tag": tag, "n": n.to_string()})
            })
            .await,
        );
    }
    sim.exit(&ids[4].as_str().into(), 3).await;
    wait_until(
        "the exit",
        || get(&server, &ids[4]),
        |seen| seen.1["status"]["state"] == "Failed",
    )
    .await;
    let list = async |query: &str| {
        let (status, body) =
            answer(server.request(Method::GET, &format!("/v1/sandboxes{query}"))).await;
        assert_eq!(status, 200, "{query}: {body}");
        let items = body["items"].as_array().unwrap();
        let numbers: Vec<String> = items
            .iter()
            .map(|i| i["metadata"]["n"].as_str().unwrap().to_owned())
            .collect();
        (numbers.join(""), body["pagination"].clone())
    };
    assert_eq!(list("").await.0, "43210", "newest first");
    assert_eq!(list("?metadata=tag%3Deven").await.0, "420");
    assert_eq!(list("?metadata=tag%3Deven%26n%3D2").await.0, "2");
    assert_eq!(list("?state=failed").await.0, "4");
    assert_eq!(
        list("?state=Failed&state=Running&metadata=tag%3Deven")
            .await
            .0,
        "420"
    );
    let (numbers, pagination) = list("?page=2&pageSize=2").await;
    assert_eq!(numbers, "21");
    let want = json!({"page":2,"pageSize":2,"totalItems":5,"totalPages":3,"hasNextPage":true});
    assert_eq!(pagination, want);
    assert_eq!(list("?page=9&pageSize=2").await.0, "");
    for (query, status, code) in [
        ("?page=0", 422, "SANDBOX::INVALID_PARAMETER"),
        ("?pageSize=201", 422, "SANDBOX::INVALID_PARAMETER"),
        ("?pageSize=x&page=y", 422, "SANDBOX::INVALID_PARAMETER"),
        ("?metadata=novalue", 400, "INVALID_METADATA_FORMAT"),
    ] {
        let (got, body) =
            answer(server.request(Method::GET, &format!("/v1/sandboxes{query}"))).await;
        assert_eq!(
            (got.as_u16(), &body["code"]),
            (status, &json!(code)),
            "{query}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn metadata_patches_do_not_bring_deleted_keys_back() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let id = made(&server, |body| {
        body["metadata"] = json!({"a": "1", "b": "2"})
    })
    .await;
    let patch = |body: Value| {
        answer(
            server
                .request(Method::PATCH, &format!("/v1/sandboxes/{id}/metadata"))
                .json(&body),
        )
    };
    let (status, body) = patch(json!({"a": null, "c": "3"})).await;
    assert_eq!(
        (status.as_u16(), &body["metadata"]),
        (200, &json!({"b": "2", "c": "3"}))
    );
    assert_eq!(
        patch(json!({"d": "4"})).await.1["metadata"],
        json!({"b": "2", "c": "3", "d": "4"})
    );
    assert_eq!(patch(json!({})).await.0, 200);
    let none = patch(json!({"b": null, "c": null, "d": null})).await.1;
    assert!(none.get("metadata").is_none());
    for (body, status, code) in [
        (
            json!({"opensandbox.io/x": null}),
            400,
            "INVALID_METADATA_LABEL",
        ),
        (json!({"a b": "1"}), 400, "SANDBOX::INVALID_METADATA_LABEL"),
        (json!({"a": 1}), 422, "SANDBOX::INVALID_PARAMETER"),
        (json!([]), 422, "SANDBOX::INVALID_PARAMETER"),
    ] {
        let (got, answer) = patch(body.clone()).await;
        assert_eq!(
            (got.as_u16(), &answer["code"]),
            (status, &json!(code)),
            "{body}"
        );
    }
    server.stop().await;
}

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

#[tokio::test]
async fn api_routes_need_the_key_and_open_routes_do_not() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let with = |path: &str, key: &str| {
        answer(
            server
                .bare(Method::GET, path)
                .header("OPEN-SANDBOX-API-KEY", key),
        )
    };
    for path in [
        "/v1/sandboxes",
        "/sandboxes",
        "/v1/sandboxes/x",
        "/v1/health",
        "/nope",
    ] {
        let (status, body) = answer(server.bare(Method::GET, path)).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (401, &json!("MISSING_API_KEY")),
            "{path}"
        );
        let (status, body) = with(path, "test-kez").await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (401, &json!("INVALID_API_KEY")),
            "{path}"
        );
    }
    assert_eq!(with("/v1/sandboxes", API_KEY).await.0, 200);
    for path in ["/health", "/version", "/ready", "/openapi.json"] {
        assert_eq!(
            answer(server.bare(Method::GET, path)).await.0,
            200,
            "{path}"
        );
    }
    let (status, body) = with("/nope", API_KEY).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (404, &json!("GENERAL::NOT_FOUND"))
    );
    let (status, body) = answer(server.request(Method::PUT, "/v1/sandboxes")).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (405, &json!("GENERAL::METHOD_NOT_ALLOWED"))
    );
    let (status, _) = answer(server.bare(Method::GET, "/v1/sandboxes/x/proxy/http/a")).await;
    assert_eq!(
        status, 401,
        "a path with an invalid port is not a proxy path"
    );
    server.stop().await;
}

#[tokio::test]
async fn request_ids_and_cors_are_as_the_contract_says() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let sent = server
        .bare(Method::GET, "/health")
        .header("X-Request-ID", " abc ");
    assert_eq!(sent.send().await.unwrap().headers()["x-request-id"], "abc");
    let made = server
        .bare(Method::GET, "/v1/sandboxes")
        .send()
        .await
        .unwrap();
    let id = made.headers()["x-request-id"].to_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    let preflight = server
        .bare(Method::OPTIONS, "/v1/sandboxes")
        .header("Origin", "https://a.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "x-a, x-b");
    let answer = preflight.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(
        answer.headers()["access-control-allow-origin"],
        "https://a.example"
    );
    assert_eq!(answer.headers()["access-control-allow-headers"], "x-a, x-b");
    let simple = server
        .request(Method::GET, "/v1/sandboxes")
        .header("Origin", "https://a.example");
    let answer = simple.send().await.unwrap();
    assert_eq!(
        answer.headers()["access-control-allow-origin"],
        "https://a.example"
    );
    let console = server
        .bare(Method::GET, "/console/login")
        .header("Origin", "https://a.example");
    let answer = console.send().await.unwrap();
    assert!(
        answer
            .headers()
            .get("access-control-allow-origin")
            .is_none()
    );
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_refused_with_the_field() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let post = || server.request(Method::POST, "/v1/sandboxes");
    let json_type = ("content-type", "application/json");
    for (request, status, kind) in [
        (
            post().header(json_type.0, json_type.1).body("{"),
            422,
            "json_invalid",
        ),
        (
            post().header(json_type.0, json_type.1).body(""),
            422,
            "json_invalid",
        ),
        (
            post().header(json_type.0, json_type.1).body("{} trailing"),
            422,
            "json_invalid",
        ),
        (post().body("{}"), 422, "json_invalid"),
        (post().json(&json!([])), 422, "dict_type"),
        (post().json(&json!(null)), 422, "dict_type"),
    ] {
        let (got, body) = answer(request).await;
        assert_eq!(
            (got.as_u16(), &body["detail"][0]["type"]),
            (status, &json!(kind)),
            "{body}"
        );
        assert!(body["code"].is_string() && body["message"].is_string());
    }
    let huge = post()
        .header(json_type.0, json_type.1)
        .body("[".repeat(2 << 20));
    assert_eq!(answer(huge).await.0, 413);
    let deep = post()
        .header(json_type.0, json_type.1)
        .body("[".repeat(100_000));
    let (status, body) = answer(deep).await;
    assert_eq!(status, 422);
    let message = body["detail"][0]["msg"].as_str().unwrap();
    assert!(message.contains("nested deeper"), "{message}");
    let event = server.request(Method::POST, "/v1/metrics/events");
    let good = json!({"eventType": "sandbox.create", "createDurationMs": 1, "success": true});
    assert_eq!(
        answer(event.json(&good)).await,
        (StatusCode::NO_CONTENT, Value::Null)
    );
    server.stop().await;
}

#[tokio::test]
async fn a_refused_request_leaves_its_connection_usable() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let body = "x".repeat(300_000);
    for (key, status) in [("wrong", "401"), (API_KEY, "422")] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut answers, mut requests) = stream.into_split();
        let length = body.len();
        let refused = format!(
            "POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\nOPEN-SANDBOX-API-KEY: {key}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let next = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let send = async {
            requests.write_all(refused.as_bytes()).await.unwrap();
            requests.write_all(next.as_bytes()).await.unwrap();
        };
        let mut text = String::new();
        let (_, read) = tokio::join!(send, answers.read_to_string(&mut text));
        read.unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        assert!(text.contains("HTTP/1.1 200 OK"), "{text}");
    }
    server.stop().await;
}

//! The life of a sandbox, from create to delete.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{
    Expiry, RuntimeEvent,
    sim::{Faults, SimRuntime},
};
use osb_store::Outcome;
use osb_testkit::{TestServer, running_at, soon, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::calls::{answer, create, get, made};

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

/// The kernel may end many processes of one sandbox because of its memory limit.
#[tokio::test]
async fn what_is_known_of_a_sandbox_already_is_no_news() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (_, created) = create(&server, |_| {}).await;
    let id: SandboxId = created["id"].as_str().unwrap().into();
    let registry = server.service.registry();
    let (_, before) = registry.snapshot();
    for _ in 0..3 {
        sim.emit(RuntimeEvent::OutOfMemory { id: id.clone() }).await;
    }
    sim.exit(&id, 137).await;
    let ended = async || get(&server, id.as_str()).await.1;
    let is_over = |seen: &Value| seen["status"]["state"] == "Failed";
    let seen = wait_until("the end", ended, is_over).await;
    let message = seen["status"]["message"].as_str().unwrap();
    assert!(message.contains("memory limit"), "{message}");
    assert_eq!(registry.snapshot().1 - before, 2, "memory, and the end");
    server.stop().await;
}

#[tokio::test]
async fn many_expiries_at_once_are_removed_some_at_a_time() {
    const SANDBOXES: usize = 200;
    let past = WireTime::from_unix_us(1_000_000).unwrap();
    let expired = (0..SANDBOXES).map(|n| {
        let mut sandbox = running_at(&format!("s{n}"), [127, 0, 0, 9].into(), None);
        sandbox.origin.expiry = Expiry::At(past);
        sandbox
    });
    let sim = Arc::new(SimRuntime::with(expired));
    sim.set_faults(Faults {
        remove_delay: Duration::from_millis(20),
        ..Faults::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "");
    let server = server.await.unwrap();
    let left = || async { sim.sandboxes().len() };
    wait_until("their end", left, |left| *left == 0).await;
    let most = sim.most_removals();
    assert!((2..=64).contains(&most), "{most} at once");
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
        let endpoint = server.request(Method::GET, &format!("{path}/endpoints/44772"));
        assert_eq!(answer(endpoint).await.0, 404, "nothing begins any more");
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
    let history = server.service.recent_history(0, 10).await.unwrap();
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
    sim.set_faults(Faults {
        image_gate: Some(Arc::default()),
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
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
    let many = |first: usize| -> Value {
        (first..first + 600)
            .map(|index| (format!("{index:08}"), json!("x".repeat(56))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    assert_eq!(patch(many(0)).await.0, 200);
    let (status, refused) = patch(many(600)).await;
    assert_eq!(status, 400, "each patch is short enough");
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("metadata: "), "{message}");
    assert_eq!(patch(json!({"a": "1"})).await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_create_that_expires_leaves_that_in_its_history() {
    let (server, sim) = TestServer::sim().await.unwrap();
    sim.set_faults(Faults {
        image_gate: Some(Arc::default()),
        ..Faults::default()
    });
    let expires = async {
        let list = || answer(server.request(Method::GET, "/v1/sandboxes"));
        let is_there = |seen: &(StatusCode, Value)| seen.1["pagination"]["totalItems"] == 1;
        let (_, list) = wait_until("the sandbox", list, is_there).await;
        let id = list["items"][0]["id"].as_str().unwrap().to_owned();
        let renew = server.request(
            Method::POST,
            &format!("/v1/sandboxes/{id}/renew-expiration"),
        );
        let (status, body) = answer(renew.json(&json!({ "expiresAt": soon().to_string() }))).await;
        assert_eq!(status, 200, "{body}");
        id
    };
    let ((status, body), id) = tokio::join!(create(&server, |_| {}), expires);
    assert_eq!(status, 409, "{body}");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("expired"), "{message}");
    let end = server
        .service
        .history(&id.as_str().into())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (end.outcome, end.reason.as_str()),
        (Outcome::Expired, "EXPIRED")
    );
    server.stop().await;
}

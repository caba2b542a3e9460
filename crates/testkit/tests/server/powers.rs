//! Effects of a runtime's optional powers, over a simulated runtime that has them all.

use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_runtime::{
    Codes, Reasons, Role, Runtime, Vocabulary,
    sim::{Options, SimRuntime},
};
use osb_testkit::{TestServer, soon, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Reason words that no other runtime uses.
static WORDS: Vocabulary = Vocabulary {
    reasons: Reasons {
        starting: "CREATING",
        running: "RUNNING",
        paused: "PAUSED",
        restarting: "RESTARTING",
        exited: "ENDED",
        exited_error: "FAILED",
        unknown: "UNKNOWN",
    },
    codes: Codes {
        not_found: "SIM::NOT_FOUND",
        wrong_state: "SIM::WRONG_STATE",
        not_paused: "SIM::NOT_PAUSED",
        pause: "SIM::PAUSE",
        resume: "SIM::RESUME",
        image_pull: "SIM::IMAGE_PULL",
        start: "SIM::START",
        delete: "SIM::DELETE",
        query: "SIM::QUERY",
        execd_distribution: "SIM::EXECD",
        endpoint: "SIM::ENDPOINT",
    },
};

fn everything() -> Options {
    Options {
        powers: true,
        create_features: FeatureSet::EMPTY.with(Feature::LifecycleHooks),
        sidecar: true,
        warm: false,
        keeps_changes: true,
        vocabulary: &WORDS,
        secure: None,
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

async fn create(server: &TestServer, body: &Value) -> (StatusCode, Value) {
    answer(server.request(Method::POST, "/v1/sandboxes").json(body)).await
}

async fn created(server: &TestServer, body: &Value) -> SandboxId {
    let (status, answer) = create(server, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    SandboxId::from(answer["id"].as_str().unwrap())
}

async fn get(server: &TestServer, id: &SandboxId) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

#[tokio::test]
async fn a_snapshot_is_a_source_where_the_runtime_has_snapshots() {
    let (server, sim) = TestServer::sim_with(everything()).await.unwrap();
    let restore = json!({"snapshotId": "s", "resourceLimits": {}});
    let (status, body) = create(&server, &restore).await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::NOT_FOUND, &json!("SNAPSHOT::NOT_FOUND"))
    );

    let original = created(&server, &TestServer::good_create()).await;
    let path = format!("/v1/sandboxes/{original}/snapshots");
    let (status, taken) = answer(server.request(Method::POST, &path)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{taken}");
    let id = taken["id"].as_str().unwrap();
    let state = async || {
        let path = format!("/v1/snapshots/{id}");
        let (_, shown) = answer(server.request(Method::GET, &path)).await;
        shown["status"]["state"].clone()
    };
    wait_until("the snapshot", state, |seen| seen == "Ready").await;
    assert_eq!(sim.stored_snapshots(), [id]);
    let restore = json!({"snapshotId": id, "resourceLimits": {}});
    let copy = created(&server, &restore).await;
    let (_, shown) = get(&server, &copy).await;
    assert_eq!(shown["snapshotId"], id);
    assert_eq!(shown.get("image"), None, "{shown}");
    assert_eq!(shown["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    server.stop().await;
}

#[tokio::test]
async fn a_pool_gives_sandboxes_where_the_runtime_has_pools() {
    let (server, sim) = TestServer::sim_with(everything()).await.unwrap();
    let claim = json!({"extensions": {"poolRef": "p"}, "timeout": 600});
    let (status, _) = create(&server, &claim).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "no such pool");
    let pool = json!({
        "name": "p",
        "template": {"spec": {"containers": [{"image": "debian:12"}]}},
        "capacitySpec": {"bufferMax": 1, "bufferMin": 1, "poolMax": 1, "poolMin": 0},
    });
    let (status, _) = answer(server.request(Method::POST, "/v1/pools").json(&pool)).await;
    assert_eq!(status, StatusCode::CREATED);
    let id = created(&server, &claim).await;
    assert!(sim.claim_of(&id).is_some());
    let (status, body) = create(&server, &claim).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{body}");
    assert_eq!(body["code"], "KUBERNETES::POOL_CAPACITY_EXHAUSTED");
    server.stop().await;
}

#[tokio::test]
async fn missing_powers_are_refused_with_their_field() {
    let (server, _) = TestServer::sim().await.unwrap();
    for (field, value, status, code) in [
        ("snapshotId", json!("s"), 404, "SNAPSHOT::NOT_FOUND"),
        ("lifecycle", json!({}), 400, "SANDBOX::INVALID_PARAMETER"),
        (
            "networkPolicy",
            json!({}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "secureAccess",
            json!(true),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "extensions",
            json!({"poolRef": "p"}),
            400,
            "SANDBOX::UNSUPPORTED_POOL_REF",
        ),
    ] {
        let mut body = TestServer::good_create();
        body[field] = value;
        if field == "snapshotId" {
            body.as_object_mut().unwrap().remove("image");
        }
        let (seen, answer) = create(&server, &body).await;
        assert_eq!(
            (seen.as_u16(), &answer["code"]),
            (status, &json!(code)),
            "{answer}"
        );
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with(field), "{message}");
        assert!(
            message.contains("not available on the sim runtime"),
            "{message}"
        );
    }
    server.stop().await;
    let (able, _) = TestServer::sim_with(everything()).await.unwrap();
    let mut body = TestServer::good_create();
    body["lifecycle"] = json!({});
    created(&able, &body).await;
    able.stop().await;
}

#[tokio::test]
async fn routes_and_the_document_report_missing_powers() {
    for (options, status, note) in [
        (
            Options::default(),
            StatusCode::NOT_IMPLEMENTED,
            "Not available on the sim runtime: pause and resume, snapshots",
        ),
        (
            everything(),
            StatusCode::OK,
            "Not available on the sim runtime: network policies",
        ),
    ] {
        let (server, _) = TestServer::sim_with(options).await.unwrap();
        let (seen, body) = answer(server.request(Method::GET, "/v1/pools")).await;
        assert_eq!(seen, status, "{body}");
        if seen == StatusCode::NOT_IMPLEMENTED {
            assert_eq!(body["code"], "KUBERNETES::POOL_NOT_SUPPORTED");
            let message = "pools are not available on the sim runtime";
            assert_eq!(body["message"], message);
        }
        let (_, document) = answer(server.bare(Method::GET, "/openapi.json")).await;
        let description = document["info"]["description"].as_str().unwrap();
        assert!(description.contains(note), "{description}");
        server.stop().await;
    }
}

#[tokio::test]
async fn the_runtime_words_reasons_and_codes() {
    let (server, sim) = TestServer::sim_with(everything()).await.unwrap();
    let id = created(&server, &TestServer::good_create()).await;
    let reason = async || get(&server, &id).await.1["status"]["reason"].clone();
    assert_eq!(reason().await, "RUNNING");
    sim.pausing().unwrap().pause(&id).await.unwrap();
    wait_until("the pause", &reason, |seen| seen == "PAUSED").await;
    let (status, body) = get(&server, &"missing".into()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(body["code"], "SIM::NOT_FOUND");
    assert_eq!(body["message"], "sandbox missing not found");
    server.stop().await;
}

#[tokio::test]
async fn a_runtime_that_stores_changes_receives_them() {
    let (server, sim) = TestServer::sim_with(everything()).await.unwrap();
    let id = created(&server, &TestServer::good_create()).await;
    let until = "2099-01-01T00:00:00Z";
    let renew = server.request(
        Method::POST,
        &format!("/v1/sandboxes/{id}/renew-expiration"),
    );
    let (status, _) = answer(renew.json(&json!({"expiresAt": until}))).await;
    assert_eq!(status, StatusCode::OK);
    let patch = server.request(Method::PATCH, &format!("/v1/sandboxes/{id}/metadata"));
    let (status, _) = answer(patch.json(&json!({"team": "core"}))).await;
    assert_eq!(status, StatusCode::OK);
    let kept = sim.amendment(&id).unwrap();
    assert_eq!(kept.expires_at.unwrap().to_string(), until);
    assert_eq!(kept.metadata.unwrap()["team"], "core");
    let (_, shown) = get(&server, &id).await;
    assert_eq!(shown["expiresAt"], until);
    assert_eq!(shown["metadata"]["team"], "core");
    // The next full list from the runtime does not undo them.
    sim.go_down("a test").await;
    sim.come_back().await;
    wait_until(
        "the runtime is back",
        async || get(&server, &id).await.1,
        |shown| shown["expiresAt"] == until,
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_loses_its_sidecar_has_failed() {
    let (server, sim) = TestServer::sim_with(everything()).await.unwrap();
    let id = created(&server, &TestServer::good_create()).await;
    assert_eq!(sim.roles(&id), [Role::Main, Role::Egress]);
    sim.exit_role(&id, Role::Egress, 137).await;
    wait_until(
        "the failure",
        async || get(&server, &id).await.1,
        |shown| shown["status"]["reason"] == "EGRESS_LOST",
    )
    .await;
    let (status, _) = answer(server.request(Method::DELETE, &format!("/v1/sandboxes/{id}"))).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    wait_until(
        "the removal of its containers",
        async || sim.roles(&id),
        Vec::is_empty,
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn an_expiry_removes_the_whole_group() {
    let (server, sim) = TestServer::sim_with(everything()).await.unwrap();
    let id = created(&server, &TestServer::good_create()).await;
    assert_eq!(sim.roles(&id), [Role::Main, Role::Egress]);
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    let renew = server.request(Method::POST, &path);
    let (status, body) = answer(renew.json(&json!({ "expiresAt": soon().to_string() }))).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let gone = |seen: &(StatusCode, Value)| seen.0 == StatusCode::NOT_FOUND;
    wait_until("its expiry", || get(&server, &id), gone).await;
    assert_eq!(sim.roles(&id), []);
    server.stop().await;
}

#[test]
fn a_plain_runtime_has_no_power() {
    let plain = SimRuntime::new();
    assert!(plain.pausing().is_none() && plain.snapshots().is_none() && plain.pools().is_none());
    assert!(plain.templates().is_none());
}

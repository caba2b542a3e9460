//! Creates that get a sandbox which the runtime has begun in advance.

use std::sync::Arc;

use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_server::sandbox::IdempotencyKey;
use osb_testkit::TestServer;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn warm() -> Arc<SimRuntime> {
    Arc::new(SimRuntime::with_options(Options {
        create_features: FeatureSet::EMPTY.with(Feature::NetworkPolicy),
        sidecar: true,
        warm: true,
        ..Options::default()
    }))
}

async fn server(sim: &Arc<SimRuntime>, more: &str) -> (TestServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(Arc::clone(sim) as _, folder.path(), more).await;
    (server.unwrap(), folder)
}

fn with_policy() -> Value {
    let mut body = TestServer::good_create();
    body["networkPolicy"] = json!({"egress": [{"action": "allow", "target": "a.example"}]});
    body
}

async fn key(server: &TestServer) -> String {
    let body = json!({"name": "one", "role": "operator"});
    let (status, body) = answer(server.request(Method::POST, "/v1/api-keys").json(&body)).await;
    assert_eq!(status, 201, "{body}");
    body["secret"].as_str().unwrap().to_owned()
}

fn create(server: &TestServer, key: &str, body: &Value) -> RequestBuilder {
    let request = server.request_as(key, Method::POST, "/v1/sandboxes");
    request.json(body)
}

fn id_of((status, body): &(StatusCode, Value)) -> SandboxId {
    assert_eq!(*status, 202, "{body}");
    body["id"].as_str().unwrap().into()
}

#[tokio::test]
async fn a_create_with_a_policy_has_the_id_of_what_was_begun() {
    let sim = warm();
    let (server, _folder) = server(&sim, "").await;
    let key = key(&server).await;
    let next = sim.next_prepared();
    let without = answer(create(&server, &key, &TestServer::good_create())).await;
    assert_ne!(id_of(&without), next, "it needs no sidecar");
    let id = id_of(&answer(create(&server, &key, &with_policy())).await);
    assert_eq!(id, next);
    assert_ne!(sim.next_prepared(), id);
    let page = server
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    for sample in [
        "opensandbox_egress_warm_sidecars_wanted 2\n",
        "opensandbox_egress_warm_sidecars 2\n",
        "opensandbox_egress_warm_claims_total{outcome=\"hit\"} 1\n",
        "opensandbox_egress_warm_claims_total{outcome=\"miss\"} 0\n",
        "opensandbox_egress_warm_claims_total{outcome=\"failure\"} 0\n",
    ] {
        assert!(page.contains(sample), "{sample}{page}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refused_create_uses_none_up() {
    let sim = warm();
    let (server, _folder) = server(&sim, "[quotas.key]\nsandboxes = 1").await;
    let key = key(&server).await;
    let first = id_of(&answer(create(&server, &key, &with_policy())).await);
    let next = sim.next_prepared();
    let mut wrong = with_policy();
    wrong["entrypoint"] = json!([]);
    let (status, body) = answer(create(&server, &key, &wrong)).await;
    assert_eq!(status, 422, "{body}");
    for idempotency in [None, Some("a")] {
        let mut request = create(&server, &key, &with_policy());
        if let Some(value) = idempotency {
            request = request.header("Idempotency-Key", value);
        }
        let (status, body) = answer(request).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (403, &json!("SANDBOX::QUOTA_EXCEEDED"))
        );
        assert_eq!(sim.next_prepared(), next, "{idempotency:?}");
    }
    let path = format!("/v1/sandboxes/{first}");
    let delete = server
        .request(Method::DELETE, &path)
        .header("Prefer", "wait");
    assert_eq!(answer(delete).await.0, 204);
    assert_eq!(
        id_of(&answer(create(&server, &key, &with_policy())).await),
        next
    );
    server.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_leads_to_one_of_them() {
    let sim = warm();
    let (server, _folder) = server(&sim, "").await;
    let key = key(&server).await;
    let keyed = || create(&server, &key, &with_policy()).header("Idempotency-Key", "a");
    let first = id_of(&answer(keyed()).await);
    let next = sim.next_prepared();
    assert_eq!(id_of(&answer(keyed()).await), first);
    assert_eq!(sim.next_prepared(), next, "a repetition uses none up");
    server.stop().await;
}

#[tokio::test]
async fn a_repetition_that_waits_for_the_first_create_keeps_none() {
    let sim = warm();
    let gate = Arc::new(Notify::new());
    sim.set_faults(Faults {
        image_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    let (server, _folder) = server(&sim, "").await;
    server.wait_until_up().await.unwrap();
    let key = IdempotencyKey::new(b"k", None, b"a").unwrap();
    let mut first = Box::pin(server.service.create_once(with_policy(), key));
    assert!(futures::poll!(&mut first).is_pending());
    let next = sim.next_prepared();
    let mut second = Box::pin(server.service.create_once(with_policy(), key));
    assert!(futures::poll!(&mut second).is_pending());
    assert_eq!(sim.next_prepared(), next);
    gate.notify_one();
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().sandbox.id, second.unwrap().sandbox.id);
    server.stop().await;
}

#[tokio::test]
async fn an_id_that_was_in_the_registry_is_never_used_again() {
    let sim = warm();
    let (server, _folder) = server(&sim, "").await;
    let key = key(&server).await;
    sim.set_faults(Faults {
        start_fails: Some("broken".to_owned()),
        ..Faults::default()
    });
    let failed = sim.next_prepared();
    let (status, body) = answer(create(&server, &key, &with_policy())).await;
    assert!(status.is_server_error(), "{status}: {body}");
    sim.set_faults(Faults::default());
    assert_ne!(sim.next_prepared(), failed);
    let id = id_of(&answer(create(&server, &key, &with_policy())).await);
    assert_ne!(id, failed);
    server.stop().await;
}

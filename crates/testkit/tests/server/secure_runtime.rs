//! What sandboxes under a secure runtime can and cannot do, over a simulated runtime.

use osb_protocol::{Feature, FeatureSet};
use osb_runtime::{
    SecureKind,
    sim::{Options, SimRuntime},
};
use osb_testkit::TestServer;
use reqwest::Method;
use serde_json::{Value, json};

/// A runtime with what secure runtimes leave of its features.
fn under(secure: SecureKind) -> Options {
    Options {
        powers: true,
        create_features: FeatureSet::EMPTY.with(Feature::Volumes),
        secure: Some(secure),
        ..Options::default()
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status.as_u16(), serde_json::from_str(&text).unwrap())
}

async fn create(server: &TestServer, member: &str, value: Value) -> (u16, Value) {
    let mut body = TestServer::good_create();
    body[member] = value;
    answer(server.request(Method::POST, "/v1/sandboxes").json(&body)).await
}

async fn start(secure: SecureKind) -> (TestServer, std::sync::Arc<SimRuntime>) {
    TestServer::sim_with(under(secure)).await.unwrap()
}

#[tokio::test]
async fn a_policy_that_cannot_be_enforced_is_refused_with_the_reason() {
    for secure in SecureKind::ALL {
        let (server, sim) = start(secure).await;
        let (status, body) = create(&server, "networkPolicy", json!({})).await;
        assert_eq!(
            (status, &body["code"]),
            (400, &json!("SANDBOX::INVALID_PARAMETER"))
        );
        let text = body["message"].as_str().unwrap();
        let reason = format!("cannot be enforced under {secure} (secure_runtime.type)");
        assert!(
            text.starts_with("networkPolicy: ") && text.contains(&reason),
            "{text}"
        );
        assert_eq!(body["detail"][0]["loc"], json!(["body", "networkPolicy"]));
        assert!(sim.sandboxes().is_empty());
        server.stop().await;
    }
}

#[tokio::test]
async fn sessions_are_isolated_where_the_kernel_can() {
    for (secure, wanted) in [(SecureKind::Gvisor, 400), (SecureKind::Kata, 202)] {
        let (server, _) = start(secure).await;
        let isolation = json!({"bootstrap.execd.isolation": "enable"});
        let (status, body) = create(&server, "extensions", isolation).await;
        assert_eq!(status, wanted, "{secure}: {body}");
        if wanted == 400 {
            let text = body["message"].as_str().unwrap();
            assert!(
                text.contains("bootstrap.execd.isolation") && text.contains("under gVisor"),
                "{text}"
            );
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn a_snapshot_of_what_gvisor_hides_is_a_conflict_and_leaves_nothing() {
    for (secure, wanted) in [(SecureKind::Gvisor, 409), (SecureKind::Kata, 202)] {
        let (server, _) = start(secure).await;
        let (status, made) = create(&server, "metadata", json!({})).await;
        assert_eq!(status, 202, "{made}");
        let path = format!("/v1/sandboxes/{}/snapshots", made["id"].as_str().unwrap());
        let (status, body) = answer(server.request(Method::POST, &path)).await;
        assert_eq!(status, wanted, "{secure}: {body}");
        let (_, list) = answer(server.request(Method::GET, "/v1/snapshots")).await;
        let kept = list["items"].as_array().unwrap().len();
        assert_eq!(kept, usize::from(wanted == 202), "{list}");
        if wanted == 409 {
            assert_eq!(body["code"], "SNAPSHOT::UNSUPPORTED_RUNTIME");
            let text = body["message"].as_str().unwrap();
            assert!(text.contains("runs under gVisor"), "{text}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn an_inspection_names_the_runtime() {
    let (server, _) = start(SecureKind::Kata).await;
    let (_, made) = create(&server, "metadata", json!({})).await;
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}/diagnostics/inspect");
    let response = server.request(Method::GET, &path).send().await.unwrap();
    let text = response.text().await.unwrap();
    let has = text
        .lines()
        .any(|line| line.starts_with("Runtime:") && line.ends_with(" kata-runtime"));
    assert!(has, "{text}");
    server.stop().await;
}

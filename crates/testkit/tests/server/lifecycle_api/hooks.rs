//! Lifecycle hooks of a create, and what becomes of a sandbox whose hooks fail.

use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_runtime::sim::{Faults, Options};
use osb_testkit::{TestServer, wait_until};
use serde_json::{Value, json};

use super::calls::{create, get, made};

/// What execd writes before it ends.
const FAILED: &str = r#"{"level":"error","ts":"2031-05-01T10:00:00.000Z","msg":"preStart hook failed","exit":"exit status 7"}"#;

fn able() -> Options {
    Options {
        create_features: FeatureSet::EMPTY.with(Feature::LifecycleHooks),
        ..Options::default()
    }
}

fn hooked(body: &mut Value) {
    body["lifecycle"] = json!({"preStart": {"command": ["setup"], "timeoutSeconds": 5}});
}

#[tokio::test]
async fn hooks_reach_the_runtime_and_are_not_echoed() {
    let (server, sim) = TestServer::sim_with(able()).await.unwrap();
    let id = made(&server, hooked).await;
    let spec = sim.spec(&SandboxId::from(id.as_str())).unwrap();
    let hooks: Value = serde_json::from_str(&spec.lifecycle.unwrap()).unwrap();
    assert_eq!(hooks["preStart"]["command"], json!(["setup"]));
    let (_, shown) = get(&server, &id).await;
    assert_eq!(shown.get("lifecycle"), None, "{shown}");
    let (status, answer) = create(&server, |body| body["lifecycle"] = json!({"x": 1})).await;
    assert_eq!(status, 422, "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_failed_hook_is_the_reason_of_the_end() {
    let (server, sim) = TestServer::sim_with(able()).await.unwrap();
    let output = vec!["npm ERR!".to_owned(), FAILED.to_owned()];
    sim.set_faults(Faults {
        output,
        ..Faults::default()
    });
    let with = made(&server, hooked).await;
    let without = made(&server, |_| ()).await;
    for id in [&with, &without] {
        sim.exit(&SandboxId::from(id.as_str()), 7).await;
    }
    let status = async |id: &str| get(&server, id).await.1["status"].clone();
    let seen = wait_until(
        "the reason",
        async || status(&with).await,
        |seen| seen["reason"] == "LIFECYCLE_HOOK_FAILED",
    )
    .await;
    assert_eq!(seen["state"], "Failed");
    let message = seen["message"].as_str().unwrap();
    assert!(
        message.contains("preStart hook failed: exit status 7"),
        "{message}"
    );
    // Its entry point wrote what looks like execd's words.
    let seen = status(&without).await;
    assert_eq!(seen["reason"], "CONTAINER_EXITED_ERROR", "{seen}");
    server.stop().await;
}

#[tokio::test]
async fn an_entry_point_that_fails_after_its_hooks_is_no_failed_hook() {
    let (server, sim) = TestServer::sim_with(able()).await.unwrap();
    let id = made(&server, hooked).await;
    sim.exit(&SandboxId::from(id.as_str()), 3).await;
    let look = async || get(&server, &id).await.1["status"]["reason"].clone();
    let seen = wait_until("the end", look, |seen| seen == "CONTAINER_EXITED_ERROR").await;
    assert_eq!(seen, "CONTAINER_EXITED_ERROR");
    server.stop().await;
}

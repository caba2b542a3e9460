//! Volumes of sandboxes: what a create takes, refuses and keeps.

use std::sync::Arc;

use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_testkit::TestServer;
use reqwest::Method;
use serde_json::{Value, json};

use super::calls::create;

/// A server whose runtime has volumes, with lines of configuration.
async fn server(folder: &tempfile::TempDir, more: &str) -> (TestServer, Arc<SimRuntime>) {
    let sim = Arc::new(SimRuntime::with_options(Options {
        create_features: FeatureSet::EMPTY.with(Feature::Volumes),
        ..Options::default()
    }));
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more);
    (server.await.unwrap(), sim)
}

fn claim(name: &str, more: &Value) -> Value {
    let mut claim = json!({"claimName": name});
    claim
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([{"name": "a", "mountPath": "/data", "pvc": claim}])
}

/// Creates a sandbox with volumes; its id.
async fn made(server: &TestServer, volumes: Value) -> String {
    let (status, answer) = create(server, |body| body["volumes"] = volumes).await;
    assert_eq!(status, 202, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// The status, code and message of a create that is refused.
async fn refused(server: &TestServer, volumes: Value) -> (u16, String, String) {
    let (status, answer) = create(server, |body| body["volumes"] = volumes).await;
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    (status.as_u16(), text("code"), text("message"))
}

async fn delete(server: &TestServer, id: &str) {
    let request = server.request(Method::DELETE, &format!("/v1/sandboxes/{id}"));
    let answer = request.header("Prefer", "wait").send().await.unwrap();
    assert_eq!(answer.status(), 204);
}

#[tokio::test]
async fn every_rule_has_the_contracts_code() {
    let folder = tempfile::tempdir().unwrap();
    let (server, sim) = server(&folder, "[storage]\nallowed_host_paths = ['/srv']").await;
    let bucket = |more: Value| {
        let mut bucket = json!({
            "bucket": "data", "endpoint": "oss.example", "accessKeyId": "id",
            "accessKeySecret": "hunter2",
        });
        bucket
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([{"name": "a", "mountPath": "/a", "ossfs": bucket}])
    };
    let host = |path: &str| json!([{"name": "a", "mountPath": "/a", "host": {"path": path}}]);
    let at = |path: &str| json!([{"name": "a", "mountPath": path, "host": {"path": "/srv"}}]);
    let sub = |path: &str| json!([{"name": "a", "mountPath": "/a", "subPath": path, "host": {"path": "/srv"}}]);
    let many: Vec<Value> = (0..65)
        .map(|n| json!({"name": format!("v{n}"), "mountPath": format!("/v{n}"), "host": {"path": "/srv"}}))
        .collect();
    let twice = json!([
        {"name": "a", "mountPath": "/a", "host": {"path": "/srv"}},
        {"name": "a", "mountPath": "/b", "host": {"path": "/srv"}},
    ]);
    for (volumes, status, code) in [
        (host("/etc"), 400, "VOLUME::HOST_PATH_NOT_ALLOWED"),
        (host("/srvx"), 400, "VOLUME::HOST_PATH_NOT_ALLOWED"),
        (host("/srv/../etc"), 400, "VOLUME::INVALID_HOST_PATH"),
        (host("srv"), 422, "SANDBOX::INVALID_PARAMETER"),
        (at("/opt/opensandbox"), 400, "VOLUME::INVALID_MOUNT_PATH"),
        (at("data"), 422, "SANDBOX::INVALID_PARAMETER"),
        (sub("../etc"), 400, "VOLUME::INVALID_SUB_PATH"),
        (twice, 400, "VOLUME::DUPLICATE_NAME"),
        (json!(many), 400, "SANDBOX::INVALID_PARAMETER"),
        (
            bucket(json!({"bucket": "Data"})),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            bucket(json!({"endpoint": " "})),
            400,
            "VOLUME::INVALID_OSSFS_ENDPOINT",
        ),
        (
            bucket(json!({"options": ["-o"]})),
            400,
            "VOLUME::INVALID_OSSFS_OPTION",
        ),
        (
            bucket(json!({"options": ["use_cache=/etc"]})),
            400,
            "VOLUME::INVALID_OSSFS_OPTION",
        ),
        (
            bucket(json!({"accessKeyId": " "})),
            400,
            "VOLUME::INVALID_OSSFS_CREDENTIALS",
        ),
        (
            bucket(json!({"version": "3.0"})),
            422,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (claim("Data", &json!({})), 422, "SANDBOX::INVALID_PARAMETER"),
    ] {
        let text = volumes.to_string();
        let (seen, seen_code, message) = refused(&server, volumes).await;
        assert_eq!(
            (seen, seen_code.as_str()),
            (status, code),
            "{text}: {message}"
        );
        assert!(message.contains("volumes"), "{message}");
        assert!(!message.contains("hunter"), "{message}");
    }
    assert!(sim.sandboxes().is_empty());
    let id = made(&server, host("/srv/a")).await;
    let spec = sim.spec(&SandboxId::from(id.as_str())).unwrap();
    assert_eq!(spec.volumes[0].host.as_ref().unwrap().path, "/srv/a");
    server.stop().await;
}

#[tokio::test]
async fn without_an_allowed_directory_no_sandbox_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _sim) = server(&folder, "").await;
    for path in ["/", "/srv", "/tmp/a"] {
        let volumes = json!([{"name": "a", "mountPath": "/a", "host": {"path": path}}]);
        let (status, code, message) = refused(&server, volumes).await;
        assert_eq!(
            (status, code.as_str()),
            (400, "VOLUME::HOST_PATH_NOT_ALLOWED"),
            "{message}"
        );
        assert!(message.contains("storage.allowed_host_paths"), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_volume_goes_with_its_last_sandbox_if_it_was_made_for_that() {
    let folder = tempfile::tempdir().unwrap();
    let (server, sim) = server(&folder, "").await;
    sim.add_volume("theirs");
    let transient = json!({"deleteOnSandboxTermination": true});
    let first = made(&server, claim("shared", &transient)).await;
    let second = made(&server, claim("shared", &json!({}))).await;
    let third = made(&server, claim("theirs", &transient)).await;
    let fourth = made(&server, claim("kept", &json!({}))).await;
    assert_eq!(sim.volumes(), ["kept", "shared", "theirs"]);
    for id in [&first, &third, &fourth] {
        delete(&server, id).await;
    }
    assert_eq!(sim.volumes(), ["kept", "shared", "theirs"], "one is in use");
    delete(&server, &second).await;
    assert_eq!(sim.volumes(), ["kept", "theirs"]);
    let (status, code, message) =
        refused(&server, claim("none", &json!({"createIfNotExists": false}))).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "VOLUME::PVC_NOT_FOUND"),
        "{message}"
    );
    assert!(message.contains("volumes.0.pvc.claimName"), "{message}");
    let (_, answer) = create(&server, |body| {
        body["volumes"] = claim("none", &json!({"createIfNotExists": false}));
    })
    .await;
    let place = json!(["body", "volumes", 0, "pvc", "claimName"]);
    assert_eq!(answer["detail"][0]["loc"], place, "{answer}");
    sim.set_faults(Faults {
        start_fails: Some("no".to_owned()),
        ..Faults::default()
    });
    refused(&server, claim("unused", &transient)).await;
    assert_eq!(
        sim.volumes(),
        ["kept", "theirs"],
        "a failed create leaves none"
    );
    server.stop().await;
}

#[tokio::test]
async fn no_answer_has_the_key_of_a_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let (server, sim) = server(&folder, "").await;
    let volumes = json!([{"name": "a", "mountPath": "/a", "ossfs": {
        "bucket": "data", "endpoint": "oss.example", "options": ["allow_other"],
        "accessKeyId": "hunter1", "accessKeySecret": "hunter2",
    }}]);
    let id = made(&server, volumes).await;
    let spec = sim.spec(&SandboxId::from(id.as_str())).unwrap();
    let bucket = spec.volumes[0].ossfs.as_ref().unwrap();
    assert_eq!(
        (&*bucket.access_key_secret, &*bucket.endpoint),
        ("hunter2", "https://oss.example")
    );
    let kept = serde_json::to_string(&spec.origin.volumes).unwrap();
    assert!(kept.contains("data") && !kept.contains("hunter"), "{kept}");
    let request = server.request(Method::GET, &format!("/v1/sandboxes/{id}"));
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(!answer.contains("hunter"), "{answer}");
    let trail = server.request(Method::GET, "/v1/audit");
    let trail = trail.send().await.unwrap().text().await.unwrap();
    assert!(!trail.contains("hunter"), "{trail}");
    server.stop().await;
}

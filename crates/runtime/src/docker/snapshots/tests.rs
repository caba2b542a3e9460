use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use serde_json::{Value, json};

use super::*;
use crate::{
    CreateSpec, Phase, Runtime, Source,
    docker::{
        DockerConfig,
        fake_engine::{self, FakeEngine, HANG, HOLD},
    },
};

/// The container of sandbox `a`, in this state of the engine.
fn container(state: &Value) -> Value {
    json!({
        "Id": "c", "Image": "sha256:1", "Created": "2031-05-01T10:00:00Z",
        "State": state,
        "Config": {
            "Image": "debian:12",
            "Env": ["PATH=/bin", "EXECD_ACCESS_TOKEN=t"],
            "Labels": {labels::ID: "a", labels::SERVER: "us", labels::EXECD_TOKEN: "t"},
            "Entrypoint": ["/opt/opensandbox/.dist/execd"], "Cmd": ["sleep"],
        },
    })
}

/// An engine with sandbox `a` in a state, which answers to a commit.
async fn engine(
    state: Value,
    commit: impl Fn() -> (u16, String) + Send + Sync + 'static,
) -> FakeEngine {
    FakeEngine::start(move |request| {
        let path = request.split('?').next().unwrap();
        match path {
            "GET /containers/json" => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c", "Labels": labels}]).to_string())
            }
            "GET /containers/c/json" => (200, container(&state).to_string()),
            "GET /images/sha256:1/json" => {
                let config = json!({"Env": ["PATH=/bin"], "Cmd": ["bash"]});
                (200, json!({"Id": "sha256:1", "Config": config}).to_string())
            }
            "GET /images/opensandbox-snapshots:s/history" => {
                let layer = |size| {
                    json!({
                        "Id": "x", "Created": 1, "CreatedBy": "", "Tags": [], "Size": size,
                        "Comment": "",
                    })
                };
                (200, json!([layer(7), layer(100)]).to_string())
            }
            "POST /commit" => commit(),
            _ => (404, json!({"message": "nothing of that name"}).to_string()),
        }
    })
    .await
}

fn running() -> Value {
    json!({"Running": true, "StartedAt": "2031-05-01T10:00:01Z"})
}

fn made() -> (u16, String) {
    (201, json!({"Id": "sha256:2"}).to_string())
}

#[tokio::test]
async fn a_capture_is_a_commit_without_what_the_server_added() {
    let engine = engine(running(), made).await;
    let taken = engine.runtime().take(&"a".into(), "s").await.unwrap();
    let want = StoredSnapshot {
        image: "opensandbox-snapshots:s".to_owned(),
        size_bytes: Some(7),
    };
    assert_eq!(taken, want);
    let [request] = &engine.requests("POST /commit")[..] else {
        panic!("{:?}", engine.requests(""));
    };
    for parameter in [
        "container=c",
        "repo=opensandbox-snapshots",
        "tag=s",
        "pause=true",
        "comment=OpenSandbox+snapshot+s",
    ] {
        let spaced = parameter.replace('+', "%20");
        let has = request.contains(parameter) || request.contains(&spaced);
        assert!(has, "{parameter}: {request}");
    }
    let body = engine.bodies("POST /commit").remove(0);
    assert_eq!(body["Env"], json!(["PATH=/bin", "EXECD_ACCESS_TOKEN"]));
    assert_eq!(
        (&body["Entrypoint"], &body["Cmd"]),
        (&json!([]), &json!(["bash"]))
    );
    let labels = json!({
        labels::ID: "", labels::SERVER: "", labels::EXECD_TOKEN: "",
        labels::SNAPSHOT_SERVER: "us", labels::SNAPSHOT: "s", labels::SNAPSHOT_SOURCE: "a",
        labels::VENDOR: "OpenSandbox",
    });
    assert_eq!(body["Labels"], labels);
}

#[tokio::test]
async fn what_gvisor_keeps_to_itself_is_not_captured() {
    for (runtime, is_captured) in [("runsc", false), ("kata-runtime", true), ("runc", true)] {
        let engine = FakeEngine::start(move |request| match request.split('?').next().unwrap() {
            "GET /containers/c/json" => {
                let mut container = container(&running());
                container["HostConfig"] = json!({"Runtime": runtime});
                (200, container.to_string())
            }
            "GET /containers/json" => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c", "Labels": labels}]).to_string())
            }
            "GET /images/sha256:1/json" => (200, json!({"Id": "sha256:1"}).to_string()),
            "POST /commit" => made(),
            _ => (404, json!({"message": "nothing of that name"}).to_string()),
        })
        .await;
        let backend = engine.runtime();
        let (checked, taken) = (
            backend.check(&"a".into()).await,
            backend.take(&"a".into(), "s").await,
        );
        assert_eq!(checked.is_ok(), is_captured, "{runtime}: {checked:?}");
        assert_eq!(taken.is_ok(), is_captured, "{runtime}: {taken:?}");
        let commits = engine.requests("POST /commit").len();
        assert_eq!(commits, usize::from(is_captured), "{runtime}");
        if !is_captured {
            let text = taken.unwrap_err().to_string();
            assert!(
                text.contains("gVisor") && text.contains("sandbox a"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn what_does_not_run_is_not_captured() {
    for state in [
        json!({"Running": true, "Paused": true}),
        json!({"Running": true, "Restarting": true}),
        json!({"Running": false, "ExitCode": 1}),
    ] {
        let engine = engine(state.clone(), made).await;
        let refused = engine.runtime().take(&"a".into(), "s").await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("sandbox a does not run"), "{state}: {text}");
        assert_eq!(engine.requests("POST"), [""; 0]);
    }
    let engine = engine(running(), made).await;
    let missing = engine.runtime().take(&"b".into(), "s").await.unwrap_err();
    assert!(matches!(missing, RuntimeError::NotFound(_)), "{missing}");
}

#[tokio::test]
async fn a_capture_that_fails_has_its_reason() {
    let message = |status, text: &str| (status, json!({"message": text}).to_string());
    for (answer, want) in [
        (
            message(500, "no space left on device"),
            "snapshot s cannot be taken: no space left on device",
        ),
        (
            message(404, "No such container: c"),
            "sandbox a does not exist",
        ),
        (
            (HANG, String::new()),
            "snapshot s cannot be taken: the engine did not finish within 1 seconds",
        ),
    ] {
        let engine = engine(running(), move || answer.clone()).await;
        let runtime = engine.runtime_with(DockerConfig {
            api_timeout: Duration::from_secs(1),
            ..fake_engine::config()
        });
        let failed = runtime.take(&"a".into(), "s").await.unwrap_err();
        assert_eq!(failed.to_string(), want);
        assert!(!runtime.capturing.contains(&"a".into()), "{want}");
    }
}

#[tokio::test]
async fn the_sandbox_counts_as_running_while_the_engine_has_it_frozen() {
    let frozen = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&frozen);
    let engine = FakeEngine::start(move |request| {
        if request.starts_with("POST /commit") {
            seen.store(true, SeqCst);
            return (HOLD, json!({"Id": "sha256:2"}).to_string());
        }
        let path = request.split('?').next().unwrap();
        match path {
            "GET /containers/json" => {
                let labels = json!({
                    labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: "[\"sleep\"]",
                });
                let state = if seen.load(SeqCst) {
                    "paused"
                } else {
                    "running"
                };
                let listed = json!({"Id": "c", "Created": 1, "Labels": labels, "State": state});
                (200, json!([listed]).to_string())
            }
            "GET /containers/c/json" => {
                let mut state = running();
                state["Paused"] = json!(seen.load(SeqCst));
                (200, container(&state).to_string())
            }
            "GET /images/sha256:1/json" => (200, json!({"Config": {}}).to_string()),
            _ => (404, json!({"message": "none"}).to_string()),
        }
    })
    .await;
    let runtime = engine.runtime();
    let looking = async {
        while !frozen.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let listed = runtime.observe_all().await.unwrap();
        let inspected = runtime.observe("c").await.unwrap();
        (listed[0].status.phase, inspected.status.phase)
    };
    let id = SandboxId::from("a");
    let (taken, seen) = tokio::join!(runtime.take(&id, "s"), looking);
    // The engine has no history of it.
    assert_eq!(taken.unwrap().size_bytes, None);
    assert_eq!(seen, (Phase::Running, Phase::Running));
    let after = runtime.observe("c").await.unwrap();
    assert_eq!(after.status.phase, Phase::Paused, "only during the capture");
}

#[tokio::test]
async fn the_sandbox_counts_as_running_until_a_capture_that_timed_out_is_over() {
    let frozen = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&frozen);
    let engine = FakeEngine::start(move |request| {
        let path = request.split('?').next().unwrap();
        match path {
            "POST /commit" => {
                seen.store(true, SeqCst);
                (HANG, String::new())
            }
            "GET /containers/json" => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c", "Labels": labels}]).to_string())
            }
            "GET /containers/c/json" => {
                let mut state = running();
                state["Paused"] = json!(seen.load(SeqCst));
                (200, container(&state).to_string())
            }
            "GET /images/sha256:1/json" => (200, json!({"Config": {}}).to_string()),
            _ => (404, json!({"message": "none"}).to_string()),
        }
    })
    .await;
    let runtime = engine.runtime_with(DockerConfig {
        api_timeout: Duration::from_secs(1),
        ..fake_engine::config()
    });
    let id = SandboxId::from("a");
    let failed = runtime.take(&id, "s").await.unwrap_err();
    assert!(
        matches!(failed, RuntimeError::CaptureTimedOut { .. }),
        "{failed:?}"
    );
    let during = runtime.observe("c").await.unwrap();
    assert_eq!(during.status.phase, Phase::Running);
    let inspected = || engine.requests("GET /containers/c/json").len();
    let before = inspected();
    let thawing = async {
        while inspected() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(runtime.capturing.contains(&id), "it is still frozen");
        frozen.store(false, SeqCst);
    };
    tokio::join!(runtime.thawed(&id), thawing);
    assert!(!runtime.capturing.contains(&id));
}

/// An engine that answers to all requests about one image.
async fn image_engine(status: u16) -> FakeEngine {
    FakeEngine::start(move |request| match request {
        _ if status == 200 && request.starts_with("GET") && request.contains("/history") => {
            (500, json!({"message": "broken"}).to_string())
        }
        _ if status == 200 && request.starts_with("DELETE") => (200, "[]".to_owned()),
        _ if status == 200 => (200, json!({"Id": "sha256:2"}).to_string()),
        _ => (status, json!({"message": "the engine's words"}).to_string()),
    })
    .await
}

#[tokio::test]
async fn a_snapshot_is_found_and_removed_by_its_id() {
    let present = image_engine(200).await;
    let found = present.runtime().find("s").await.unwrap().unwrap();
    assert_eq!(found.image, "opensandbox-snapshots:s");
    assert_eq!(found.size_bytes, None, "an unknown size is no failure");
    Snapshots::remove(&present.runtime(), "s").await.unwrap();
    let removed = present.requests("DELETE");
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert!(
        removed[0].starts_with("DELETE /images/opensandbox-snapshots:s"),
        "{removed:?}"
    );
    assert!(!removed[0].contains("force=true"), "{removed:?}");

    let absent = image_engine(404).await;
    assert_eq!(absent.runtime().find("s").await.unwrap(), None);
    Snapshots::remove(&absent.runtime(), "s").await.unwrap();

    let used = image_engine(409).await;
    let refused = Snapshots::remove(&used.runtime(), "s").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "snapshot s is in use: the engine's words"
    );
    assert!(
        matches!(refused, RuntimeError::SnapshotInUse { .. }),
        "{refused:?}"
    );

    let broken = image_engine(500).await;
    let failed = Snapshots::remove(&broken.runtime(), "s").await.unwrap_err();
    assert!(matches!(failed, RuntimeError::Other { .. }), "{failed:?}");
    broken.runtime().find("s").await.unwrap_err();
}

#[tokio::test]
async fn snapshots_are_listed_and_nameless_leftovers_removed() {
    let image = |id: &str, tags: &[&str], snapshot: &str, created: i64| {
        json!({
            "Id": id, "ParentId": "", "RepoTags": tags, "RepoDigests": [], "Created": created,
            "Size": 1, "SharedSize": -1, "Containers": -1,
            "Labels": {labels::SNAPSHOT_SERVER: "us", labels::SNAPSHOT: snapshot},
        })
    };
    let now = crate::clock::now().as_second();
    let list = json!([
        image(
            "sha256:1",
            &["opensandbox-snapshots:s1", "by-hand:1"],
            "s1",
            now - 9000
        ),
        image("sha256:2", &["derived:1"], "s1", now - 9000),
        image("sha256:3", &[], "s3", now - 9000),
        image("sha256:4", &["<none>:<none>"], "s1", now - 9000),
        image("sha256:5", &[], "s5", now),
        image("sha256:6", &[], "s6", now - 9000),
        image("sha256:7", &["opensandbox-snapshots:s7"], "s7", now - 9000),
    ]);
    let engine = FakeEngine::start(move |request| match request {
        _ if request.starts_with("GET /images/json") => (200, list.to_string()),
        // Made by a capture that was cut off, and made by hand from a snapshot.
        "GET /images/sha256:3/json" => (
            200,
            json!({"Comment": "OpenSandbox snapshot s3"}).to_string(),
        ),
        // One that cannot be removed does not keep the others from being listed.
        "GET /images/sha256:6/json" => (500, json!({"message": "broken"}).to_string()),
        "GET /images/sha256:4/json" => (200, json!({"Comment": ""}).to_string()),
        _ if request.starts_with("DELETE") => (200, "[]".to_owned()),
        _ => (404, json!({"message": "none"}).to_string()),
    })
    .await;
    let listed = engine.runtime().list().await.unwrap();
    let [(id, age), (last, _)] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!((id.as_str(), last.as_str()), ("s1", "s7"));
    assert!(*age >= Duration::from_secs(8000), "{age:?}");
    let request = engine.requests("GET /images/json").remove(0);
    assert!(request.contains("snapshot-server%3Dus"), "{request}");
    let removed = engine.requests("DELETE");
    let [removed] = &removed[..] else {
        panic!("{removed:?}");
    };
    assert!(removed.starts_with("DELETE /images/sha256:3"), "{removed}");
}

fn from_snapshot() -> CreateSpec {
    let mut spec = labels::tests::spec();
    spec.origin.source = Source::Snapshot("s".to_owned());
    spec.origin.platform = None;
    spec
}

#[tokio::test]
async fn a_snapshot_is_started_from_its_image_and_never_pulled() {
    let engine = FakeEngine::start(|request| {
        if request.starts_with("POST /containers/create") && !request.contains("opensandbox-helper")
        {
            let warning = "The requested image's platform does not match the host's";
            return (201, json!({"Id": "c", "Warnings": [warning]}).to_string());
        }
        if request.starts_with("GET /containers/c/json") {
            return (200, container(&running()).to_string());
        }
        FakeEngine::with_volumes(request)
    })
    .await;
    let made = engine.runtime().create(from_snapshot(), &|_| {}).await;
    made.unwrap();
    let bodies = engine.bodies("POST /containers/create");
    let images: Vec<_> = bodies.iter().map(|body| &body["Image"]).collect();
    assert!(
        images
            .iter()
            .all(|image| **image == "opensandbox-snapshots:s"),
        "{images:?}"
    );
    let labels = &bodies.last().unwrap()["Labels"];
    assert_eq!(labels[labels::SNAPSHOT_ID], "s");
    assert_eq!(labels[labels::SNAPSHOT], "", "it is no image");
    assert_eq!(engine.requests("POST /images/create"), [""; 0]);
}

#[tokio::test]
async fn a_snapshot_that_is_gone_or_for_another_platform_is_named() {
    for (reason, want) in [
        (
            "No such image: opensandbox-snapshots:s",
            "snapshot s is not on the host any more",
        ),
        (
            "image with reference opensandbox-snapshots:s was found but does not match the specified \
             platform: wanted linux/arm64",
            "platform: snapshot s is for another one",
        ),
    ] {
        let engine = FakeEngine::start(move |request| {
            let is_snapshot = request.starts_with("GET /images/opensandbox-snapshots:s");
            if is_snapshot || request.starts_with("POST /containers/create") {
                return (404, json!({"message": reason}).to_string());
            }
            if request.starts_with("GET /containers/json") {
                return (200, "[]".to_owned());
            }
            FakeEngine::with_volumes(request)
        })
        .await;
        let failed = engine.runtime().create(from_snapshot(), &|_| {}).await;
        let text = failed.unwrap_err().to_string();
        assert!(text.contains(want), "{text}");
        assert_eq!(engine.requests("POST /images/create"), [""; 0]);
    }
}

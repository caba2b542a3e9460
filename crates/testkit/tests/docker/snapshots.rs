//! Snapshots as images of the engine.

use osb_protocol::{WireTime, lifecycle::SnapshotState};
use osb_store::SnapshotRow;
use osb_testkit::{TestServer, store_in, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::stage::{IMAGE, Stage, answer, ask, body, create, delete, docker, get, ready};

/// Name of a file that a shell could misread.
const FILE: &str = "/root/a \"b\" ä";
const SECRET: &str = "s3cret-of-the-request";
const TEAM: &str = "team-of-the-request";

async fn snapshot(server: &TestServer, id: &str) -> (u16, Value) {
    let path = format!("/v1/snapshots/{id}");
    let (status, body) = answer(server.request(Method::GET, &path)).await;
    (status.as_u16(), body)
}

async fn remove(server: &TestServer, id: &str) -> (u16, Value) {
    let path = format!("/v1/snapshots/{id}");
    let (status, body) = answer(server.request(Method::DELETE, &path)).await;
    (status.as_u16(), body)
}

/// Takes a snapshot and returns it when it is ready.
async fn taken(server: &TestServer, sandbox: &str) -> Value {
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    let (status, body) = answer(server.request(Method::POST, &path)).await;
    assert_eq!(status, 202, "{body}");
    let id = body["id"].as_str().unwrap().to_owned();
    let look = async || snapshot(server, &id).await.1;
    let is_over = |seen: &Value| seen["status"]["state"] != "Creating";
    let seen = wait_until("the capture", look, is_over).await;
    assert_eq!(seen["status"]["state"], "Ready", "{seen}");
    seen
}

fn restore(id: &Value) -> Value {
    json!({"snapshotId": id, "timeout": 600, "resourceLimits": {"memory": "128Mi"}})
}

async fn run(server: &TestServer, id: &str, command: &str) -> String {
    let body = json!({"command": command});
    let (status, text) = ask(server, id, Method::POST, "/command", Some(body)).await;
    assert_eq!(status, 200, "{text}");
    text
}

fn inspect(kind: &str, name: &str) -> Value {
    let text = docker(&[kind, "inspect", name]);
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    list[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_the_files_and_nothing_else_of_its_sandbox() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut request = body();
    request["metadata"] = json!({"team": TEAM});
    request["env"] = json!({"KEY": SECRET, "PATH": "/nowhere:/usr/bin:/bin"});
    let source = create(&server, &request).await;
    let write = format!("printf 'kept' > '{FILE}'");
    run(&server, &source, &write).await;
    let container = inspect("container", &stage.container_of(&source));
    let token = &container["Config"]["Labels"]["opensandbox.io/execd-access-token"];
    let token = token.as_str().unwrap().to_owned();
    assert!(!token.is_empty());

    let seen = taken(&server, &source).await;
    assert_eq!(seen["sandboxId"], json!(source));
    assert!(
        seen["sizeBytes"].as_u64().unwrap() < 50_000_000,
        "only its own: {seen}"
    );
    let id = &seen["id"];
    let name = format!("opensandbox-snapshots:{}", id.as_str().unwrap());
    assert_eq!(stage.snapshot_images(), [name.as_str()]);
    let (image, base) = (inspect("image", &name), inspect("image", IMAGE));
    let text = image.to_string();
    for stale in [token.as_str(), SECRET, "/opt/opensandbox/.dist", TEAM] {
        assert!(!text.contains(stale), "{stale} is in the image: {text}");
    }
    for member in ["Cmd", "User", "WorkingDir"] {
        let (seen, want) = (&image["Config"][member], &base["Config"][member]);
        let is_nothing = |value: &Value| value.is_null() || value == "" || value == &json!([]);
        let same = seen == want || is_nothing(seen) && is_nothing(want);
        assert!(same, "{member}: {seen}, not {want}");
    }
    let env = |image: &Value| -> Vec<String> {
        let env = image["Config"]["Env"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let env = env.iter().map(|entry| entry.as_str().unwrap().to_owned());
        env.filter(|entry| entry.contains('=')).collect()
    };
    assert_eq!(env(&image), env(&base));
    let labels = image["Config"]["Labels"].as_object().unwrap();
    let of_base = &base["Config"]["Labels"];
    for (name, value) in labels {
        let mark = match name.as_str() {
            "opensandbox.io/snapshot" => id.clone(),
            "opensandbox.io/snapshot-server" => json!(stage.instance),
            "opensandbox.io/snapshot-source" => json!(source),
            "org.opencontainers.image.vendor" => json!("OpenSandbox"),
            name => of_base.get(name).cloned().unwrap_or_else(|| json!("")),
        };
        assert_eq!(*value, mark, "{name}");
    }

    // The sandbox runs on, and its snapshot outlives it.
    assert_eq!(get(&server, &source).await.1["status"]["state"], "Running");
    run(&server, &source, &format!("printf 'changed' > '{FILE}'")).await;
    delete(&server, &source).await;
    let copy = create(&server, &restore(id)).await;
    let shown = get(&server, &copy).await.1;
    assert_eq!(
        (&shown["snapshotId"], shown.get("image")),
        (id, None),
        "{shown}"
    );
    assert_eq!(shown.get("metadata"), None, "{shown}");
    let content = run(&server, &copy, &format!("cat '{FILE}'")).await;
    assert!(
        content.contains("kept") && !content.contains("changed"),
        "{content}"
    );
    let variables = run(&server, &copy, "echo \"[${KEY-unset}] [$PATH]\"").await;
    assert!(variables.contains("[unset]"), "{variables}");
    assert!(!variables.contains("/nowhere"), "{variables}");
    let made = inspect("container", &stage.container_of(&copy));
    let labels = &made["Config"]["Labels"];
    assert_eq!(labels["opensandbox.io/snapshot-id"], *id);
    assert_eq!(labels["opensandbox.io/snapshot"], "");
    assert_ne!(labels["opensandbox.io/execd-access-token"], json!(token));
    assert_eq!(made["HostConfig"]["Memory"], 128 << 20);

    // A snapshot of the copy.
    let child = taken(&server, &copy).await;
    assert_eq!(child["sourceSnapshotId"], *id);
    delete(&server, &copy).await;
    for id in [id, &child["id"]] {
        assert_eq!(remove(&server, id.as_str().unwrap()).await.0, 204);
    }
    server.stop().await;
    assert_eq!(stage.snapshot_images(), [""; 0]);
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_in_use_is_removed_after_its_sandbox() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let source = create(&server, &body()).await;
    let seen = taken(&server, &source).await;
    let id = seen["id"].as_str().unwrap();
    let copy = create(&server, &restore(&seen["id"])).await;
    let (status, refused) = remove(&server, id).await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("SNAPSHOT::DELETE_CONFLICT"))
    );
    assert_eq!(snapshot(&server, id).await.1["status"]["state"], "Deleting");
    // The sandbox runs on, also when it is paused and resumed.
    for verb in ["pause", "resume"] {
        let path = format!("/v1/sandboxes/{copy}/{verb}");
        assert_eq!(answer(server.request(Method::POST, &path)).await.0, 202);
    }
    delete(&server, &copy).await;
    server.service.reconcile().await;
    assert_eq!(snapshot(&server, id).await.0, 404);
    assert_eq!(stage.snapshot_images(), [""; 0]);

    // One whose image an operator has removed cannot be restored, and can be deleted.
    let seen = taken(&server, &source).await;
    let id = seen["id"].as_str().unwrap();
    docker(&["image", "rm", &format!("opensandbox-snapshots:{id}")]);
    let request = server.request(Method::POST, "/v1/sandboxes");
    let (status, lost) = answer(request.json(&restore(&seen["id"]))).await;
    assert_eq!(
        (status.as_u16(), &lost["code"]),
        (409, &json!("SNAPSHOT::INVALID_RESTORE_CONFIG"))
    );
    assert!(lost["message"].as_str().unwrap().contains(id), "{lost}");
    assert_eq!(remove(&server, id).await.0, 204);
    for uri in ["opensandbox-snapshots:any", "sha256:3f2a"] {
        let mut by_name = body();
        by_name["image"]["uri"] = json!(uri);
        let request = server.request(Method::POST, "/v1/sandboxes").json(&by_name);
        let (status, refused) = answer(request).await;
        assert_eq!(status, 400, "{refused}");
    }
    // The client does not wait for the end of the sandbox.
    let seen = taken(&server, &source).await;
    let copy = create(&server, &restore(&seen["id"])).await;
    let path = format!("/v1/sandboxes/{copy}");
    let (status, _) = answer(server.request(Method::DELETE, &path)).await;
    assert_eq!(status, 204);
    let (status, body) = remove(&server, seen["id"].as_str().unwrap()).await;
    assert_eq!(status, 204, "{body}");
    delete(&server, &source).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_that_was_complete_before_a_crash_is_ready_after_it() {
    let mut stage = Stage::set();
    let complete = uuid::Uuid::new_v4().to_string();
    let row = |id: &str| SnapshotRow {
        id: id.to_owned(),
        sandbox_id: "gone".into(),
        name: None,
        tenant: None,
        owner: None,
        state: SnapshotState::Creating,
        reason: "snapshot_accepted".to_owned(),
        message: String::new(),
        image: None,
        size_bytes: None,
        parent_id: None,
        created_at: WireTime::new(jiff::Timestamp::now()),
        changed_at: WireTime::new(jiff::Timestamp::now()),
    };
    let location = store_in(stage.folder()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let rows = [row(&complete), row("cut-off")];
    store.add_snapshots(&rows).await.unwrap();
    store.close().await;
    drop(store);
    // As the engine has stored it.
    docker(&["tag", IMAGE, &format!("opensandbox-snapshots:{complete}")]);
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    for (id, state, reason) in [
        (complete.as_str(), "Ready", "snapshot_recovery_ready"),
        ("cut-off", "Failed", "snapshot_recovery_missing_image"),
    ] {
        let look = async || snapshot(&server, id).await.1["status"].clone();
        let seen = wait_until("an end", look, |seen| seen["state"] != "Creating").await;
        assert_eq!(
            (&seen["state"], &seen["reason"]),
            (&json!(state), &json!(reason))
        );
    }
    let copy = create(&server, &restore(&json!(complete))).await;
    delete(&server, &copy).await;
    for id in [complete.as_str(), "cut-off"] {
        assert_eq!(remove(&server, id).await.0, 204);
    }
    assert_eq!(
        inspect("image", &format!("opensandbox-snapshots:{complete}")),
        Value::Null
    );
    server.stop().await;
}

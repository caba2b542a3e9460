//! Snapshots over a simulated runtime, whose captures can be stopped and broken.

mod deletion;
mod recovery;
mod tenants;

use std::sync::Arc;

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_server::sandbox::RuntimeHealth;
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

fn sim() -> Arc<SimRuntime> {
    Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }))
}

async fn up(server: &TestServer) {
    let mut health = server.service.registry().watch_health();
    let up = |health: &RuntimeHealth| *health == RuntimeHealth::Up;
    health.wait_for(up).await.unwrap();
}

/// Makes the runtime unavailable, and waits until the server knows it.
async fn unplug(server: &TestServer, sim: &SimRuntime) {
    sim.go_down("unplugged").await;
    let mut health = server.service.registry().watch_health();
    let down = |health: &RuntimeHealth| *health != RuntimeHealth::Up;
    health.wait_for(down).await.unwrap();
}

/// A server, its runtime, and the folder of its store.
async fn start() -> (TestServer, Arc<SimRuntime>, tempfile::TempDir) {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
    let server = server.unwrap();
    up(&server).await;
    (server, sim, folder)
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    let body = match text.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    (status.as_u16(), body)
}

async fn get(server: &TestServer, path: &str) -> (u16, Value) {
    answer(server.request(Method::GET, path)).await
}

async fn delete(server: &TestServer, path: &str) -> (u16, Value) {
    answer(server.request(Method::DELETE, path)).await
}

async fn create(server: &TestServer, body: &Value) -> (u16, Value) {
    answer(server.request(Method::POST, "/v1/sandboxes").json(body)).await
}

async fn created(server: &TestServer) -> SandboxId {
    let (status, body) = create(server, &TestServer::good_create()).await;
    assert_eq!(status, 202, "{body}");
    SandboxId::from(body["id"].as_str().unwrap())
}

fn from_snapshot(id: &str) -> Value {
    json!({"snapshotId": id, "resourceLimits": {}, "timeout": 600})
}

async fn restored(server: &TestServer, id: &str) -> SandboxId {
    let (status, body) = create(server, &from_snapshot(id)).await;
    assert_eq!(status, 202, "{body}");
    SandboxId::from(body["id"].as_str().unwrap())
}

async fn take(server: &TestServer, sandbox: &SandboxId, body: &Value) -> (u16, Value) {
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    answer(server.request(Method::POST, &path).json(body)).await
}

/// Has a snapshot accepted, and returns its id.
async fn accepted(server: &TestServer, sandbox: &SandboxId) -> String {
    let (status, body) = take(server, sandbox, &json!({})).await;
    assert_eq!(status, 202, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

/// Waits for a state, and returns the snapshot.
async fn until(server: &TestServer, id: &str, state: &str) -> Value {
    let path = format!("/v1/snapshots/{id}");
    let look = async || get(server, &path).await.1;
    wait_until(state, look, |seen| seen["status"]["state"] == state).await
}

async fn taken(server: &TestServer, sandbox: &SandboxId) -> String {
    let id = accepted(server, sandbox).await;
    until(server, &id, "Ready").await;
    id
}

#[track_caller]
fn refused(seen: &(u16, Value), status: u16, code: &str) {
    assert_eq!(
        (seen.0, &seen.1["code"]),
        (status, &json!(code)),
        "{seen:?}"
    );
}

fn held() -> (Faults, Arc<Notify>) {
    let gate = Arc::new(Notify::new());
    let faults = Faults {
        capture_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    };
    (faults, gate)
}

/// Lets all captures go on: those that wait, and those that begin.
fn release(sim: &SimRuntime, gate: &Notify) {
    sim.set_faults(Faults::default());
    gate.notify_waiters();
}

#[tokio::test]
async fn a_snapshot_is_accepted_and_becomes_ready_under_both_prefixes() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    for prefix in ["", "/v1"] {
        let path = format!("{prefix}/sandboxes/{sandbox}/snapshots");
        let post = || server.request(Method::POST, &path);
        // Some SDKs send no body for a snapshot without a name.
        let bodies = [
            (post(), None),
            (post().json(&json!({})), None),
            (post().json(&Value::Null), None),
            (post().json(&json!({"name": null, "more": 1})), None),
            (post().json(&json!({"name": "before"})), Some("before")),
        ];
        for (request, name) in bodies {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 202);
            let location = response.headers()["location"].to_str().unwrap().to_owned();
            let body: Value = response.json().await.unwrap();
            let id = body["id"].as_str().unwrap();
            assert_eq!(location, format!("/v1/snapshots/{id}"));
            assert_eq!(uuid::Uuid::parse_str(id).unwrap().get_version_num(), 4);
            let at = &body["createdAt"];
            let mut want = json!({
                "id": id, "sandboxId": sandbox, "createdAt": at,
                "status": {
                    "state": "Creating", "reason": "snapshot_accepted",
                    "message": "Snapshot creation accepted.", "lastTransitionAt": at,
                },
            });
            if let Some(name) = name {
                want["name"] = json!(name);
            }
            assert_eq!(body, want);
            let ready = until(&server, id, "Ready").await;
            let time = |value: &Value| WireTime::parse(value.as_str().unwrap()).unwrap();
            let changed = &ready["status"]["lastTransitionAt"];
            assert!(time(changed) >= time(at), "{ready}");
            want["status"] = json!({
                "state": "Ready", "reason": "snapshot_runtime_ready",
                "message": "Snapshot is ready.", "lastTransitionAt": changed,
            });
            want["sizeBytes"] = json!(1_000);
            assert_eq!(ready, want);
            let same = get(&server, &format!("{prefix}/snapshots/{id}")).await;
            assert_eq!(same, (200, want));
            let path = format!("{prefix}/snapshots/{id}");
            assert_eq!(delete(&server, &path).await, (204, Value::Null));
            refused(&get(&server, &path).await, 404, "SNAPSHOT::NOT_FOUND");
            refused(&delete(&server, &path).await, 404, "SNAPSHOT::NOT_FOUND");
        }
    }
    assert_eq!(sim.stored_snapshots(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_name_is_a_text_of_at_least_one_character() {
    let (server, _sim, _folder) = start().await;
    let sandbox = created(&server).await;
    for (body, rule) in [
        (json!({"name": ""}), "name: must have at least 1 character"),
        (json!({"name": 5}), "name: must be a string"),
        (
            json!({"name": "x".repeat(1025)}),
            "name: must have at most 1024 characters",
        ),
        (json!([]), "must be an object"),
        (json!("before"), "must be an object"),
    ] {
        let (status, answer) = take(&server, &sandbox, &body).await;
        assert_eq!(
            (status, &answer["message"]),
            (422, &json!(rule)),
            "{answer}"
        );
    }
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    let torn = server.request(Method::POST, &path);
    let torn = torn.header("content-type", "application/json").body("{");
    assert_eq!(answer(torn).await.0, 422);
    let long = json!({"name": "ü".repeat(1024)});
    assert_eq!(take(&server, &sandbox, &long).await.0, 202);
    let all = get(&server, "/v1/snapshots").await.1;
    assert_eq!(all["pagination"]["totalItems"], 1, "{all}");
    server.stop().await;
}

#[tokio::test]
async fn only_a_sandbox_that_runs_can_be_captured() {
    let (server, sim, _folder) = start().await;
    let unknown = take(&server, &"missing".into(), &json!({})).await;
    refused(&unknown, 404, "DOCKER::SANDBOX_NOT_FOUND");
    let (paused, ended) = (created(&server).await, created(&server).await);
    server.service.pause(&paused).await.unwrap();
    sim.exit(&ended, 0).await;
    let state = async || get(&server, &format!("/v1/sandboxes/{ended}")).await.1;
    let is_over = |seen: &Value| seen["status"]["state"] == "Terminated";
    wait_until("the end", state, is_over).await;
    for (sandbox, state) in [(&paused, "Paused"), (&ended, "Terminated")] {
        let seen = take(&server, sandbox, &json!({})).await;
        refused(&seen, 409, "SNAPSHOT::INVALID_SOURCE_STATE");
        let message = seen.1["message"].as_str().unwrap();
        assert!(message.contains(state), "{message}");
    }
    let all = get(&server, "/v1/snapshots").await.1;
    assert_eq!(all["items"], json!([]), "a refused one leaves nothing");
    assert_eq!(all["pagination"]["totalPages"], 0);
    unplug(&server, &sim).await;
    let away = take(&server, &paused, &json!({})).await;
    assert_eq!(away.0, 503, "{away:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_failed_capture_has_its_reason_and_can_be_deleted() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    for (faults, reason, message) in [
        (
            Faults {
                capture_fails: Some("no space left on device".to_owned()),
                ..Faults::default()
            },
            "snapshot_runtime_failed",
            "no space left on device",
        ),
        (
            Faults {
                capture_fails: Some("the operation timed out".to_owned()),
                ..Faults::default()
            },
            "snapshot_runtime_timeout",
            "the operation timed out",
        ),
        (
            Faults {
                capture_times_out: true,
                ..Faults::default()
            },
            "snapshot_runtime_timeout",
            "did not finish within 180 seconds",
        ),
    ] {
        sim.set_faults(faults);
        let id = accepted(&server, &sandbox).await;
        let failed = until(&server, &id, "Failed").await;
        assert_eq!(failed["status"]["reason"], reason, "{failed}");
        let text = failed["status"]["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
        let restore = create(&server, &from_snapshot(&id)).await;
        refused(&restore, 409, "SNAPSHOT::NOT_READY");
        let path = format!("/v1/snapshots/{id}");
        assert_eq!(delete(&server, &path).await.0, 204);
    }
    server.stop().await;
}

#[tokio::test]
async fn while_it_is_taken_it_can_be_neither_used_nor_deleted() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &sandbox).await;
    let path = format!("/v1/snapshots/{id}");
    refused(
        &delete(&server, &path).await,
        409,
        "SNAPSHOT::INVALID_STATE",
    );
    let early = create(&server, &from_snapshot(&id)).await;
    refused(&early, 409, "SNAPSHOT::NOT_READY");
    let message = early.1["message"].as_str().unwrap();
    assert!(message.starts_with("snapshotId: "), "{message}");
    // The reconciler leaves it alone.
    server.service.reconcile().await;
    assert_eq!(get(&server, &path).await.1["status"]["state"], "Creating");
    release(&sim, &gate);
    until(&server, &id, "Ready").await;
    restored(&server, &id).await;
    server.stop().await;
}

#[tokio::test]
async fn two_are_taken_at_once_and_the_others_wait() {
    let (server, sim, _folder) = start().await;
    let sandboxes = [
        created(&server).await,
        created(&server).await,
        created(&server).await,
    ];
    let (faults, gate) = held();
    sim.set_faults(faults);
    let mut ids = Vec::new();
    for sandbox in sandboxes.iter().chain(&sandboxes) {
        ids.push(accepted(&server, sandbox).await);
    }
    let captures = async || sim.captures();
    wait_until("two captures", captures, |seen| *seen == (2, 2)).await;
    release(&sim, &gate);
    for id in &ids {
        until(&server, id, "Ready").await;
    }
    assert_eq!(sim.captures(), (0, 2), "never more than two");
    server.stop().await;
}

#[tokio::test]
async fn those_of_one_sandbox_do_not_keep_others_from_being_taken() {
    let (server, sim, _folder) = start().await;
    let (busy, other) = (created(&server).await, created(&server).await);
    let (faults, gate) = held();
    sim.set_faults(faults);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(accepted(&server, &busy).await);
    }
    let more = take(&server, &busy, &json!({})).await;
    refused(&more, 409, "SNAPSHOT::RUNTIME_CREATE_CONFLICT");
    let id = accepted(&server, &other).await;
    let captures = async || sim.captures().0;
    wait_until("two captures", captures, |seen| *seen == 2).await;
    // Those two go on, and no others.
    gate.notify_waiters();
    until(&server, &id, "Ready").await;
    until(&server, &ids[0], "Ready").await;
    let captures = async || sim.captures().0;
    wait_until("the next one", captures, |seen| *seen == 1).await;
    release(&sim, &gate);
    for id in &ids {
        until(&server, id, "Ready").await;
    }
    let all = get(&server, "/v1/snapshots").await.1;
    assert_eq!(all["pagination"]["totalItems"], 5, "none was refused late");
    // And there is room again.
    taken(&server, &busy).await;
    server.stop().await;
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let (server, _sim, _folder) = start().await;
    let (one, two) = (created(&server).await, created(&server).await);
    let mut ids = Vec::new();
    for (sandbox, name) in [(&one, "a"), (&two, "b"), (&one, "b"), (&two, "B")] {
        let (_, body) = take(&server, sandbox, &json!({"name": name})).await;
        let id = body["id"].as_str().unwrap().to_owned();
        until(&server, &id, "Ready").await;
        ids.push(id);
    }
    let list = async |query: &str| {
        let (status, body) = get(&server, &format!("/v1/snapshots?{query}")).await;
        assert_eq!(status, 200, "{query}: {body}");
        let items = body["items"].as_array().unwrap().iter();
        let number = |item: &Value| ids.iter().position(|id| item["id"] == id.as_str());
        let found: Vec<_> = items.map(|item| number(item).unwrap()).collect();
        (found, body["pagination"].clone())
    };
    for (query, found) in [
        ("", vec![3, 2, 1, 0]),
        ("name=b", vec![2, 1]),
        ("name=", vec![3, 2, 1, 0]),
        ("name=c", vec![]),
        (&*format!("sandboxId={one}"), vec![2, 0]),
        (&*format!("sandboxId={one}&name=b&state=Ready"), vec![2]),
        ("state=Failed&state=Ready", vec![3, 2, 1, 0]),
        ("state=ready", vec![]),
        ("state=Unheard", vec![]),
        ("page=2&pageSize=3", vec![0]),
        ("page=9&pageSize=3", vec![]),
    ] {
        assert_eq!(list(query).await.0, found, "{query}");
    }
    let page = list("page=1&pageSize=3").await.1;
    let want = json!({
        "page": 1, "pageSize": 3, "totalItems": 4, "totalPages": 2, "hasNextPage": true,
    });
    assert_eq!(page, want);
    for query in ["page=0", "pageSize=201", "page=x"] {
        let (status, body) = get(&server, &format!("/v1/snapshots?{query}")).await;
        assert_eq!(status, 422, "{body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn lineage_leads_from_snapshot_to_snapshot_and_outlives_the_sandboxes() {
    let (server, sim, _folder) = start().await;
    let first = created(&server).await;
    let parent = taken(&server, &first).await;
    let second = restored(&server, &parent).await;
    let child = taken(&server, &second).await;
    for sandbox in [&first, &second] {
        server.service.delete(sandbox, true).await.unwrap();
    }
    let shown = async |id: &str| get(&server, &format!("/v1/snapshots/{id}")).await.1;
    let (parent_shown, child_shown) = (shown(&parent).await, shown(&child).await);
    assert_eq!(parent_shown["sandboxId"], json!(first));
    assert_eq!(parent_shown.get("sourceSnapshotId"), None, "{parent_shown}");
    assert_eq!(child_shown["sandboxId"], json!(second));
    assert_eq!(child_shown["sourceSnapshotId"], json!(parent));
    assert_eq!(sim.sandboxes(), []);
    restored(&server, &child).await;
    server.stop().await;
}

#[tokio::test]
async fn a_restored_sandbox_is_new_and_shows_its_snapshot() {
    let (server, sim, _folder) = start().await;
    let mut body = TestServer::good_create();
    body["metadata"] = json!({"team": "core"});
    let (_, original) = create(&server, &body).await;
    let original = SandboxId::from(original["id"].as_str().unwrap());
    let id = taken(&server, &original).await;
    let copy = restored(&server, &id).await;
    let (_, shown) = get(&server, &format!("/v1/sandboxes/{copy}")).await;
    assert_eq!(shown["snapshotId"], json!(id));
    assert_eq!(shown.get("image"), None, "{shown}");
    assert_eq!(shown.get("metadata"), None, "{shown}");
    assert_eq!(shown["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    let mut own = from_snapshot(&id);
    own["entrypoint"] = json!(["sleep", "9"]);
    let (_, own) = create(&server, &own).await;
    assert_eq!(own["entrypoint"], json!(["sleep", "9"]));
    // Each has a token of its own.
    let token = |id: &SandboxId| {
        use secrecy::ExposeSecret;
        let token = sim.spec(id).unwrap().origin.token.unwrap();
        token.expose_secret().to_owned()
    };
    assert_ne!(token(&original), token(&copy));
    server.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_restored_is_named() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    let id = taken(&server, &sandbox).await;
    let unknown = create(&server, &from_snapshot("unknown")).await;
    refused(&unknown, 404, "SNAPSHOT::NOT_FOUND");
    assert_eq!(
        unknown.1["message"],
        "snapshotId: snapshot unknown not found"
    );
    // With a key as well, which stays free.
    for _ in 0..2 {
        let request = server.request(Method::POST, "/v1/sandboxes");
        let request = request.header("Idempotency-Key", "once");
        let keyed = answer(request.json(&from_snapshot("unknown"))).await;
        refused(&keyed, 404, "SNAPSHOT::NOT_FOUND");
    }
    sim.lose_snapshot(&id);
    let lost = create(&server, &from_snapshot(&id)).await;
    refused(&lost, 409, "SNAPSHOT::INVALID_RESTORE_CONFIG");
    let message = lost.1["message"].as_str().unwrap();
    assert!(message.contains(&id), "{message}");
    assert_eq!(sim.sandboxes(), [sandbox], "nothing is left of it");
    server.stop().await;
}

#[tokio::test]
async fn totals_are_among_the_metrics() {
    let (server, sim, _folder) = start().await;
    let sandbox = created(&server).await;
    for _ in 0..2 {
        taken(&server, &sandbox).await;
    }
    sim.set_faults(Faults {
        capture_fails: Some("no".to_owned()),
        ..Faults::default()
    });
    let failed = accepted(&server, &sandbox).await;
    until(&server, &failed, "Failed").await;
    let page = server
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    for line in [
        "opensandbox_snapshots{state=\"Ready\"} 2",
        "opensandbox_snapshots{state=\"Failed\"} 1",
        "opensandbox_snapshot_bytes 2000",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}: {page}");
    }
    server.stop().await;
    let (plain, _) = TestServer::sim().await.unwrap();
    let page = plain.request(Method::GET, "/metrics").send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(!page.contains("opensandbox_snapshot"), "{page}");
    plain.stop().await;
}

//! Templates over a simulated runtime, whose builds can be stopped and broken.

mod builds;
mod recovery;
mod tenants;

use std::sync::Arc;

use osb_protocol::SandboxId;
use osb_runtime::{
    Recipe,
    sim::{Faults, Options, SimRuntime},
};
use osb_server::sandbox::RuntimeHealth;
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Lets clients have images built.
const BUILDS: &str = "[templates]\nallow_builds = true\nmax_context_bytes = 1024";

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

/// A server with further lines of configuration, its runtime, and the folder of its store.
async fn start(more: &str) -> (TestServer, Arc<SimRuntime>, tempfile::TempDir) {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more).await;
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

async fn delete(server: &TestServer, id: &str) -> (u16, Value) {
    let path = format!("/v1/templates/{id}");
    answer(server.request(Method::DELETE, &path)).await
}

async fn add(server: &TestServer, body: &Value) -> (u16, Value) {
    answer(server.request(Method::POST, "/v1/templates").json(body)).await
}

fn image() -> Value {
    json!({"image": "python:3.12", "publish": "s3://bkt/publish"})
}

/// Has a template accepted, and returns its id.
async fn accepted(server: &TestServer, body: &Value) -> String {
    let (status, body) = add(server, body).await;
    assert_eq!(status, 201, "{body}");
    body["templateId"].as_str().unwrap().to_owned()
}

/// Waits for a phase, and returns the template.
async fn until(server: &TestServer, id: &str, phase: &str) -> Value {
    let path = format!("/v1/templates/{id}");
    let look = async || get(server, &path).await.1;
    wait_until(phase, look, |seen| seen["status"]["phase"] == phase).await
}

/// A template that is made.
async fn made(server: &TestServer, body: &Value) -> String {
    let id = accepted(server, body).await;
    until(server, &id, "Succeeded").await;
    id
}

fn from_template(id: &str) -> Value {
    json!({"templateId": id, "timeout": 600})
}

async fn create(server: &TestServer, body: &Value) -> (u16, Value) {
    answer(server.request(Method::POST, "/v1/sandboxes").json(body)).await
}

async fn created(server: &TestServer, id: &str) -> SandboxId {
    let (status, body) = create(server, &from_template(id)).await;
    assert_eq!(status, 202, "{body}");
    SandboxId::from(body["id"].as_str().unwrap())
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
        template_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    };
    (faults, gate)
}

/// Waits until as many templates are held.
async fn reached(sim: &SimRuntime, count: usize) {
    let held = async || sim.held_templates();
    wait_until("what is held", held, |seen| *seen == count).await;
}

/// Lets all that is being made go on when so many are held, and what begins later.
async fn release(sim: &SimRuntime, gate: &Notify, count: usize) {
    reached(sim, count).await;
    sim.set_faults(Faults::default());
    gate.notify_waiters();
}

#[tokio::test]
async fn a_template_is_accepted_and_made_under_both_prefixes() {
    let (server, sim, _folder) = start("").await;
    for prefix in ["", "/v1"] {
        let body = json!({
            "image": "python:3.12", "publish": "s3://bkt/publish",
            "resourceLimits": {"cpu": "2", "disk": "4Gi"}, "metadata": {"team": "core"},
        });
        let request = server.request(Method::POST, &format!("{prefix}/templates"));
        let (status, body) = answer(request.json(&body)).await;
        assert_eq!(status, 201, "{body}");
        let id = body["templateId"].as_str().unwrap();
        let uuid = id.strip_prefix("tpl-").unwrap();
        assert_eq!(uuid::Uuid::parse_str(uuid).unwrap().get_version_num(), 4);
        let at = &body["createdAt"];
        let mut want = json!({
            "templateId": id, "image": "python:3.12", "publish": "s3://bkt/publish",
            "resourceLimits": {"cpu": "2", "disk": "4Gi"}, "metadata": {"team": "core"},
            "format": "overlaybd", "status": {"phase": "Pending"},
            "createdAt": at, "updatedAt": at,
        });
        assert_eq!(body, want);
        let seen = until(&server, id, "Succeeded").await;
        want["status"] =
            json!({"phase": "Succeeded", "manifestRef": format!("sim-templates:{id}")});
        want["updatedAt"] = seen["updatedAt"].clone();
        assert_eq!(seen, want);
        let path = format!("{prefix}/templates/{id}");
        assert_eq!(get(&server, &path).await, (200, want));
        let recipe = Recipe::Image("python:3.12".to_owned());
        assert_eq!(sim.recipe(id), Some(recipe));
        let removed = answer(server.request(Method::DELETE, &path)).await;
        assert_eq!(removed, (204, Value::Null));
        for method in [Method::GET, Method::DELETE] {
            let gone = answer(server.request(method, &path)).await;
            refused(&gone, 404, "FSB::TEMPLATE_NOT_FOUND");
        }
    }
    assert_eq!(sim.stored_templates(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_template_is_named() {
    let (server, sim, _folder) = start("").await;
    let with = |name: &str, value: Value| {
        let mut body = image();
        body[name] = value;
        body
    };
    for (body, status, code, place) in [
        (json!({}), 422, "SANDBOX::INVALID_PARAMETER", "publish"),
        (
            with("more", json!(1)),
            422,
            "SANDBOX::INVALID_PARAMETER",
            "more",
        ),
        (
            with("my_member", json!(1)),
            422,
            "SANDBOX::INVALID_PARAMETER",
            "my_member",
        ),
        (
            with("image", json!("sim-templates:tpl-1")),
            400,
            "SANDBOX::INVALID_PARAMETER",
            "image: it names a template",
        ),
        (
            with("entrypoint", json!([" "])),
            400,
            "SANDBOX::INVALID_PARAMETER",
            "entrypoint",
        ),
        (
            with("image", json!(5)),
            422,
            "SANDBOX::INVALID_PARAMETER",
            "image",
        ),
        (
            with("image", json!("a b")),
            400,
            "SANDBOX::INVALID_PARAMETER",
            "image",
        ),
        (
            with("resourceLimits", json!({"gpu": "1"})),
            400,
            "SANDBOX::INVALID_PARAMETER",
            "resourceLimits.gpu",
        ),
        (
            with("env", json!({"A-B": "1"})),
            400,
            "SANDBOX::INVALID_PARAMETER",
            "env.A-B",
        ),
        (
            with("metadata", json!({"a b": "1"})),
            400,
            "SANDBOX::INVALID_METADATA_LABEL",
            "a b",
        ),
        (
            json!({"build": {"dockerfile": "FROM a"}, "publish": "p"}),
            400,
            "SANDBOX::INVALID_PARAMETER",
            "allow_builds",
        ),
    ] {
        let seen = add(&server, &body).await;
        refused(&seen, status, code);
        let message = seen.1["message"].as_str().unwrap();
        assert!(message.contains(place), "{place}: {message}");
    }
    let torn = server.request(Method::POST, "/v1/templates");
    let torn = torn.header("content-type", "application/json").body("{");
    assert_eq!(answer(torn).await.0, 422);
    let large = with("publish", json!("x".repeat(2 << 20)));
    assert_eq!(add(&server, &large).await.0, 413);
    sim.go_down("unplugged").await;
    let mut health = server.service.registry().watch_health();
    let down = |health: &RuntimeHealth| *health != RuntimeHealth::Up;
    health.wait_for(down).await.unwrap();
    assert_eq!(add(&server, &image()).await.0, 503);
    let all = get(&server, "/v1/templates").await.1;
    assert_eq!(all["items"], json!([]), "a refused one leaves nothing");
    server.stop().await;
}

#[tokio::test]
async fn lists_are_filtered_leniently_and_paged() {
    let (server, _sim, _folder) = start("").await;
    let mut ids = Vec::new();
    for labels in [json!({"team": "core"}), json!({}), json!({"team": "other"})] {
        let mut body = image();
        body["metadata"] = labels;
        ids.push(made(&server, &body).await);
    }
    let list = async |query: &str| {
        let (status, body) = get(&server, &format!("/v1/templates{query}")).await;
        assert_eq!(status, 200, "{body}");
        let items = body["items"].as_array().unwrap().iter();
        let found: Vec<_> = items
            .map(|item| {
                let id = item["templateId"].as_str().unwrap();
                ids.iter().position(|known| known == id).unwrap()
            })
            .collect();
        (found, body["pagination"]["totalItems"].as_u64().unwrap())
    };
    assert_eq!(list("").await, (vec![2, 1, 0], 3));
    assert_eq!(list("?page=2&pageSize=2").await, (vec![0], 3));
    assert_eq!(list("?metadata=team%3Dcore").await, (vec![0], 1));
    // What is no pair is left out.
    assert_eq!(list("?metadata=team").await.1, 3);
    assert_eq!(list("?metadata=team%3D%26x").await.1, 3);
    assert_eq!(list("?metadata=x%26team%3Dother").await, (vec![2], 1));
    assert_eq!(list("?metadata=team%3Dcore%26a%3Db").await.1, 0);
    for query in ["?page=0", "?pageSize=201", "?page=x"] {
        let wrong = get(&server, &format!("/v1/templates{query}")).await;
        refused(&wrong, 422, "SANDBOX::INVALID_PARAMETER");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_gets_what_its_template_has() {
    let (server, sim, _folder) = start("").await;
    let mut body = image();
    body["entrypoint"] = json!(["python", "-m", "http.server"]);
    body["env"] = json!({"A": "1"});
    body["resourceLimits"] = json!({"cpu": "2", "disk": "4Gi"});
    let (whole, bare) = (made(&server, &body).await, made(&server, &image()).await);
    let mut asked = from_template(&whole);
    asked["metadata"] = json!({"team": "core"});
    let (status, shown) = create(&server, &asked).await;
    assert_eq!(status, 202, "{shown}");
    assert_eq!(shown["entrypoint"], body["entrypoint"]);
    assert_eq!(shown["metadata"], asked["metadata"]);
    let path = format!("/v1/sandboxes/{}", shown["id"].as_str().unwrap());
    let read = get(&server, &path).await.1;
    assert_eq!(read["image"], json!({"uri": whole}), "{read}");
    let spec = sim.spec(&shown["id"].as_str().unwrap().into()).unwrap();
    assert_eq!(spec.origin.source.template_id(), Some(whole.as_str()));
    assert_eq!(spec.env["A"].as_deref(), Some("1"));
    assert_eq!(spec.limits.nano_cpus, Some(2_000_000_000));
    assert_eq!(spec.limits.memory_bytes, Some(512 << 20));
    let spec = sim.spec(&created(&server, &bare).await).unwrap();
    assert_eq!(spec.origin.entrypoint, ["tail", "-f", "/dev/null"]);
    // Also with an idempotency key.
    let keyed = server.request(Method::POST, "/v1/sandboxes").json(&asked);
    let keyed = answer(keyed.header("idempotency-key", "one")).await;
    assert_eq!(keyed.0, 202, "{keyed:?}");
    let spec = sim.spec(&keyed.1["id"].as_str().unwrap().into()).unwrap();
    assert_eq!(spec.env["A"].as_deref(), Some("1"));
    // The key has its sandbox, also when the template is gone.
    assert_eq!(delete(&server, &whole).await.0, 204);
    let again = server.request(Method::POST, "/v1/sandboxes").json(&asked);
    let again = answer(again.header("idempotency-key", "one")).await;
    assert_eq!(
        (again.0, &again.1["id"]),
        (202, &keyed.1["id"]),
        "{again:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_template_that_cannot_be_used_is_not_found() {
    let (server, sim, _folder) = start("").await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let early = accepted(&server, &image()).await;
    until(&server, &early, "Building").await;
    for id in [early.as_str(), "tpl-none"] {
        let seen = create(&server, &from_template(id)).await;
        refused(&seen, 404, "FSB::TEMPLATE_NOT_FOUND");
        let message = seen.1["message"].as_str().unwrap();
        assert!(message.starts_with("templateId: "), "{message}");
    }
    release(&sim, &gate, 1).await;
    until(&server, &early, "Succeeded").await;
    let mut pooled = from_template(&early);
    pooled["extensions"] = json!({"poolRef": "gold"});
    let seen = create(&server, &pooled).await;
    refused(&seen, 400, "SANDBOX::INVALID_PARAMETER");
    sim.lose_template(&early);
    let lost = create(&server, &from_template(&early)).await;
    refused(&lost, 404, "FSB::TEMPLATE_NOT_FOUND");
    assert!(sim.sandboxes().is_empty(), "nothing is left of them");
    server.stop().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_fails_its_template() {
    let (server, sim, _folder) = start("").await;
    sim.set_faults(Faults {
        no_image: true,
        ..Faults::default()
    });
    let id = accepted(&server, &image()).await;
    let failed = until(&server, &id, "Failed").await;
    let message = failed["status"]["message"].as_str().unwrap();
    assert!(message.contains("python:3.12"), "{message}");
    assert_eq!(failed["status"].get("manifestRef"), None, "{failed}");
    let seen = create(&server, &from_template(&id)).await;
    refused(&seen, 404, "FSB::TEMPLATE_NOT_FOUND");
    let path = format!("/v1/templates/{id}/log");
    let log = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(log.text().await.unwrap(), "", "nothing was built");
    assert_eq!(delete(&server, &id).await.0, 204);
    server.stop().await;
}

#[tokio::test]
async fn the_image_of_a_deleted_template_stays_until_its_sandboxes_are_gone() {
    let (server, sim, _folder) = start("").await;
    let id = made(&server, &image()).await;
    let sandbox = created(&server, &id).await;
    let path = format!("/v1/templates/{id}");
    for _ in 0..2 {
        let deleted = delete(&server, &id).await;
        assert_eq!(deleted.0, 204, "{deleted:?}");
        refused(&get(&server, &path).await, 404, "FSB::TEMPLATE_NOT_FOUND");
    }
    let all = get(&server, "/v1/templates").await.1;
    assert_eq!(all["items"], json!([]), "{all}");
    assert_eq!(all["pagination"]["totalItems"], 0, "{all}");
    let late = create(&server, &from_template(&id)).await;
    refused(&late, 404, "FSB::TEMPLATE_NOT_FOUND");
    server.service.reconcile().await;
    assert_eq!(sim.stored_templates(), [id.as_str()]);
    server.service.delete(&sandbox, true).await.unwrap();
    server.service.reconcile().await;
    assert_eq!(sim.stored_templates(), [""; 0]);
    refused(&delete(&server, &id).await, 404, "FSB::TEMPLATE_NOT_FOUND");
    server.stop().await;
}

#[tokio::test]
async fn a_failed_deletion_can_be_repeated() {
    let (server, sim, _folder) = start("").await;
    let id = made(&server, &image()).await;
    sim.set_faults(Faults {
        template_remove_fails: Some("input/output error".to_owned()),
        ..Faults::default()
    });
    assert_eq!(delete(&server, &id).await.0, 500);
    let late = create(&server, &from_template(&id)).await;
    refused(&late, 404, "FSB::TEMPLATE_NOT_FOUND");
    sim.set_faults(Faults::default());
    assert_eq!(delete(&server, &id).await.0, 204);
    assert_eq!(sim.stored_templates(), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn totals_are_among_the_metrics() {
    let (server, _sim, _folder) = start(BUILDS).await;
    made(&server, &image()).await;
    let build = json!({"build": {"dockerfile": "FROM a"}, "publish": "p"});
    made(&server, &build).await;
    let page = server
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    for line in [
        "opensandbox_templates{phase=\"Succeeded\"} 2",
        "opensandbox_template_bytes 1000",
    ] {
        assert!(page.lines().any(|seen| seen == line), "{line}: {page}");
    }
    server.stop().await;
}

//! What a server that starts finds, and what it must not forget.

use std::{fs, net::IpAddr, path::Path, sync::Arc};

use osb_protocol::WireTime;
use osb_runtime::{Expiry, Observed, RuntimeEvent, sim::SimRuntime};
use osb_store::UnansweredCreate;
use osb_testkit::{TestServer, running_at, store_in, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const LATER: &str = "2099-01-01T00:00:00Z";

/// A running sandbox that expires in ten minutes.
fn sandbox(id: &str) -> Observed {
    let mut sandbox = running_at(id, IpAddr::from([127, 0, 0, 1]), None);
    let created = sandbox.origin.created_at;
    sandbox.origin.expiry = Expiry::At(created.plus_seconds(600).unwrap());
    sandbox
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    (status, response.json().await.unwrap_or_default())
}

async fn get(server: &TestServer, id: &str) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

/// Starts a server over an engine, with a store in `folder`.
async fn start(sim: &Arc<SimRuntime>, folder: &Path, more: &str) -> TestServer {
    let server = TestServer::over(Arc::clone(sim) as _, folder, more);
    let server = server.await.unwrap();
    let lists = || answer(server.request(Method::GET, "/v1/sandboxes"));
    wait_until("the first list", lists, |seen| seen.0 == 200).await;
    server
}

#[tokio::test]
async fn a_renewal_survives_a_start_on_the_wrong_engine() {
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (
        Arc::new(SimRuntime::with([sandbox("a")])),
        Arc::new(SimRuntime::new()),
    );
    let server = start(&right, folder.path(), "").await;
    let renew = server
        .request(Method::POST, "/v1/sandboxes/a/renew-expiration")
        .json(&json!({"expiresAt": LATER}));
    assert_eq!(answer(renew).await.0, 200);
    server.stop().await;
    drop(server);
    let server = start(&wrong, folder.path(), "").await;
    assert_eq!(get(&server, "a").await.0, 404);
    server.stop().await;
    drop(server);
    let server = start(&right, folder.path(), "").await;
    assert_eq!(get(&server, "a").await.1["expiresAt"], LATER);
    server.stop().await;
}

/// The right engine has the sandbox of a create whose answer a crash kept from its client.
#[tokio::test]
async fn an_unanswered_create_is_still_ended_after_a_start_on_the_wrong_engine() {
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (
        Arc::new(SimRuntime::with([sandbox("a"), sandbox("b")])),
        Arc::new(SimRuntime::new()),
    );
    let server = start(&right, folder.path(), "").await;
    let renew = server
        .request(Method::POST, "/v1/sandboxes/a/renew-expiration")
        .json(&json!({"expiresAt": LATER}));
    assert_eq!(answer(renew).await.0, 200);
    server.stop().await;
    drop(server);
    let store = osb_store::open(&store_in(folder.path()).await.unwrap()).await;
    let store = store.unwrap();
    let unanswered = UnansweredCreate {
        id: "b".into(),
        image: "debian:12".to_owned(),
        created_at: sandbox("b").origin.created_at,
        tenant: None,
    };
    store.set_unanswered(&unanswered).await.unwrap();
    store.close().await;
    drop(store);
    for engine in [&wrong, &right] {
        let server = start(engine, folder.path(), "").await;
        let is_right = Arc::ptr_eq(engine, &right);
        let found = async || get(&server, "b").await.0;
        wait_until("b's end", found, |status| *status == 404).await;
        let (status, _) = get(&server, "a").await;
        assert_eq!(status == 200, is_right, "{status}");
        server.stop().await;
    }
}

#[tokio::test]
async fn what_ended_while_no_server_ran_is_forgotten_once_another_sandbox_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::with([sandbox("a"), sandbox("b")]));
    let server = start(&sim, folder.path(), "").await;
    for id in ["a", "b"] {
        let path = format!("/v1/sandboxes/{id}/renew-expiration");
        let renew = server.request(Method::POST, &path);
        let renew = renew.json(&json!({"expiresAt": LATER}));
        assert_eq!(answer(renew).await.0, 200);
    }
    server.stop().await;
    drop(server);
    sim.vanish(&"a".into()).await;
    let server = start(&sim, folder.path(), "").await;
    let ended = || async { server.service.history(&"a".into()).await.unwrap() };
    let ended = wait_until("its history", ended, Option::is_some).await;
    assert_eq!(ended.unwrap().reason, "GONE_AT_START");
    assert_eq!(get(&server, "b").await.1["expiresAt"], LATER);
    server.stop().await;
}

fn write_files(folder: &Path, id: &str, team: &str) {
    fs::create_dir_all(folder.join("_expiration")).unwrap();
    let metadata = json!({"team": team}).to_string();
    fs::write(folder.join(format!("{id}.json")), metadata).unwrap();
    let expiry = json!({"expires_at": LATER}).to_string();
    fs::write(folder.join(format!("_expiration/{id}.json")), expiry).unwrap();
}

#[tokio::test]
async fn files_of_another_server_are_imported_when_their_sandbox_is_found() {
    let files = tempfile::tempdir().unwrap();
    write_files(files.path(), "a", "file");
    let import = format!("[store]\nimport_path = '{}'", files.path().display());
    let sim = Arc::new(SimRuntime::with([sandbox("a")]));
    let (wrong, folder) = (Arc::new(SimRuntime::new()), tempfile::tempdir().unwrap());
    // Without any sandbox, and by a server whose store is lost afterwards.
    for (engine, store) in [
        (&wrong, folder.path()),
        (&sim, tempfile::tempdir().unwrap().path()),
        (&sim, folder.path()),
    ] {
        let server = start(engine, store, &import).await;
        if Arc::ptr_eq(engine, &sim) {
            let (_, seen) = get(&server, "a").await;
            assert_eq!(seen["expiresAt"], LATER, "{seen}");
            assert_eq!(seen["metadata"], json!({"team": "file"}));
        }
        server.stop().await;
    }
    // What changes here counts from now on, unless the other server writes its files again.
    let server = start(&sim, folder.path(), &import).await;
    let patch = server
        .request(Method::PATCH, "/v1/sandboxes/a/metadata")
        .json(&json!({"team": "ours"}));
    assert_eq!(answer(patch).await.0, 200);
    server.stop().await;
    drop(server);
    for (text, team) in [("file", "ours"), ("newer", "newer")] {
        write_files(files.path(), "a", text);
        let server = start(&sim, folder.path(), &import).await;
        assert_eq!(get(&server, "a").await.1["metadata"]["team"], team);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_appears_later_has_what_files_say_about_it() {
    let (files, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_files(files.path(), "late", "file");
    let import = format!("[store]\nimport_path = '{}'", files.path().display());
    let sim = Arc::new(SimRuntime::new());
    let server = start(&sim, folder.path(), &import).await;
    sim.emit(RuntimeEvent::Changed(Box::new(sandbox("late"))))
        .await;
    let look = || get(&server, "late");
    let (_, seen) = wait_until("the sandbox", look, |seen| seen.0 == 200).await;
    assert_eq!(seen["expiresAt"], LATER, "{seen}");
    assert!(WireTime::parse(LATER).is_ok());
    server.stop().await;
}

#[tokio::test]
async fn an_imported_sandbox_that_vanished_belongs_to_its_tenant() {
    let (files, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_files(files.path(), "a", "file");
    let import = format!("[store]\nimport_path = '{}'", files.path().display());
    let mut of_a_tenant = sandbox("a");
    of_a_tenant.origin.tenant = Some("team-a".into());
    let sim = Arc::new(SimRuntime::with([of_a_tenant, sandbox("b")]));
    let server = start(&sim, folder.path(), &import).await;
    assert_eq!(get(&server, "a").await.1["expiresAt"], LATER);
    server.stop().await;
    drop(server);
    sim.vanish(&"a".into()).await;
    let server = start(&sim, folder.path(), &import).await;
    let ended = || async { server.service.history(&"a".into()).await.unwrap() };
    let ended = wait_until("its history", ended, Option::is_some).await;
    assert_eq!(ended.unwrap().tenant.as_deref(), Some("team-a"));
    server.stop().await;
}

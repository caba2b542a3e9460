//! Templates whose images are built.

use base64::{Engine, prelude::BASE64_STANDARD};
use osb_protocol::lifecycle::TemplatePhase;
use osb_runtime::{Context, Recipe, sim::Faults};
use osb_testkit::TestServer;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    BUILDS, accepted, add, answer, created, delete, held, image, made, reached, refused, release,
    start, until,
};

fn build() -> Value {
    json!({"build": {"dockerfile": "FROM debian:12\nRUN true\n"}, "publish": "p"})
}

async fn log(server: &TestServer, id: &str) -> String {
    let path = format!("/v1/templates/{id}/log");
    let response = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let kind = response.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/plain"), "{kind}");
    response.text().await.unwrap()
}

#[tokio::test]
async fn a_build_shows_its_log_while_it_runs_and_after_it() {
    let (server, sim, _folder) = start(BUILDS).await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &build()).await;
    until(&server, &id, "Building").await;
    let look = async || log(&server, &id).await;
    let is_there = |text: &String| text.starts_with("Step 1/1");
    osb_testkit::wait_until("the log", look, is_there).await;
    // The reconciler leaves it alone.
    server.service.reconcile().await;
    release(&sim, &gate, 1).await;
    let seen = until(&server, &id, "Succeeded").await;
    // Clients of the contract fail to read a template without one.
    assert_eq!(seen["image"], json!(id), "{seen}");
    assert_eq!(seen["build"], build()["build"]);
    assert!(log(&server, &id).await.starts_with("Step 1/1"));
    let text = build()["build"]["dockerfile"].as_str().unwrap().to_owned();
    let recipe = Recipe::Build(Context::Dockerfile(text));
    assert_eq!(sim.recipe(&id), Some(recipe));
    created(&server, &id).await;
    let path = "/v1/templates/tpl-none/log";
    let missing = answer(server.request(Method::GET, path)).await;
    refused(&missing, 404, "FSB::TEMPLATE_NOT_FOUND");
    server.stop().await;
}

#[tokio::test]
async fn a_context_is_passed_on_and_not_shown() {
    let (server, sim, _folder) = start(BUILDS).await;
    let archive: Vec<u8> = (0..=255).collect();
    let with = |archive: &[u8]| {
        let context = BASE64_STANDARD.encode(archive);
        json!({"build": {"context": context}, "publish": "p"})
    };
    let id = made(&server, &with(&archive)).await;
    let seen = until(&server, &id, "Succeeded").await;
    assert_eq!(seen["build"], json!({"contextBytes": 256}));
    let recipe = Recipe::Build(Context::Archive(archive.into()));
    assert_eq!(sim.recipe(&id), Some(recipe));
    let large = add(&server, &with(&[0; 1025])).await;
    refused(&large, 400, "SANDBOX::INVALID_PARAMETER");
    // Far above the limit, it is not even read.
    assert_eq!(add(&server, &with(&vec![0; 2 << 20])).await.0, 413);
    server.stop().await;
}

#[tokio::test]
async fn a_failed_build_has_its_reason_and_its_log() {
    let (server, sim, _folder) = start(BUILDS).await;
    sim.set_faults(Faults {
        build_fails: Some("RUN returned a non-zero code: 1".to_owned()),
        ..Faults::default()
    });
    let id = accepted(&server, &build()).await;
    let failed = until(&server, &id, "Failed").await;
    let message = failed["status"]["message"].as_str().unwrap();
    assert!(message.contains("non-zero code"), "{message}");
    assert!(log(&server, &id).await.starts_with("Step 1/1"));
    assert_eq!(delete(&server, &id).await.0, 204);
    server.stop().await;
}

#[tokio::test]
async fn a_build_that_takes_too_long_fails() {
    let more = format!("{BUILDS}\nbuild_timeout_seconds = 1");
    let (server, sim, _folder) = start(&more).await;
    let (faults, _gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &build()).await;
    let failed = until(&server, &id, "Failed").await;
    let message = failed["status"]["message"].as_str().unwrap();
    assert_eq!(message, "The build did not finish within 1 seconds.");
    assert_eq!(sim.stored_templates(), [""; 0]);
    server.stop().await;
}

/// Waits until the store has no row of a template, also none that is marked as deleted.
async fn until_removed(server: &TestServer, id: &str) {
    let look = async || {
        server.service.reconcile().await;
        server.service.template_entry(id).await.unwrap()
    };
    osb_testkit::wait_until("its end", look, |seen| seen.is_none()).await;
}

#[tokio::test]
async fn a_template_that_is_being_made_can_be_deleted() {
    let (server, sim, _folder) = start(BUILDS).await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let built = accepted(&server, &build()).await;
    let pulled = accepted(&server, &image()).await;
    reached(&sim, 2).await;
    let waiting = accepted(&server, &build()).await;
    // The engine has completed it, although it has not said so yet.
    sim.put_template(&built);
    for id in [&waiting, &built] {
        let deleted = delete(&server, id).await;
        assert_eq!(deleted, (204, Value::Null));
        let path = format!("/v1/templates/{id}");
        let gone = answer(server.request(Method::GET, &path)).await;
        refused(&gone, 404, "FSB::TEMPLATE_NOT_FOUND");
        until_removed(&server, id).await;
    }
    assert_eq!(sim.stored_templates(), [""; 0]);
    // The place is free, and the one that waited has not taken it.
    let next = accepted(&server, &image()).await;
    release(&sim, &gate, 3).await;
    let mut left = [pulled, next];
    for id in &left {
        until(&server, id, "Succeeded").await;
    }
    left.sort();
    assert_eq!(sim.stored_templates(), left);
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_build_that_cannot_be_removed_at_once_is_removed_later() {
    let (server, sim, _folder) = start(BUILDS).await;
    let (faults, _gate) = held();
    sim.set_faults(faults);
    let id = accepted(&server, &build()).await;
    reached(&sim, 1).await;
    sim.set_faults(Faults {
        template_remove_fails: Some("input/output error".to_owned()),
        ..Faults::default()
    });
    for _ in 0..2 {
        // Also while nothing works at it any more.
        let status = delete(&server, &id).await.0;
        assert!(status == 204 || status == 500, "{status}");
        let seen = server.service.template_entry(&id).await.unwrap().unwrap();
        assert_eq!(seen.phase, TemplatePhase::Deleting);
    }
    sim.set_faults(Faults::default());
    until_removed(&server, &id).await;
    server.stop().await;
}

#[tokio::test]
async fn only_some_wait_at_once() {
    let (server, sim, _folder) = start(BUILDS).await;
    let (faults, gate) = held();
    sim.set_faults(faults);
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(accepted(&server, &build()).await);
    }
    let busy = add(&server, &image()).await;
    refused(&busy, 429, "FSB::API_ERROR");
    let message = busy.1["message"].as_str().unwrap();
    assert!(message.starts_with("8 templates are"), "{message}");
    release(&sim, &gate, 2).await;
    for id in &ids {
        until(&server, id, "Succeeded").await;
    }
    made(&server, &image()).await;
    server.stop().await;
}

//! An engine that stops, hangs or loses events.

use osb_testkit::wait_until;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::stage::{Stage, answer, body, create, delete, docker, get, ready};

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_engine_is_reported_until_it_returns() {
    let mut stage = Stage::set();
    let server = stage.server().await;
    let list = || answer(server.request(Method::GET, "/v1/sandboxes"));
    let (status, _) = list().await;
    assert_eq!(status, 503, "the server must not return an empty list");
    stage.engine.up().unwrap();
    ready(&server).await;
    let id = create(&server, &body()).await;
    stage.engine.cut().unwrap();
    let lost = |seen: &(StatusCode, Value)| seen.0 == 503;
    let (_, reply) = wait_until("the loss", list, lost).await;
    assert_eq!(reply["code"], "GENERAL::RUNTIME_UNAVAILABLE");
    // Changes during the outage are seen afterwards.
    docker(&["rm", "--force", &stage.container_of(&id)]);
    stage.engine.up().unwrap();
    ready(&server).await;
    assert_eq!(get(&server, &id).await.0, 404);
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_engine_is_reported_until_it_resumes() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    stage.engine.hang();
    let look = || answer(server.bare(Method::GET, "/ready"));
    // Far sooner than the timeout of requests to the engine.
    wait_until("the loss", look, |seen| seen.0 == 503).await;
    docker(&["rm", "--force", &stage.container_of(&id)]);
    stage.engine.go_on();
    ready(&server).await;
    let gone = |seen: &(StatusCode, Value)| seen.0 == 404;
    wait_until("the removal", || get(&server, &id), gone).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_events_are_replaced_by_a_list() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    stage.engine.forget_connections();
    docker(&["kill", &stage.container_of(&id)]);
    let ended = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
    wait_until("the end", || get(&server, &id), ended).await;
    ready(&server).await;
    // The server follows events again, over more than one window.
    for _ in 0..3 {
        let id = create(&server, &body()).await;
        docker(&["kill", &stage.container_of(&id)]);
        wait_until("the end", || get(&server, &id), ended).await;
        delete(&server, &id).await;
    }
    delete(&server, &id).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

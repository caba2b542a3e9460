//! The engine's freezer.

use futures::StreamExt;
use osb_protocol::WireTime;
use osb_testkit::{TestServer, patience, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    sidecar::sidecar,
    stage::{Stage, answer, ask, body, containers_with, create, delete, docker, get, ready},
};

async fn post(server: &TestServer, id: &str, verb: &str) -> (u16, Value) {
    let request = server.request(Method::POST, &format!("/v1/sandboxes/{id}/{verb}"));
    let (status, body) = answer(request).await;
    (status.as_u16(), body)
}

async fn state(server: &TestServer, id: &str) -> Value {
    get(server, id).await.1["status"]["state"].clone()
}

async fn since(server: &TestServer, id: &str) -> WireTime {
    let status = get(server, id).await.1["status"].clone();
    WireTime::parse(status["lastTransitionAt"].as_str().unwrap()).unwrap()
}

/// States of the containers of a sandbox, the newest first.
fn states_of(id: &str) -> Vec<String> {
    let containers = containers_with(&format!("opensandbox.io/id={id}"));
    let state =
        |container: &String| docker(&["inspect", "--format", "{{.State.Status}}", container]);
    containers.iter().map(state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_goes_on_after_a_pause_on_the_same_stream() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    let path = format!("/sandboxes/{id}/proxy/44772/command");
    // It ends once the test has written the file.
    let command = "echo before; until [ -e /tmp/go ]; do sleep 0.05; done; echo after";
    let request = server.request(Method::POST, &path);
    let stream = request
        .json(&json!({"command": command}))
        .send()
        .await
        .unwrap();
    let mut stream = stream.bytes_stream();
    let mut seen = String::new();
    let mut read_until = async |text: &str| {
        let read = async {
            while !seen.contains(text) {
                let chunk = stream.next().await.expect("the stream goes on").unwrap();
                seen.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        let in_time = tokio::time::timeout(patience(), read).await;
        assert!(in_time.is_ok(), "no {text} in {seen}");
    };
    read_until("before").await;

    let started = since(&server, &id).await;
    assert_eq!(post(&server, &id, "pause").await, (202, Value::Null));
    assert_eq!(states_of(&id), ["paused"]);
    assert_eq!(state(&server, &id).await, "Paused");
    let paused = since(&server, &id).await;
    assert!(paused > started, "{paused} is after {started}");
    // A new request is refused, and does not wait for the resume.
    let (status, refused) = ask(&server, &id, Method::GET, "/ping", None).await;
    assert_eq!(status, 409, "{refused}");
    let again = post(&server, &id, "pause").await;
    assert_eq!(
        (again.0, &again.1["code"]),
        (409, &json!("DOCKER::SANDBOX_NOT_RUNNING"))
    );

    assert_eq!(post(&server, &id, "resume").await, (202, Value::Null));
    assert_eq!(
        (states_of(&id), state(&server, &id).await),
        (vec!["running".into()], json!("Running"))
    );
    assert!(since(&server, &id).await > paused);
    let again = post(&server, &id, "resume").await;
    assert_eq!(
        (again.0, &again.1["code"]),
        (409, &json!("DOCKER::SANDBOX_NOT_PAUSED"))
    );
    let go = json!({"command": "touch /tmp/go"});
    let (status, text) = ask(&server, &id, Method::POST, "/command", Some(go)).await;
    assert_eq!(status, 200, "{text}");
    read_until("after").await;
    delete(&server, &id).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_pause_is_seen_and_a_frozen_sandbox_can_be_removed() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    let container = stage.container_of(&id);
    for (verb, expected) in [
        ("pause", "Paused"),
        ("unpause", "Running"),
        ("pause", "Paused"),
    ] {
        docker(&[verb, &container]);
        wait_until(expected, || state(&server, &id), |seen| seen == expected).await;
    }
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    // The kernel's freezer may hold processes back that are killed.
    let id = create(&server, &body()).await;
    assert_eq!(post(&server, &id, "pause").await.0, 202);
    let soon = WireTime::new(jiff::Timestamp::now())
        .plus_seconds(1)
        .unwrap();
    let renew = server.request(
        Method::POST,
        &format!("/v1/sandboxes/{id}/renew-expiration"),
    );
    let (status, renewed) = answer(renew.json(&json!({"expiresAt": soon}))).await;
    assert_eq!(status, 200, "{renewed}");
    wait_until("its end", || get(&server, &id), |seen| seen.0 == 404).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[test]
fn a_group_is_frozen_as_one_and_a_half_frozen_one_is_settled() {
    let mut stage = Stage::set();
    let first = tokio::runtime::Runtime::new().unwrap();
    let id = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server_with(vec![sidecar()]).await;
        ready(&server).await;
        let id = create(&server, &body()).await;
        assert_eq!(post(&server, &id, "pause").await.0, 202);
        assert_eq!(states_of(&id), ["paused", "paused"]);
        assert_eq!(post(&server, &id, "resume").await.0, 202);
        assert_eq!(states_of(&id), ["running", "running"]);
        id
    });
    first.shutdown_timeout(patience());
    // As a crash between the two containers leaves them.
    let [main, egress] = containers_with(&format!("opensandbox.io/id={id}"))
        .try_into()
        .unwrap();
    docker(&["pause", &main]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server_with(vec![sidecar()]).await;
        ready(&server).await;
        assert_eq!(state(&server, &id).await, "Paused");
        let frozen = async || states_of(&id);
        wait_until("the sidecar's pause", frozen, |seen| {
            seen == &["paused", "paused"]
        })
        .await;
        // Without its sidecar it stays paused.
        docker(&["kill", &egress]);
        let seen = post(&server, &id, "resume").await;
        assert_eq!(
            (seen.0, &seen.1["code"]),
            (500, &json!("DOCKER::SANDBOX_RESUME_FAILED"))
        );
        assert_eq!(
            docker(&["inspect", "--format", "{{.State.Status}}", &main]),
            "paused"
        );
        delete(&server, &id).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

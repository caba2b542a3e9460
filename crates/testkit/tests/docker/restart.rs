//! What holds after a restart of the server, also after a crash.

use std::time::Duration;

use osb_protocol::WireTime;
use osb_store::Location;
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{Stage, answer, body, create, delete, get, ready};

#[test]
fn a_restart_keeps_sandboxes_and_ends_overdue_ones() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let (stays, due) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        let (stays, due) = (
            create(&server, &body()).await,
            create(&server, &body()).await,
        );
        let path = format!("/v1/sandboxes/{stays}/renew-expiration");
        let later = json!({"expiresAt": "2099-01-01T00:00:00Z"});
        let renew = server.request(Method::POST, &path).json(&later);
        assert_eq!(answer(renew).await.0, 200);
        let path = format!("/v1/sandboxes/{stays}/metadata");
        let patch = server
            .request(Method::PATCH, &path)
            .json(&json!({"kept": "yes"}));
        assert_eq!(answer(patch).await.0, 200);
        (stays, due)
    });
    // Every task of the first server is aborted here.
    first.shutdown_timeout(Duration::from_secs(60));
    let second = process();
    second.block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        // Its deadline passed while no server ran.
        let store = osb_store::open(&Location::Sqlite(stage.store()))
            .await
            .unwrap();
        let past = WireTime::parse("2001-01-01T00:00:00Z").unwrap();
        store
            .set_expiry(&due.as_str().into(), past, None)
            .await
            .unwrap();
        store.close().await;
        drop(store);
        let server = stage.server().await;
        ready(&server).await;
        let (_, kept) = get(&server, &stays).await;
        assert_eq!(kept["expiresAt"], "2099-01-01T00:00:00Z");
        assert_eq!(kept["metadata"], json!({"kept": "yes"}));
        assert_eq!(kept["status"]["state"], "Running");
        wait_until(
            "the overdue one",
            || get(&server, &due),
            |seen| seen.0 == 404,
        )
        .await;
        let path = format!("/sandboxes/{stays}/proxy/44772/command");
        let command = json!({"command": "echo $FLEET-$EXECD_ACCESS_TOKEN-"});
        let output = server
            .request(Method::POST, &path)
            .json(&command)
            .send()
            .await
            .unwrap();
        assert!(output.text().await.unwrap().contains("\"text\":\"1--\""));
        delete(&server, &stays).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn a_delete_interrupted_by_a_crash_is_completed() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let id = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        create(&server, &body()).await
    });
    first.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        // The intent is stored, but the server died before it acted.
        let store = osb_store::open(&Location::Sqlite(stage.store()))
            .await
            .unwrap();
        let at = WireTime::parse("2001-01-01T00:00:00Z").unwrap();
        store
            .set_deleted(&id.as_str().into(), at, None)
            .await
            .unwrap();
        store.close().await;
        drop(store);
        let server = stage.server().await;
        ready(&server).await;
        wait_until(
            "the deleted one",
            || get(&server, &id),
            |seen| seen.0 == 404,
        )
        .await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn an_out_of_memory_kill_is_reported_also_after_a_restart() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let end_message = async |server: &TestServer, id: &str| {
        let failed = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
        let (_, seen) = wait_until("the end", || get(server, id), failed).await;
        seen["status"]["message"].as_str().unwrap().to_owned()
    };
    let want = "The entry point ended with exit code 137 because its memory limit was reached. \
                Raise `resourceLimits.memory`, or let the program use less.";
    let first = process();
    let id = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        let mut greedy = body();
        greedy["entrypoint"] = json!(["tail", "/dev/zero"]);
        greedy["resourceLimits"]["memory"] = "64Mi".into();
        let id = create(&server, &greedy).await;
        assert_eq!(end_message(&server, &id).await, want);
        id
    });
    first.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        assert_eq!(end_message(&server, &id).await, want);
        delete(&server, &id).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

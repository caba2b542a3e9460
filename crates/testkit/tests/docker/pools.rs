//! Pools on a real engine: claims start the entry point of their create.

use std::{fs, time::Duration};

use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{IMAGE, Stage, answer, containers_with, create, delete, docker, get, ready};

fn pool(name: &str, most: u32) -> Value {
    json!({
        "name": name,
        "template": {"spec": {"containers": [{
            "image": IMAGE, "env": [{"name": "OF_POOL", "value": "1"}, {"name": "B", "value": "2"}],
            "resources": {"limits": {"memory": "128Mi"}},
        }]}},
        "capacitySpec": {"bufferMin": 1, "bufferMax": 1, "poolMax": most, "poolMin": 0},
    })
}

async fn add(server: &TestServer, pool: &Value) {
    let (status, body) = answer(server.request(Method::POST, "/v1/pools").json(pool)).await;
    assert_eq!(status, 201, "{body}");
}

async fn until_full(server: &TestServer, name: &str) {
    let path = format!("/v1/pools/{name}");
    let status = async || answer(server.request(Method::GET, &path)).await.1;
    let is_full = |pool: &Value| pool["status"]["available"] == 1;
    wait_until("a full pool", status, is_full).await;
}

fn claim(pool: &str) -> Value {
    json!({
        "extensions": {"poolRef": pool},
        "entrypoint": ["sh", "-c", "echo \"$OF_POOL ${B-none} $C\"; exec sleep 1000"],
        "env": {"B": null, "C": "3"},
        "timeout": 600,
    })
}

/// Container of a sandbox.
fn container(id: &str) -> String {
    containers_with(&format!("opensandbox.io/id={id}"))[0].clone()
}

async fn until_printed(id: &str, times: usize) {
    let container = container(id);
    let log = async || docker(&["logs", &container]);
    let lines = |log: &String| log.lines().filter(|line| *line == "1 none 3").count();
    wait_until("the entry point", log, |log| lines(log) == times).await;
}

#[tokio::test]
async fn a_claim_starts_the_entry_point_with_its_environment() {
    const NAME: &str = "test-claims";
    const LABEL: &str = "opensandbox.io/pool=test-claims";
    const PATH: &str = "/v1/pools/test-claims";
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    add(&server, &pool(NAME, 3)).await;
    until_full(&server, NAME).await;
    let waiting = containers_with(LABEL);
    assert_eq!(waiting.len(), 1);
    assert_eq!(docker(&["logs", &waiting[0]]), "", "nothing runs in it yet");
    let id = create(&server, &claim(NAME)).await;
    assert_eq!(container(&id), waiting[0]);
    until_printed(&id, 1).await;
    let (_, shown) = get(&server, &id).await;
    assert_eq!(shown["status"]["state"], "Running");
    assert_eq!(shown["allocation"]["poolRef"], NAME);

    // Its container is restarted: the entry point runs again, for the same client.
    docker(&["restart", "--time", "1", &waiting[0]]);
    until_printed(&id, 2).await;
    until_full(&server, NAME).await;
    delete(&server, &id).await;
    let gone = async || containers_with(&format!("opensandbox.io/id={id}"));
    wait_until("its removal", gone, Vec::is_empty).await;
    let (status, _) = answer(server.request(Method::DELETE, PATH)).await;
    assert_eq!(status, 204);
    let left = async || containers_with(LABEL);
    wait_until("an empty pool", left, Vec::is_empty).await;
    server.stop().await;
}

#[test]
fn a_crash_loses_neither_clients_nor_what_waits() {
    const NAME: &str = "test-crash";
    const LABEL: &str = "opensandbox.io/pool=test-crash";
    const PATH: &str = "/v1/pools/test-crash";
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let (id, before) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        add(&server, &pool(NAME, 2)).await;
        until_full(&server, NAME).await;
        let id = create(&server, &claim(NAME)).await;
        until_full(&server, NAME).await;
        let mut before = containers_with(LABEL);
        before.sort();
        (id, before)
    });
    first.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        until_full(&server, NAME).await;
        let mut after = containers_with(LABEL);
        after.sort();
        assert_eq!(after, before);
        let (status, shown) = get(&server, &id).await;
        assert_eq!(status, 200);
        assert_eq!(shown["entrypoint"], claim(NAME)["entrypoint"]);
        until_printed(&id, 1).await;
        let next = create(&server, &claim(NAME)).await;
        assert_ne!(next, id);
        until_printed(&next, 1).await;
        for id in [&id, &next] {
            delete(&server, id).await;
        }
        let (status, _) = answer(server.request(Method::DELETE, PATH)).await;
        assert_eq!(status, 204);
        let left = async || containers_with(LABEL);
        wait_until("an empty engine", left, Vec::is_empty).await;
        server.stop().await;
    });
}

#[tokio::test]
async fn a_claim_leaves_a_mark_that_a_lost_store_finds() {
    const NAME: &str = "test-lost-store";
    const LABEL: &str = "opensandbox.io/pool=test-lost-store";
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    add(&server, &pool(NAME, 4)).await;
    let mut used = Vec::new();
    for _ in 0..3 {
        until_full(&server, NAME).await;
        used.push(create(&server, &claim(NAME)).await);
    }
    until_full(&server, NAME).await;
    server.stop().await;
    drop(server);
    for suffix in ["", "-wal", "-shm"] {
        let mut file = stage.store().into_os_string();
        file.push(suffix);
        // Only the first is always there.
        let _ = fs::remove_file(file);
    }
    let of_clients = [0, 1, 2].map(|at| container(&used[at]));
    let [ended, frozen, restarted] = &of_clients;
    let waiting: Vec<_> = containers_with(LABEL)
        .into_iter()
        .filter(|it| !of_clients.contains(it))
        .collect();
    assert_eq!(waiting.len(), 1);
    docker(&["kill", ended]);
    docker(&["pause", frozen]);
    docker(&["restart", "--time", "1", restarted]);
    docker(&["kill", &waiting[0]]);

    let server = stage.server().await;
    ready(&server).await;
    for (id, state) in used.iter().zip(["Failed", "Paused", "Running"]) {
        let shown = async || get(&server, id).await;
        let is_kept = |(status, shown): &(StatusCode, Value)| {
            *status == StatusCode::OK && shown["status"]["state"] == state
        };
        wait_until("the used ones", shown, is_kept).await;
    }
    let left = async || containers_with(LABEL);
    let are_clients = |left: &Vec<String>| left.iter().all(|it| of_clients.contains(it));
    let left = wait_until("the one that waited to go", left, are_clients).await;
    assert_eq!(left.len(), 3);
    for id in &used {
        delete(&server, id).await;
    }
    server.stop().await;
}

//! Recorded resource use over a simulated runtime, whose sandboxes all use the same.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use osb_protocol::SandboxId;
use osb_runtime::sim::{Options, SimRuntime};
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

/// Keeps a test from hanging.
const PATIENCE: Duration = Duration::from_secs(150);

fn metered() -> Arc<SimRuntime> {
    Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }))
}

/// The simulated use, as far as the times of reading it are exact.
fn is_a_quarter(cores: &Value) -> bool {
    cores
        .as_f64()
        .is_some_and(|cores| (0.2..0.3).contains(&cores))
}

async fn ready(server: &TestServer) {
    let look = || async { server.service.available().is_ok() };
    wait_until("the runtime", look, |up| *up).await;
}

async fn created(server: &TestServer) -> SandboxId {
    let request = server.request(Method::POST, "/v1/sandboxes");
    let response = request
        .json(&TestServer::good_create())
        .send()
        .await
        .unwrap();
    let body: Value = response.json().await.unwrap();
    SandboxId::from(body["id"].as_str().unwrap())
}

async fn metrics(server: &TestServer, id: &SandboxId, query: &str) -> (u16, Value) {
    let path = format!("/v1/sandboxes/{id}/metrics{query}");
    let response = server.request(Method::GET, &path).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[test]
fn a_history_survives_a_restart_and_the_sandbox() {
    let (sim, folder) = (metered(), tempfile::tempdir().unwrap());
    let process = || tokio::runtime::Runtime::new().unwrap();
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        let server = server.unwrap();
        ready(&server).await;
        server
    };
    let first = process();
    let (id, begun) = first.block_on(async {
        let server = start().await;
        let id = created(&server).await;
        let recorded = |seen: &(u16, Value)| {
            let cores = seen.1["cpuCores"].as_array();
            cores.is_some_and(|cores| cores.iter().any(is_a_quarter))
        };
        let look = || metrics(&server, &id, "?step=10");
        let (_, body) = wait_until("a point", look, recorded).await;
        assert_eq!(body["stepSeconds"], 10);
        assert_eq!(body["memoryBytes"][0], 64 << 20);
        assert_eq!(body["processes"][0], 2);
        assert_eq!(body["diskReadBytesPerSecond"][0], Value::Null);
        for (query, status) in [("?step=60", 200), ("?step=11", 422), ("?step=x", 422)] {
            assert_eq!(metrics(&server, &id, query).await.0, status, "{query}");
        }
        assert_eq!(metrics(&server, &"none".into(), "").await.0, 404);
        server.stop().await;
        (id, body["start"].clone())
    });
    first.shutdown_timeout(PATIENCE);
    assert!(begun.is_string(), "{begun}");
    process().block_on(async {
        let server = start().await;
        let (status, body) = metrics(&server, &id, "").await;
        assert_eq!((status, &body["start"]), (200, &begun), "{body}");
        server.service.delete(&id, true).await.unwrap();
        let (status, body) = metrics(&server, &id, "").await;
        assert_eq!((status, &body["start"]), (200, &begun), "{body}");
        server.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_gets_a_sample_each_second_until_the_end() {
    let (sim, folder) = (metered(), tempfile::tempdir().unwrap());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    ready(&server).await;
    let id = created(&server).await;
    let path = format!("/v1/sandboxes/{id}/metrics/watch");
    let response = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let mut stream = response.bytes_stream();
    let mut seen = String::new();
    let read = async {
        while seen.matches("data:").count() < 3 {
            let chunk = stream.next().await.expect("it goes on").unwrap();
            seen.push_str(&String::from_utf8_lossy(&chunk));
        }
        server.service.delete(&id, true).await.unwrap();
        while stream.next().await.is_some() {}
    };
    tokio::time::timeout(PATIENCE, read).await.expect("an end");
    let last = seen
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data:"));
    let sample: Value = serde_json::from_str(last.unwrap()).unwrap();
    assert!(is_a_quarter(&sample["cpuCores"]), "{sample}");
    assert_eq!(sample["memoryBytes"], 64 << 20);
    let (status, _) = metrics(&server, &"none".into(), "/watch").await;
    assert_eq!(status, 404);
    server.stop().await;
}

#[tokio::test]
async fn metrics_can_be_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    let off = "[history]\nmetrics = false";
    let server = TestServer::over(metered(), folder.path(), off)
        .await
        .unwrap();
    ready(&server).await;
    let id = created(&server).await;
    for path in ["", "/watch"] {
        let (status, body) = metrics(&server, &id, path).await;
        assert_eq!(
            (status, &body["code"]),
            (501, &json!("SANDBOX::API_NOT_SUPPORTED"))
        );
    }
    server.stop().await;
}

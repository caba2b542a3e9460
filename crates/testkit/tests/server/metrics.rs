//! Recorded resource use over a simulated runtime, whose sandboxes all use the same.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use osb_protocol::SandboxId;
use osb_runtime::sim::{Options, SimRuntime};
use osb_store::MetricStretch;
use osb_testkit::{TestServer, scaled, wait_until};
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
    first.shutdown_timeout(scaled(PATIENCE));
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
    tokio::time::timeout(scaled(PATIENCE), read)
        .await
        .expect("an end");
    let samples: Vec<Value> = seen
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|sample| serde_json::from_str(sample).unwrap())
        .collect();
    // A stall of this machine makes one of them wrong.
    let mut shares = samples.iter().map(|sample| &sample["cpuCores"]);
    assert!(shares.any(is_a_quarter), "{seen}");
    assert_eq!(samples[2]["memoryBytes"], 64 << 20);
    let (status, _) = metrics(&server, &"none".into(), "/watch").await;
    assert_eq!(status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_takes_room_until_it_ends_and_ends_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let more = "limit_concurrency = 2";
    let server = TestServer::over(metered(), folder.path(), more).await;
    let server = server.unwrap();
    ready(&server).await;
    let id = created(&server).await;
    let new = json!({"name": "k", "role": "operator"});
    let issue = server.request(Method::POST, "/v1/api-keys").json(&new);
    let issued: Value = issue.send().await.unwrap().json().await.unwrap();
    let key = issued["secret"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}/metrics/watch");
    let watch = async || {
        let request = server.request_as(key, Method::GET, &path);
        request.send().await.unwrap()
    };
    let list = async || {
        let request = server.request(Method::GET, "/v1/sandboxes");
        request.send().await.unwrap().status().as_u16()
    };
    let (first, second) = (watch().await, watch().await);
    assert_eq!((first.status().as_u16(), list().await), (200, 503));
    drop(first);
    wait_until("room", list, |status| *status == 200).await;
    let revoked = format!("/v1/api-keys/{}", issued["apiKey"]["id"].as_str().unwrap());
    let revoke = server.request(Method::DELETE, &revoked).send();
    assert!(revoke.await.unwrap().status().is_success());
    let end = tokio::time::timeout(scaled(PATIENCE), second.text());
    end.await.expect("an end").unwrap();
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

/// Sandboxes of the measurement.
const MANY: usize = 1000;
/// Seconds of each step, points of a stored stretch and stretches of a sandbox, as the server has them.
const TRACKS: [(i64, i64, i64); 2] = [(10, 60, 7), (60, 120, 13)];
/// Bytes of a stored point.
const POINT: usize = 28;

/// Processor time of this process in milliseconds, and bytes that it has written.
fn spent() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    // A tick is 10 ms on every Linux that this project builds for.
    (
        (ticks(12) + ticks(13)) * 10,
        written.unwrap().parse().unwrap(),
    )
}

/// Writes a day of samples for each sandbox.
async fn record_a_day(folder: &std::path::Path, ids: &[SandboxId]) {
    let location = osb_testkit::store_in(folder).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let now = jiff::Timestamp::now().as_second();
    for id in ids {
        let mut rows = Vec::new();
        for (step, stretch, places) in TRACKS {
            let last = now / step / stretch - 1;
            rows.extend((last - places + 2..=last).map(|number| MetricStretch {
                id: id.clone(),
                step: u32::try_from(step).unwrap(),
                place: u32::try_from(number % places).unwrap(),
                start: number * stretch * step,
                written_at: now,
                points: vec![1; POINT * usize::try_from(stretch).unwrap()],
            }));
        }
        store.put_metrics(&rows).await.unwrap();
    }
    store.close().await;
}

/// Prints what recording costs the server, beside the same server without it. Figures of a release
/// build count; `sim` answers at once, so reading cgroups is not among them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of eight minutes, to be run alone with --release --nocapture"]
async fn recording_a_thousand_sandboxes_is_measured() {
    let (sim, folder) = (metered(), tempfile::tempdir().unwrap());
    let start = async |more: &str| {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more).await;
        let server = server.unwrap();
        ready(&server).await;
        server
    };
    let first = start("").await;
    let mut ids = Vec::new();
    // They outlive the measurement.
    let mut body = TestServer::good_create();
    body["timeout"] = Value::Null;
    for _ in 0..MANY {
        let made = first.request(Method::POST, "/v1/sandboxes").json(&body);
        let made: Value = made.send().await.unwrap().json().await.unwrap();
        ids.push(SandboxId::from(made["id"].as_str().unwrap()));
    }
    first.stop().await;
    drop(first);
    record_a_day(folder.path(), &ids).await;
    for more in ["[history]\nmetrics = false", ""] {
        let server = start(more).await;
        // Recordings are restored with the first samples.
        tokio::time::sleep(Duration::from_secs(30)).await;
        let before = spent();
        let minutes = 3;
        tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
        let after = spent();
        println!(
            "{more:?}: {} ms of processor time and {} KiB written in a minute",
            (after.0 - before.0) / minutes,
            (after.1 - before.1) / minutes / 1024,
        );
        server.stop().await;
    }
    let location = osb_testkit::store_in(folder.path()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    for id in &ids[..10] {
        let rows = store.metrics(id).await.unwrap();
        let bytes: usize = rows.iter().map(|row| row.points.len()).sum();
        let points = bytes / POINT;
        assert!((1800..=1980).contains(&points), "{points} points of {id}");
    }
    store.close().await;
}

//! A wall clock that is set while the server runs. The clock belongs to the whole process, so there is
//! one test.

use std::sync::Arc;

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::sim::{Options, SimRuntime};
use osb_service::clock;
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const HOUR: i64 = 3600;

/// The time by the clock that the server sees, and so many seconds.
fn in_seconds(seconds: i64) -> WireTime {
    let now = jiff::Timestamp::try_from(clock::now()).unwrap();
    WireTime::new(now).plus_seconds(seconds).unwrap()
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    (status, response.json().await.unwrap_or_default())
}

async fn get(server: &TestServer, id: &SandboxId) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

async fn create(server: &TestServer, timeout: i64) -> SandboxId {
    let mut body = TestServer::good_create();
    body["timeout"] = timeout.into();
    let (status, made) = answer(server.request(Method::POST, "/v1/sandboxes").json(&body)).await;
    assert_eq!(status, 202, "{made}");
    made["id"].as_str().unwrap().into()
}

async fn renew(server: &TestServer, id: &SandboxId, seconds: i64) -> WireTime {
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    let at = in_seconds(seconds);
    let renew = server.request(Method::POST, &path);
    let (status, body) = answer(renew.json(&json!({"expiresAt": at}))).await;
    assert_eq!(status, 200, "{body}");
    at
}

async fn act(server: &TestServer, id: &SandboxId, action: &str) {
    let path = format!("/v1/sandboxes/{id}/{action}");
    let (status, body) = answer(server.request(Method::POST, &path)).await;
    assert_eq!(status, 202, "{action}: {body}");
}

async fn state(server: &TestServer, id: &SandboxId) -> Value {
    get(server, id).await.1["status"]["state"].clone()
}

/// A list such as the one of each minute.
async fn list(server: &TestServer, sim: &SimRuntime) {
    let mut changes = server.service.subscribe();
    let marker = create(server, 5 * HOUR).await;
    sim.emit(sim.look()).await;
    // Behind the list.
    sim.exit(&marker, 3).await;
    loop {
        let change = changes.recv().await.unwrap();
        let failed = change.record.is_some_and(|record| {
            serde_json::to_value(&record.sandbox.status.state).unwrap() == "Failed"
        });
        if change.id == marker && failed {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_clock_is_set() {
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let sim = Arc::new(SimRuntime::with_options(options));
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "");
    let server = server.await.unwrap();
    let lists = || answer(server.request(Method::GET, "/v1/sandboxes"));
    wait_until("the first list", lists, |seen| seen.0 == 200).await;

    let (short, long) = (
        create(&server, HOUR / 2).await,
        create(&server, 2 * HOUR).await,
    );
    let renewed = create(&server, HOUR / 2).await;
    let until = renew(&server, &renewed, 3 * HOUR).await;
    let changed: Vec<SandboxId> = [
        create(&server, 5 * HOUR).await,
        create(&server, 5 * HOUR).await,
        create(&server, 5 * HOUR).await,
    ]
    .into();
    let [paused, ended, vanished] = &changed[..] else {
        unreachable!("three were made");
    };

    // Forward: what is due by the new time goes, soon, and nothing else.
    clock::step(HOUR);
    wait_until("the expiry", || get(&server, &short), |seen| seen.0 == 404).await;
    let end = server.service.history(&short).await.unwrap().unwrap();
    assert_eq!(end.reason, "EXPIRED");
    assert_eq!(get(&server, &long).await.0, 200);
    assert_eq!(get(&server, &renewed).await.1["expiresAt"], json!(until));
    let started = get(&server, &long).await.1["status"]["lastTransitionAt"].clone();
    let young = create(&server, HOUR / 2).await;
    let late = renew(&server, &long, 4 * HOUR).await;

    // Back: nothing ends, and reports count although they are older than what is known.
    clock::step(-HOUR);
    for id in [&long, &renewed, &young] {
        assert_eq!(get(&server, id).await.0, 200);
    }
    assert_eq!(
        get(&server, &long).await.1["expiresAt"],
        json!(late),
        "renewed"
    );
    act(&server, &young, "pause").await;
    assert_eq!(state(&server, &young).await, "Paused");
    act(&server, &young, "resume").await;
    assert_eq!(state(&server, &young).await, "Running");
    list(&server, &sim).await;
    assert_eq!(state(&server, &young).await, "Running");
    let seen = get(&server, &young).await.1;
    let since = seen["status"]["lastTransitionAt"].as_str().unwrap();
    assert!(
        WireTime::parse(since).unwrap() <= in_seconds(0),
        "it begins in the future: {seen}"
    );
    assert_eq!(
        get(&server, &long).await.1["status"]["lastTransitionAt"],
        started,
        "what began before both keeps its time"
    );

    // Far back: everything that is known began in the future.
    clock::step(-3 * HOUR);
    act(&server, paused, "pause").await;
    sim.exit(ended, 0).await;
    sim.vanish(vanished).await;
    wait_until(
        "its end",
        || state(&server, ended),
        |seen| *seen == "Terminated",
    )
    .await;
    wait_until("its loss", || get(&server, vanished), |seen| seen.0 == 404).await;
    list(&server, &sim).await;
    assert_eq!(state(&server, paused).await, "Paused");
    assert_eq!(get(&server, &renewed).await.1["expiresAt"], json!(until));

    // Forward again, beyond every deadline that was not renewed so far.
    clock::step(3 * HOUR + HOUR);
    let gone = |seen: &(StatusCode, Value)| seen.0 == 404;
    renew(&server, &young, 2 * HOUR).await;
    clock::step(HOUR);
    assert_eq!(get(&server, &renewed).await.0, 200);
    assert_eq!(get(&server, &young).await.0, 200);
    clock::step(4 * HOUR);
    for id in [&renewed, &young, &long] {
        wait_until("the expiry", || get(&server, id), gone).await;
    }
    // Throttles of renewals and wrong keys measure intervals, which no step changes.
    let key = server.request_as("wrong", Method::GET, "/v1/sandboxes");
    assert_eq!(answer(key).await.0, 401);
    assert_eq!(lists().await.0, 200);
    server.stop().await;
}

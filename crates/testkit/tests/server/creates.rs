//! Creates whose client goes away, comes back or asks twice, on the wire.

use std::{path::Path, sync::Arc};

use osb_protocol::WireTime;
use osb_runtime::sim::{Faults, SimRuntime};
use osb_service::Supervisor;
use osb_store::{HistoryEntry, Outcome, UnansweredCreate};
use osb_testkit::{API_KEY, TestServer, patience, store_in, wait_until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    time::timeout,
};

/// A runtime whose images come, and whose containers start, when the test says so.
#[derive(Default)]
struct Gates {
    image: Arc<Notify>,
    start: Arc<Notify>,
}

impl Gates {
    fn at_image(&self) -> Faults {
        Faults {
            image_gate: Some(Arc::clone(&self.image)),
            ..Faults::default()
        }
    }

    fn at_start(&self) -> Faults {
        Faults {
            start_gate: Some(Arc::clone(&self.start)),
            ..Faults::default()
        }
    }
}

fn request(key: Option<&str>) -> String {
    let body = TestServer::good_create().to_string();
    let key = key.map_or(String::new(), |key| format!("Idempotency-Key: {key}\r\n"));
    format!(
        "POST /v1/sandboxes HTTP/1.1\r\nHost: test\r\nOPEN-SANDBOX-API-KEY: {API_KEY}\r\n{key}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn asked(server: &TestServer, key: Option<&str>) -> TcpStream {
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(request(key).as_bytes()).await.unwrap();
    client
}

async fn listed(server: &TestServer) -> Vec<Value> {
    let list = server.request(Method::GET, "/v1/sandboxes").send().await;
    let list: Value = list.unwrap().json().await.unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

async fn pending(server: &TestServer) -> String {
    let seen = wait_until("the create", || listed(server), |seen| seen.len() == 1).await;
    seen[0]["id"].as_str().unwrap().to_owned()
}

async fn is_abandoned(server: &TestServer, id: &str) -> HistoryEntry {
    wait_until("the removal", || listed(server), Vec::is_empty).await;
    let entry = server.service.history(&id.into()).await.unwrap().unwrap();
    assert_eq!(
        (entry.outcome, entry.reason.as_str()),
        (Outcome::Abandoned, "ABANDONED"),
        "{entry:?}"
    );
    entry
}

/// Closes with a reset, as a client does that is killed with unread data.
fn reset(client: TcpStream) {
    client.set_zero_linger().unwrap();
    drop(client);
}

async fn create(server: &TestServer, key: Option<&str>, body: &Value) -> (u16, Value) {
    let mut request = server.request(Method::POST, "/v1/sandboxes").json(body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let response = timeout(patience(), request.send()).await.unwrap().unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap())
}

async fn created(server: &TestServer, key: Option<&str>) -> String {
    let (status, body) = create(server, key, &TestServer::good_create()).await;
    assert_eq!(status, 202, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

async fn over(sim: &Arc<SimRuntime>, folder: &Path) -> TestServer {
    let graceful = "timeout_graceful_shutdown = 1";
    let server = TestServer::over(Arc::clone(sim) as _, folder, graceful)
        .await
        .unwrap();
    let ready = async || {
        let ready = server.request(Method::GET, "/ready").send().await;
        ready.unwrap().status().as_u16()
    };
    wait_until("readiness", ready, |status| *status == 200).await;
    server
}

#[tokio::test]
async fn a_client_that_closes_its_connection_leaves_no_sandbox() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gates = Gates::default();
    sim.set_faults(gates.at_start());
    let client = asked(&server, None).await;
    let id = pending(&server).await;
    drop(client);
    // Whether it only sends no more shows when it is answered.
    gates.start.notify_one();
    is_abandoned(&server, &id).await;
    assert!(sim.sandboxes().is_empty());

    // A reset shows at once.
    let client = asked(&server, None).await;
    let id = pending(&server).await;
    reset(client);
    is_abandoned(&server, &id).await;
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_closed_before_the_request_was_read_leaves_no_sandbox() {
    let (server, sim) = TestServer::sim().await.unwrap();
    for _ in 0..8 {
        drop(asked(&server, None).await);
        let seen = async || server.service.recent_history(0, 1).await.unwrap();
        let newest = wait_until("its end", seen, |seen| !seen.is_empty()).await;
        assert_eq!(newest[0].outcome, Outcome::Abandoned);
        wait_until("the removal", async || sim.sandboxes(), Vec::is_empty).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn an_image_pull_outlives_the_client() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gates = Gates::default();
    sim.set_faults(gates.at_image());
    let client = asked(&server, None).await;
    let id = pending(&server).await;
    reset(client);
    let stopping = |seen: &Vec<Value>| seen[0]["status"]["state"] == "Stopping";
    wait_until("the intent", || listed(&server), stopping).await;
    gates.image.notify_one();
    let entry = is_abandoned(&server, &id).await;
    assert!(
        entry.stages.iter().any(|at| at.stage == "image"),
        "{entry:?}"
    );
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_only_sends_no_more_is_answered() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gates = Gates::default();
    sim.set_faults(gates.at_start());
    let mut client = asked(&server, None).await;
    client.shutdown().await.unwrap();
    let id = pending(&server).await;
    gates.start.notify_one();
    let mut answer = String::new();
    let read = client.read_to_string(&mut answer);
    timeout(patience(), read).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert!(answer.contains(&id));

    // A refusal reaches it too.
    sim.set_faults(Faults {
        start_fails: Some("no such device".into()),
        ..Faults::default()
    });
    let mut client = asked(&server, None).await;
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    let read = client.read_to_string(&mut answer);
    timeout(patience(), read).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    server.stop().await;
    assert_eq!(sim.sandboxes(), [id.as_str().into()]);
}

#[tokio::test]
async fn a_stream_that_is_reset_leaves_no_sandbox() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gates = Gates::default();
    sim.set_faults(gates.at_start());
    let http2 = reqwest::Client::builder().http2_prior_knowledge();
    let http2 = http2.build().unwrap();
    let post = || {
        http2
            .post(format!("http://{}/v1/sandboxes", server.address))
            .header("OPEN-SANDBOX-API-KEY", API_KEY)
            .json(&TestServer::good_create())
            .send()
    };
    let gone = Supervisor::new().spawn("create", post());
    let id = pending(&server).await;
    gone.abort();
    is_abandoned(&server, &id).await;
    assert!(sim.sandboxes().is_empty());

    // The connection goes on; who waits is answered and keeps its sandbox.
    gates.start.notify_one();
    let kept = post().await.unwrap();
    assert_eq!(kept.status().as_u16(), 202);
    let kept: Value = kept.json().await.unwrap();
    server.stop().await;
    assert_eq!(sim.sandboxes(), [kept["id"].as_str().unwrap().into()]);
}

#[tokio::test]
async fn the_servers_own_end_removes_nothing() {
    let sim = Arc::new(SimRuntime::new());
    let folder = tempfile::tempdir().unwrap();
    let gates = Gates::default();
    sim.set_faults(gates.at_start());
    let server = over(&sim, folder.path()).await;
    let mut client = asked(&server, None).await;
    let id = pending(&server).await;
    let cut = async {
        let mut rest = Vec::new();
        // Cut without an answer when the time is up.
        let _ = timeout(patience(), client.read_to_end(&mut rest))
            .await
            .unwrap();
        gates.start.notify_one();
        rest
    };
    let ((), rest) = tokio::join!(server.stop(), cut);
    assert_eq!(rest, b"");
    drop(server);
    let server = over(&sim, folder.path()).await;
    server.service.reconcile().await;
    let seen = listed(&server).await;
    assert_eq!(seen[0]["id"], id.as_str());
    assert_eq!(seen[0]["status"]["state"], "Running");
    server.stop().await;
}

/// Runs a server in a process of its own, as far as tasks are concerned, and kills it.
fn killed<T>(work: impl Future<Output = T>) -> T {
    let process = tokio::runtime::Runtime::new().unwrap();
    let result = process.block_on(work);
    process.shutdown_timeout(patience());
    result
}

#[test]
fn a_crash_at_any_step_leaves_no_sandbox_that_no_client_knows() {
    let sim = Arc::new(SimRuntime::new());
    let folder = tempfile::tempdir().unwrap();
    let gates = Gates::default();
    // Without a container, with one that never started, and with one that runs.
    for step in ["image", "start", "answer"] {
        let id = killed(async {
            sim.set_faults(Faults::default());
            let server = over(&sim, folder.path()).await;
            if step == "answer" {
                return created(&server, None).await;
            }
            sim.set_faults(match step {
                "image" => gates.at_image(),
                _ => gates.at_start(),
            });
            let client = asked(&server, None).await;
            let id = pending(&server).await;
            // The create is listed before its mark is stored. Once the mark is, the runtime has it,
            // with a copy of the faults.
            let gate = match step {
                "image" => &gates.image,
                _ => &gates.start,
            };
            let owners = async || Arc::strong_count(gate);
            wait_until("the create at its gate", owners, |owners| *owners >= 3).await;
            std::mem::forget(client);
            id
        });
        killed(async {
            sim.set_faults(Faults::default());
            if step == "answer" {
                left_unanswered(folder.path(), &id).await;
            }
            let server = over(&sim, folder.path()).await;
            server.service.reconcile().await;
            is_abandoned(&server, &id).await;
            wait_until(step, async || sim.sandboxes(), Vec::is_empty).await;
        });
    }
    // What was answered is its client's.
    let id = killed(async {
        let server = over(&sim, folder.path()).await;
        created(&server, None).await
    });
    killed(async {
        let server = over(&sim, folder.path()).await;
        server.service.reconcile().await;
        assert_eq!(listed(&server).await[0]["id"], id.as_str());
    });
    assert_eq!(sim.sandboxes(), [id.as_str().into()]);
}

#[test]
fn a_graceful_stop_keeps_what_a_crash_left_unanswered() {
    let sim = Arc::new(SimRuntime::new());
    let folder = tempfile::tempdir().unwrap();
    let id = killed(async {
        let server = over(&sim, folder.path()).await;
        created(&server, None).await
    });
    killed(async {
        left_unanswered(folder.path(), &id).await;
        sim.go_down("the engine has not started yet").await;
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        server.unwrap().stop().await;
        sim.come_back().await;
    });
    killed(async {
        let server = over(&sim, folder.path()).await;
        server.service.reconcile().await;
        is_abandoned(&server, &id).await;
        wait_until("the removal", async || sim.sandboxes(), Vec::is_empty).await;
    });
}

/// Marks a create as the store has it until just before the answer is written.
async fn left_unanswered(folder: &Path, id: &str) {
    let location = store_in(folder).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let create = UnansweredCreate {
        id: id.into(),
        image: String::new(),
        created_at: WireTime::from_unix_us(1).unwrap(),
        tenant: None,
    };
    store.set_unanswered(&create).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn requests_with_one_key_make_one_sandbox() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gates = Gates::default();
    sim.set_faults(gates.at_start());
    let body = TestServer::good_create();
    let at_once = (0..8).map(|_| create(&server, Some("k"), &body));
    let open = async {
        pending(&server).await;
        let mut other = body.clone();
        other["timeout"] = json!(601);
        let (status, refused) = create(&server, Some("k"), &other).await;
        assert_eq!(
            (status, &refused["detail"][0]["loc"]),
            (422, &json!(["header", "Idempotency-Key"]))
        );
        gates.start.notify_one();
        other
    };
    let (answers, other) = tokio::join!(futures::future::join_all(at_once), open);
    let id = answers[0].1["id"].as_str().unwrap().to_owned();
    for (status, answer) in &answers {
        assert_eq!((*status, &answer["id"]), (202, &json!(id)));
    }
    assert_eq!(created(&server, Some("k")).await, id, "also afterwards");
    assert_eq!(create(&server, Some("k"), &other).await.0, 422);
    sim.set_faults(Faults::default());
    assert_ne!(created(&server, Some("another")).await, id);
    assert_eq!(sim.sandboxes().len(), 2);

    let path = format!("/v1/sandboxes/{id}");
    let gone = server
        .request(Method::DELETE, &path)
        .header("Prefer", "wait");
    assert_eq!(gone.send().await.unwrap().status().as_u16(), 204);
    let (status, refused) = create(&server, Some("k"), &body).await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains(&id));
    server.stop().await;
}

#[tokio::test]
async fn a_key_that_made_nothing_is_free() {
    let (server, sim) = TestServer::sim().await.unwrap();
    sim.set_faults(Faults {
        start_fails: Some("no such device".into()),
        ..Faults::default()
    });
    let body = TestServer::good_create();
    let at_once = (0..4).map(|_| create(&server, Some("k"), &body));
    for (status, failed) in futures::future::join_all(at_once).await {
        assert_eq!(
            (status, &failed["code"]),
            (500, &json!("DOCKER::SANDBOX_START_FAILED"))
        );
    }
    sim.set_faults(Faults::default());
    let mut wrong = body.clone();
    wrong["timeout"] = json!(1);
    assert_eq!(create(&server, Some("k"), &wrong).await.0, 422);
    created(&server, Some("k")).await;
    for bad in [String::new(), "x".repeat(256), "a\tb".to_owned()] {
        let (status, refused) = create(&server, Some(&bad), &body).await;
        assert_eq!(status, 400, "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("Idempotency-Key: "), "{message}");
    }
    let two = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let two = two
        .header("Idempotency-Key", "a")
        .header("Idempotency-Key", "b");
    assert_eq!(two.send().await.unwrap().status().as_u16(), 400);
    server.stop().await;
}

#[test]
fn a_key_outlives_the_client_and_the_server() {
    let sim = Arc::new(SimRuntime::new());
    let folder = tempfile::tempdir().unwrap();
    let gates = Gates::default();
    let id = killed(async {
        let server = over(&sim, folder.path()).await;
        sim.set_faults(gates.at_start());
        let client = asked(&server, Some("k")).await;
        let id = pending(&server).await;
        reset(client);
        gates.start.notify_one();
        let runs = |seen: &Vec<Value>| seen[0]["status"]["state"] == "Running";
        wait_until("the start", || listed(&server), runs).await;
        id
    });
    sim.set_faults(Faults::default());
    killed(async {
        let server = over(&sim, folder.path()).await;
        server.service.reconcile().await;
        assert_eq!(created(&server, Some("k")).await, id);
        // A create that the crash of the server ended.
        sim.set_faults(gates.at_image());
        let client = asked(&server, Some("cut")).await;
        wait_until("the create", || listed(&server), |seen| seen.len() == 2).await;
        std::mem::forget(client);
    });
    sim.set_faults(Faults::default());
    killed(async {
        let server = over(&sim, folder.path()).await;
        assert_ne!(created(&server, Some("cut")).await, id);
        assert_eq!(created(&server, Some("k")).await, id);
    });
    assert_eq!(sim.sandboxes().len(), 2);
}

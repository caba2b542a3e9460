//! Pause and resume over a simulated runtime, whose freezer can be stopped and broken.

use std::sync::Arc;

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{
    Role, RuntimeEvent,
    sim::{Faults, Options, SimRuntime},
};
use osb_server::sandbox::{Record, RuntimeHealth};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;

async fn start() -> (TestServer, Arc<SimRuntime>) {
    let options = Options {
        powers: true,
        sidecar: true,
        ..Options::default()
    };
    let (server, sim) = TestServer::sim_with(options).await.unwrap();
    let mut health = server.service.registry().watch_health();
    let up = |health: &RuntimeHealth| *health == RuntimeHealth::Up;
    health.wait_for(up).await.unwrap();
    (server, sim)
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    let body = match text.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    (status.as_u16(), body)
}

async fn created(server: &TestServer) -> SandboxId {
    let request = server.request(Method::POST, "/v1/sandboxes");
    let (status, body) = answer(request.json(&TestServer::good_create())).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    SandboxId::from(body["id"].as_str().unwrap())
}

async fn get(server: &TestServer, id: &SandboxId) -> (u16, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

async fn state(server: &TestServer, id: &SandboxId) -> Value {
    get(server, id).await.1["status"]["state"].clone()
}

async fn post(server: &TestServer, id: &SandboxId, verb: &str) -> (u16, Value) {
    answer(server.request(Method::POST, &format!("/v1/sandboxes/{id}/{verb}"))).await
}

async fn renew(server: &TestServer, id: &SandboxId, at: &str) -> (u16, Value) {
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    let request = server.request(Method::POST, &path);
    answer(request.json(&json!({"expiresAt": at}))).await
}

async fn patch(server: &TestServer, id: &SandboxId) -> (u16, Value) {
    let path = format!("/v1/sandboxes/{id}/metadata");
    let request = server.request(Method::PATCH, &path);
    answer(request.json(&json!({"team": "core"}))).await
}

async fn delete(server: &TestServer, id: &SandboxId) -> (u16, Value) {
    answer(server.request(Method::DELETE, &format!("/v1/sandboxes/{id}"))).await
}

async fn gone(server: &TestServer, sim: &SimRuntime, id: &SandboxId) {
    wait_until("the end", || get(server, id), |seen| seen.0 == 404).await;
    assert_eq!(sim.sandboxes(), []);
}

#[track_caller]
fn refused(seen: &(u16, Value), status: u16, code: &str) {
    assert_eq!(
        (seen.0, &seen.1["code"]),
        (status, &json!(code)),
        "{seen:?}"
    );
}

fn now() -> WireTime {
    WireTime::new(jiff::Timestamp::now())
}

const LATER: &str = "2099-01-01T00:00:00Z";
const NOT_RUNNING: &str = "DOCKER::SANDBOX_NOT_RUNNING";
const NOT_PAUSED: &str = "DOCKER::SANDBOX_NOT_PAUSED";

#[tokio::test]
async fn an_answered_pause_is_complete_under_both_prefixes() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    for prefix in ["", "/v1"] {
        for (verb, seen, frozen) in [
            ("pause", "Paused", vec![Role::Main, Role::Egress]),
            ("resume", "Running", vec![]),
        ] {
            let before = now();
            let path = format!("{prefix}/sandboxes/{id}/{verb}");
            // No body is read, so it may be anything.
            let request = server.request(Method::POST, &path).body("{not json");
            assert_eq!(answer(request).await, (202, Value::Null));
            assert_eq!(sim.frozen(&id), frozen);
            let status = get(&server, &id).await.1["status"].clone();
            assert_eq!(status["state"], seen, "{status}");
            let at = WireTime::parse(status["lastTransitionAt"].as_str().unwrap()).unwrap();
            assert!(
                before.unix_us() / 1000 <= at.unix_us() / 1000 && at <= now(),
                "{status}"
            );
            let (code, twice) = match verb {
                "pause" => (NOT_RUNNING, "is not running, so it cannot be paused"),
                _ => (NOT_PAUSED, "is not paused, so it cannot be resumed"),
            };
            let again = post(&server, &id, verb).await;
            refused(&again, 409, code);
            assert!(
                again.1["message"].as_str().unwrap().ends_with(twice),
                "{again:?}"
            );
            let keyless = answer(server.bare(Method::POST, &path)).await;
            assert_eq!(keyless.0, 401, "{keyless:?}");
            let wrong = answer(server.request(Method::GET, &path)).await;
            assert_eq!(wrong.0, 405, "{wrong:?}");
        }
    }
    for verb in ["pause", "resume"] {
        let unknown = post(&server, &"missing".into(), verb).await;
        refused(&unknown, 404, "DOCKER::SANDBOX_NOT_FOUND");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_paused_sandbox_is_found_changed_and_removed() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    assert_eq!(post(&server, &id, "pause").await.0, 202);
    let paused = get(&server, &id).await.1["status"].clone();
    let found = server.request(Method::GET, "/v1/sandboxes?state=Paused");
    assert_eq!(answer(found).await.1["items"][0]["id"], id.as_str());
    assert_eq!(renew(&server, &id, LATER).await.0, 200);
    assert_eq!(patch(&server, &id).await.0, 200);
    let (_, shown) = get(&server, &id).await;
    assert_eq!(
        (&shown["expiresAt"], &shown["metadata"]["team"]),
        (&json!(LATER), &json!("core"))
    );
    assert_eq!(shown["status"], paused);
    // It is still there after the delete, so that the answer is about a sandbox that ends.
    sim.set_faults(Faults {
        remove_fails: Some("not yet".to_owned()),
        ..Faults::default()
    });
    assert_eq!(delete(&server, &id).await.0, 204);
    refused(&post(&server, &id, "resume").await, 409, NOT_PAUSED);
    sim.set_faults(Faults::default());
    server.service.reconcile().await;
    gone(&server, &sim, &id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_paused_sandbox_expires() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    assert_eq!(post(&server, &id, "pause").await.0, 202);
    let soon = now().plus_seconds(1).unwrap().to_string();
    assert_eq!(renew(&server, &id, &soon).await.0, 200);
    gone(&server, &sim, &id).await;
    let history = server.service.recent_history(0, 1).await.unwrap();
    assert_eq!(history[0].reason, "EXPIRED");
    server.stop().await;
}

#[tokio::test]
async fn the_proxy_refuses_a_paused_sandbox_at_once() {
    let (server, _sim) = start().await;
    let id = created(&server).await;
    assert_eq!(post(&server, &id, "pause").await.0, 202);
    for path in ["44772/ping", "8000/", "44772/command"] {
        let path = format!("/v1/sandboxes/{id}/proxy/{path}");
        let seen = answer(server.request(Method::POST, &path)).await;
        refused(&seen, 409, NOT_RUNNING);
        let message = format!("sandbox {id} is paused: it answers after it is resumed");
        assert_eq!(seen.1["message"], message);
    }
    server.stop().await;
}

/// A pause or resume that has reached the freezer and waits there.
struct Gate {
    notify: Arc<Notify>,
}

impl Gate {
    fn set(sim: &SimRuntime) -> Self {
        let notify = Arc::<Notify>::default();
        sim.set_faults(Faults {
            pause_gate: Some(Arc::clone(&notify)),
            ..Faults::default()
        });
        Self { notify }
    }

    /// Lets the next, or the waiting, change pass.
    fn open(&self, sim: &SimRuntime) {
        sim.set_faults(Faults::default());
        self.notify.notify_one();
    }

    /// Waits until a change holds the gate.
    async fn reached(&self) {
        wait_until(
            "a change at the freezer",
            async || Arc::strong_count(&self.notify),
            |count| *count > 2,
        )
        .await;
    }
}

/// A change of a sandbox while it is being paused or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Pause,
    Resume,
    Renew,
    Patch,
    Delete,
    Expire,
}

/// All orders of a few calls.
fn orders(calls: &[Call]) -> Vec<Vec<Call>> {
    if calls.is_empty() {
        return vec![Vec::new()];
    }
    let each = calls.iter().enumerate().flat_map(|(at, first)| {
        let mut rest = calls.to_vec();
        rest.remove(at);
        orders(&rest).into_iter().map(move |mut order| {
            order.insert(0, *first);
            order
        })
    });
    each.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_any_order_during_a_change_leave_one_truth() {
    use Call::{Delete, Expire, Patch, Pause, Renew, Resume};
    let (server, sim) = start().await;
    let sets = [
        ("pause", vec![Pause, Resume, Renew, Patch]),
        ("resume", vec![Resume, Renew, Patch, Delete]),
        ("pause", vec![Pause, Resume, Expire]),
    ];
    for (held, set) in sets {
        for order in orders(&set) {
            let id = created(&server).await;
            if held == "resume" {
                assert_eq!(post(&server, &id, "pause").await.0, 202);
            }
            let gate = Gate::set(&sim);
            let first = post(&server, &id, held);
            let others = async {
                gate.reached().await;
                let calls = order.iter().map(|call| async {
                    match call {
                        Pause => post(&server, &id, "pause").await,
                        Resume => post(&server, &id, "resume").await,
                        Renew => renew(&server, &id, LATER).await,
                        Patch => patch(&server, &id).await,
                        Delete => delete(&server, &id).await,
                        Expire => {
                            let due = now().plus_seconds(1).unwrap().to_string();
                            renew(&server, &id, &due).await
                        }
                    }
                });
                let calls = futures::future::join_all(calls);
                // Renewals, patches and deletes do not wait for the freezer.
                let opened = async {
                    if order.contains(&Patch) {
                        let record = async || server.service.registry().get(&id);
                        let is_patched = |seen: &Option<_>| seen.as_ref().is_none_or(is_patched);
                        wait_until("the patch", record, is_patched).await;
                    }
                    gate.open(&sim);
                };
                tokio::join!(calls, opened).0
            };
            let (first, others) = tokio::join!(first, others);
            assert_eq!(first.0, 202, "{order:?}: {first:?}");
            for (call, (status, body)) in order.iter().zip(others) {
                let fits = match call {
                    Pause | Resume => matches!(status, 202 | 409 | 404),
                    Renew | Patch | Expire => matches!(status, 200 | 409 | 404),
                    Delete => status == 204,
                };
                assert!(fits, "{call:?} in {order:?}: {status} {body}");
            }
            if order.iter().any(|call| matches!(call, Delete | Expire)) {
                gone(&server, &sim, &id).await;
                continue;
            }
            let expected = if sim.frozen(&id).is_empty() {
                "Running"
            } else {
                "Paused"
            };
            let seen = || state(&server, &id);
            wait_until("the truth", seen, |seen| seen == expected).await;
            assert_eq!(get(&server, &id).await.1["expiresAt"], LATER);
            assert_eq!(delete(&server, &id).await.0, 204);
            gone(&server, &sim, &id).await;
        }
    }
    server.stop().await;
}

fn is_patched(record: &Arc<Record>) -> bool {
    record.facts.metadata().contains_key("team") || record.facts.is_deleted()
}

#[tokio::test]
async fn a_pause_goes_on_without_its_client() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    let gate = Gate::set(&sim);
    let path = format!("/v1/sandboxes/{id}/pause");
    let mut request = Box::pin(answer(server.request(Method::POST, &path)));
    tokio::select! {
        seen = &mut request => panic!("{seen:?}"),
        () = gate.reached() => drop(request),
    }
    gate.open(&sim);
    wait_until("the pause", || state(&server, &id), |seen| seen == "Paused").await;
    assert_eq!(sim.frozen(&id), [Role::Main, Role::Egress]);
    server.stop().await;
}

#[tokio::test]
async fn a_failure_names_its_reason_and_changes_nothing() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    let broken = |role| Faults {
        pause_fails: Some(role),
        ..Faults::default()
    };
    for role in Role::ALL {
        sim.set_faults(broken(role));
        let seen = post(&server, &id, "pause").await;
        refused(&seen, 500, "DOCKER::SANDBOX_PAUSE_FAILED");
        assert!(
            seen.1["message"].as_str().unwrap().contains(role.as_str()),
            "{seen:?}"
        );
        assert_eq!(
            (state(&server, &id).await, sim.frozen(&id)),
            (json!("Running"), vec![])
        );
        sim.set_faults(Faults::default());
        assert_eq!(post(&server, &id, "pause").await.0, 202);
        sim.set_faults(broken(role));
        let seen = post(&server, &id, "resume").await;
        refused(&seen, 500, "DOCKER::SANDBOX_RESUME_FAILED");
        assert_eq!(state(&server, &id).await, "Paused");
        assert_eq!(sim.frozen(&id), Role::ALL);
        sim.set_faults(Faults::default());
        assert_eq!(post(&server, &id, "resume").await.0, 202);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_unavailable_engine_is_reported_and_its_late_success_is_seen() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    // Away before the call, and during it.
    sim.go_down("a test").await;
    let away = || post(&server, &id, "pause");
    let away = wait_until("the loss", away, |seen| seen.0 == 503).await;
    refused(&away, 503, "GENERAL::RUNTIME_UNAVAILABLE");
    sim.come_back().await;
    wait_until("the engine", || get(&server, &id), |seen| seen.0 == 200).await;
    let gate = Gate::set(&sim);
    let during = async {
        gate.reached().await;
        sim.go_down("a test").await;
        gate.open(&sim);
    };
    let (seen, ()) = tokio::join!(post(&server, &id, "pause"), during);
    refused(&seen, 503, "GENERAL::RUNTIME_UNAVAILABLE");
    sim.come_back().await;
    wait_until(
        "the engine",
        || state(&server, &id),
        |seen| seen == "Running",
    )
    .await;
    // It acts, and its answer is lost.
    sim.set_faults(Faults {
        pause_answer_lost: true,
        ..Faults::default()
    });
    for (verb, expected) in [("pause", "Paused"), ("resume", "Running")] {
        let seen = post(&server, &id, verb).await;
        refused(&seen, 503, "GENERAL::RUNTIME_UNAVAILABLE");
        wait_until("the event", || state(&server, &id), |seen| seen == expected).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_is_refused_at_once() {
    let (server, sim) = start().await;
    let gate = Arc::<Notify>::default();
    sim.set_faults(Faults {
        start_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    let id = server.service.accept(TestServer::good_create());
    let id = id.await.unwrap();
    // The create holds the sandbox, and nothing waits for it.
    refused(&post(&server, &id, "pause").await, 409, NOT_RUNNING);
    refused(&post(&server, &id, "resume").await, 409, NOT_PAUSED);
    gate.notify_one();
    wait_until(
        "the start",
        || state(&server, &id),
        |seen| seen == "Running",
    )
    .await;
    sim.exit(&id, 0).await;
    wait_until(
        "its end",
        || state(&server, &id),
        |seen| seen == "Terminated",
    )
    .await;
    refused(&post(&server, &id, "pause").await, 409, NOT_RUNNING);
    refused(&post(&server, &id, "resume").await, 409, NOT_PAUSED);
    server.stop().await;
}

#[tokio::test]
async fn an_operators_pause_counts_and_an_old_event_does_not() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    sim.freeze_by_operator(&id, true).await;
    wait_until("the pause", || state(&server, &id), |seen| seen == "Paused").await;
    let paused_at = now();
    assert_eq!(post(&server, &id, "resume").await.0, 202);
    sim.emit(RuntimeEvent::Paused {
        id: id.clone(),
        paused: true,
        at: paused_at.plus_seconds(-60).unwrap(),
    })
    .await;
    // A later event shows that the old one was handled.
    let other = created(&server).await;
    sim.freeze_by_operator(&other, true).await;
    wait_until(
        "the pause",
        || state(&server, &other),
        |seen| seen == "Paused",
    )
    .await;
    assert_eq!(state(&server, &id).await, "Running");
    // Frozen while events were lost: the time is that of the list, not that of the start.
    sim.go_down("a test").await;
    sim.freeze_by_operator(&other, false).await;
    let before = now();
    sim.come_back().await;
    wait_until(
        "the list",
        || state(&server, &other),
        |seen| seen == "Running",
    )
    .await;
    let status = get(&server, &other).await.1["status"].clone();
    let at = WireTime::parse(status["lastTransitionAt"].as_str().unwrap()).unwrap();
    assert!(
        at <= now() && at > before.plus_seconds(-60).unwrap(),
        "{status}"
    );
    server.stop().await;
}

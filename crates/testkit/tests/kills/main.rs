//! The server is killed at each of its steps, before and after the step takes effect, and started
//! again. Whatever the step, nothing is lost and nothing is left behind.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod fuse;
mod pools;
mod runtime;
mod snapshots;
mod store;
mod templates;
mod webhooks;

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use osb_protocol::WireTime;
use osb_runtime::{
    EXECD_PORT, Phase,
    sim::{Faults, Options, SimRuntime},
};
use osb_service::Supervisor;
use osb_testkit::{
    CannedProgram, TestServer, patience, running_at, scaled, soon, store_in, wait_until,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use self::{
    fuse::{Fuse, Side},
    runtime::KilledRuntime,
    store::KilledStore,
};

/// More steps than any operation takes.
const MOST: usize = 60;
/// Key of repeated creates.
const KEY: &str = "one-create";
/// Expiry that renewals ask for.
const RENEWED: &str = "2100-01-01T00:00:00Z";

/// Operation during which the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    CreateWithKey,
    Renew,
    Patch,
    Pause,
    Resume,
    Delete,
}

impl Operation {
    /// Sends the request; returns the status and the body.
    async fn send(self, server: &TestServer, id: &str) -> (u16, Value) {
        let of = |rest: &str| format!("/v1/sandboxes/{id}{rest}");
        let request = match self {
            Self::Create => server
                .request(Method::POST, "/v1/sandboxes")
                .json(&TestServer::good_create()),
            Self::CreateWithKey => server
                .request(Method::POST, "/v1/sandboxes")
                .header("Idempotency-Key", KEY)
                .json(&TestServer::good_create()),
            Self::Renew => server
                .request(Method::POST, &of("/renew-expiration"))
                .json(&json!({ "expiresAt": RENEWED })),
            Self::Patch => server
                .request(Method::PATCH, &of("/metadata"))
                .json(&json!({ "patched": "yes" })),
            Self::Pause => server.request(Method::POST, &of("/pause")),
            Self::Resume => server.request(Method::POST, &of("/resume")),
            Self::Delete => server.request(Method::DELETE, &of("")),
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    fn creates(self) -> bool {
        matches!(self, Self::Create | Self::CreateWithKey)
    }
}

/// Runs a server in a process of its own, as far as tasks are concerned, and kills it.
fn killed<T>(work: impl Future<Output = T>) -> T {
    let process = tokio::runtime::Runtime::new().unwrap();
    let result = process.block_on(async { tokio::time::timeout(patience(), work).await.unwrap() });
    process.shutdown_timeout(patience());
    result
}

async fn ready(server: &TestServer) {
    let ready = async || {
        let ready = server.request(Method::GET, "/ready").send().await;
        ready.unwrap().status().as_u16()
    };
    wait_until("readiness", ready, |status| *status == 200).await;
}

async fn listed(server: &TestServer) -> Vec<Value> {
    let list = server.request(Method::GET, "/v1/sandboxes").send().await;
    let list: Value = list.unwrap().json().await.unwrap();
    list["items"].as_array().cloned().unwrap()
}

/// World that outlives the server.
struct World {
    sim: Arc<SimRuntime>,
    folder: tempfile::TempDir,
    answering: Arc<AtomicBool>,
    is_lost: Arc<AtomicBool>,
    is_unreachable: Arc<AtomicBool>,
    subscriptions: Arc<store::Gate>,
    refused: Arc<AtomicUsize>,
    deletions: Arc<tokio::sync::RwLock<()>>,
    destroying: Arc<AtomicUsize>,
}

/// What a client knows of an operation when the server was killed.
struct Known {
    /// The sandbox that the operation is about, if it existed before.
    id: Option<String>,
    /// Status and body of the answer, unless the kill came first.
    answer: Option<(u16, Value)>,
}

impl World {
    fn new() -> Self {
        let options = Options {
            powers: true,
            sidecar: true,
            ..Options::default()
        };
        Self {
            sim: Arc::new(SimRuntime::with_options(options)),
            folder: tempfile::tempdir().unwrap(),
            answering: Arc::default(),
            is_lost: Arc::default(),
            is_unreachable: Arc::default(),
            subscriptions: Arc::default(),
            refused: Arc::default(),
            deletions: Arc::default(),
            destroying: Arc::default(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a server that no one kills.
    async fn server(&self) -> TestServer {
        let server = TestServer::over(Arc::clone(&self.sim) as _, self.path(), "");
        let server = server.await.unwrap();
        ready(&server).await;
        server
    }

    /// Starts a server that is killed by the fuse.
    async fn mortal(&self, fuse: &Arc<Fuse>) -> TestServer {
        self.mortal_with(fuse, "").await
    }

    /// The same, with further lines of configuration.
    async fn mortal_with(&self, fuse: &Arc<Fuse>, more: &str) -> TestServer {
        let location = store_in(self.path()).await.unwrap();
        let inner = osb_store::open(&location).await.unwrap();
        let store = KilledStore {
            inner,
            fuse: Arc::clone(fuse),
            answering: Arc::clone(&self.answering),
            is_lost: Arc::clone(&self.is_lost),
            is_unreachable: Arc::clone(&self.is_unreachable),
            subscriptions: Arc::clone(&self.subscriptions),
            refused: Arc::clone(&self.refused),
            deletions: Arc::clone(&self.deletions),
        };
        let runtime = KilledRuntime {
            inner: Arc::clone(&self.sim),
            fuse: Arc::clone(fuse),
            destroying: Arc::clone(&self.destroying),
        };
        let server = TestServer::assemble(Arc::new(runtime), Arc::new(store), more);
        let server = server.await.unwrap();
        ready(&server).await;
        server
    }

    /// Sends the operation to a server that is killed at a step.
    fn kill_at(&self, operation: Operation, step: usize, side: Side) -> Known {
        let fuse = Arc::new(Fuse::new(step, side));
        killed(async {
            let server = self.mortal(&fuse).await;
            let mut id = None;
            if !operation.creates() {
                let (status, body) = Operation::Create.send(&server, "").await;
                assert_eq!(status, 202, "{body}");
                id = body["id"].as_str().map(str::to_owned);
            }
            let about = id.clone().unwrap_or_default();
            if operation == Operation::Resume {
                let (status, body) = Operation::Pause.send(&server, &about).await;
                assert_eq!(status, 202, "{body}");
            }
            fuse.arm();
            let answer = tokio::select! {
                biased;
                () = fuse.burn() => None,
                answer = operation.send(&server, &about) => Some(answer),
            };
            Known { id, answer }
        })
    }

    /// Starts the server again and kills it at a step of its recovery. Returns whether it had so many
    /// steps.
    fn kill_recovery_at(&self, step: usize, side: Side) -> bool {
        let fuse = Arc::new(Fuse::new(step, side));
        fuse.arm();
        killed(async {
            let recovered = async {
                let server = self.mortal(&fuse).await;
                server.service.reconcile().await;
            };
            tokio::select! {
                biased;
                () = fuse.burn() => true,
                () = recovered => false,
            }
        })
    }

    /// Starts a server again, and checks what it finds against what the client knows.
    fn check(&self, operation: Operation, known: &Known) {
        let answer = known.answer.as_ref();
        killed(async {
            let server = self.server().await;
            server.service.reconcile().await;
            let agreed = async || {
                let listed = listed(&server).await;
                let ids: Vec<_> = listed.iter().map(|one| one["id"].clone()).collect();
                let existing = self.sim.sandboxes();
                (
                    ids == existing.iter().map(|id| json!(id)).collect::<Vec<_>>(),
                    listed,
                )
            };
            let (_, seen) = wait_until("list and runtime agree", agreed, |(agreed, seen)| {
                *agreed && seen.iter().all(|one| one["status"]["state"] != "Stopping")
            })
            .await;
            let answered = answer.map(|(status, _)| *status);
            assert!(answered.is_none_or(|status| status < 300), "{answer:?}");
            match operation {
                Operation::Create => {
                    let found = seen.first().map(|one| &one["id"]);
                    let known = answer.map(|(_, body)| &body["id"]);
                    // Whether the client has an answer cannot be known once it is being written.
                    let unsure = answer.is_none() && self.answering.load(SeqCst);
                    assert!(
                        found == known || unsure,
                        "{found:?}, the client knows {known:?}"
                    );
                }
                Operation::CreateWithKey => {
                    // The client asks again, and gets the first one if there is one.
                    let (status, again) = operation.send(&server, "").await;
                    assert_eq!(status, 202, "{again}");
                    if let Some((_, body)) = answer {
                        assert_eq!(body["id"], again["id"]);
                    }
                    assert_eq!(self.sim.sandboxes().len(), 1);
                }
                Operation::Delete => {
                    let gone = seen.is_empty();
                    assert!(gone || answered.is_none(), "a removed sandbox is back");
                }
                _ => {
                    let id = known.id.as_deref().unwrap();
                    self.check_kept(operation, &seen, id, answered.is_some());
                }
            }
            for one in &seen {
                let state = &one["status"]["state"];
                assert!(state == "Running" || state == "Paused", "{one}");
            }
        });
    }

    fn check_kept(&self, operation: Operation, seen: &[Value], id: &str, answered: bool) {
        let [sandbox] = seen else {
            panic!("one sandbox, not {seen:?}");
        };
        assert_eq!(sandbox["id"], id);
        let is_new = match operation {
            Operation::Renew => sandbox["expiresAt"] == RENEWED,
            Operation::Patch => sandbox["metadata"]["patched"] == "yes",
            Operation::Pause => sandbox["status"]["state"] == "Paused",
            _ => sandbox["status"]["state"] == "Running",
        };
        assert!(is_new || !answered, "{operation:?} was undone: {sandbox}");
        // All containers are frozen, or none.
        let paused = sandbox["status"]["state"] == "Paused";
        let frozen = self.sim.frozen(&id.into()).len();
        assert_eq!(frozen, if paused { 2 } else { 0 }, "{sandbox}");
    }
}

/// Kills the server at each step of an operation. Returns the number of steps.
fn kill_everywhere(operation: Operation, side: Side) -> usize {
    for step in 0..MOST {
        eprintln!("{operation:?}, killed {side:?} step {step}");
        let world = World::new();
        let known = world.kill_at(operation, step, side);
        world.check(operation, &known);
        if known.answer.is_some() {
            return step;
        }
    }
    panic!("{operation:?} takes more than {MOST} steps");
}

/// Kills the server at each step of an operation, and again at each step of the recovery.
fn kill_twice_everywhere(operation: Operation) {
    for step in 0..MOST {
        for again in 0..MOST {
            eprintln!("{operation:?}, killed after step {step}, then before step {again}");
            let world = World::new();
            let known = world.kill_at(operation, step, Side::After);
            let more = world.kill_recovery_at(again, Side::Before);
            world.check(operation, &known);
            if known.answer.is_some() {
                return;
            }
            if !more {
                break;
            }
        }
    }
    panic!("{operation:?} takes more than {MOST} steps");
}

#[test]
fn a_server_that_lost_its_store_to_another_removes_nothing() {
    // The other server has begun a create.
    let mut begun = running_at("begun", [127, 0, 0, 1].into(), None);
    begun.status.phase = Phase::Created;
    let world = World {
        sim: Arc::new(SimRuntime::with([begun])),
        ..World::new()
    };
    killed(async {
        world.is_lost.store(true, SeqCst);
        let server = world.mortal(&Arc::new(Fuse::new(MOST, Side::Before))).await;
        let (status, body) = Operation::Create.send(&server, "").await;
        assert_eq!(status, 202, "{body}");
        let id = body["id"].as_str().unwrap().into();
        // What is due here may have been renewed by the other server.
        let due = server.service.renew(&id, WireTime::new(soon())).await;
        due.unwrap();
        tokio::time::sleep(scaled(Duration::from_secs(4))).await;
        server.service.reconcile().await;
        assert_eq!(world.sim.sandboxes().len(), 2);
        world.is_lost.store(false, SeqCst);
        server.service.reconcile().await;
        let existing = async || world.sim.sandboxes();
        wait_until("both are removed", existing, Vec::is_empty).await;
    });
}

/// Every act that destroys something, on a server that does not know whether another one uses the
/// store: a delete, an expiry, a create whose client is gone, one that fails, a removal that failed
/// before, and what the sweep finds.
fn everything_that_is_due_stays_until_the_hold_is_back(lose: impl Fn(&World, bool)) {
    let start = Arc::new(tokio::sync::Notify::new());
    let world = World::new();
    killed(async {
        let server = world.mortal(&Arc::new(Fuse::new(MOST, Side::Before))).await;
        let mut made = Vec::new();
        for _ in 0..3 {
            let (status, body) = Operation::Create.send(&server, "").await;
            assert_eq!(status, 202, "{body}");
            made.push(body["id"].as_str().unwrap().to_owned());
        }
        let [deleted, due, stuck] = made.as_slice() else {
            panic!("{made:?}");
        };
        world.sim.set_faults(Faults {
            remove_fails: Some("busy".to_owned()),
            ..Faults::default()
        });
        let failed = server.service.delete(&stuck.as_str().into(), true).await;
        failed.unwrap_err();
        world.sim.set_faults(Faults::default());
        let request = TestServer::good_create();
        let (_, abandoned) = server.service.create_for_answer(request).await.unwrap();
        world.sim.set_faults(Faults {
            start_gate: Some(Arc::clone(&start)),
            start_fails: Some("no start".to_owned()),
            ..Faults::default()
        });
        let failing = server.service.accept(TestServer::good_create());
        let failing = failing.await.unwrap();
        let existing = async || world.sim.sandboxes();
        wait_until("all containers", existing, |seen| seen.len() == 5).await;
        let id = due.as_str().into();
        server
            .service
            .renew(&id, WireTime::new(soon()))
            .await
            .unwrap();

        lose(&world, true);
        let before = world.destroying.load(SeqCst);
        start.notify_one();
        drop(abandoned);
        let (status, body) = Operation::Delete.send(&server, deleted).await;
        assert_eq!(
            (status, &body["code"]),
            (503, &json!("GENERAL::STORE_UNAVAILABLE"))
        );
        let waited = server.service.delete(&deleted.as_str().into(), true).await;
        waited.unwrap_err();
        let failure = async || {
            let record = server.service.find(&failing);
            record.map(|record| record.facts.is_deleted())
        };
        wait_until("the failed create", failure, |seen| *seen == Some(true)).await;
        tokio::time::sleep(scaled(Duration::from_secs(4))).await;
        server.service.reconcile().await;
        assert_eq!(
            world.destroying.load(SeqCst),
            before,
            "something was destroyed"
        );
        // Of the failed create, nothing is left.
        assert_eq!(world.sim.sandboxes().len(), 4);
        let kept = server.service.find(&deleted.as_str().into()).unwrap();
        assert!(!kept.facts.is_deleted(), "a refused delete changes nothing");

        lose(&world, false);
        world.sim.set_faults(Faults::default());
        server.service.reconcile().await;
        let existing = async || world.sim.sandboxes();
        wait_until("all but one are removed", existing, |seen| seen.len() == 1).await;
        let (status, body) = Operation::Delete.send(&server, deleted).await;
        assert_eq!(status, 204, "{body}");
    });
}

#[test]
fn a_server_whose_database_does_not_answer_removes_nothing() {
    everything_that_is_due_stays_until_the_hold_is_back(|world, lost| {
        world.is_unreachable.store(lost, SeqCst);
    });
}

#[test]
fn a_server_whose_store_another_one_uses_removes_nothing() {
    everything_that_is_due_stays_until_the_hold_is_back(|world, lost| {
        world.is_lost.store(lost, SeqCst);
    });
}

#[test]
fn an_intent_to_delete_that_comes_late_is_not_left_in_the_store() {
    let world = World::new();
    killed(async {
        let server = world.mortal(&Arc::new(Fuse::new(MOST, Side::Before))).await;
        let (status, body) = Operation::Create.send(&server, "").await;
        assert_eq!(status, 202, "{body}");
        let id: osb_protocol::SandboxId = body["id"].as_str().unwrap().into();
        let late = world.deletions.write().await;
        server
            .service
            .renew(&id, WireTime::new(soon()))
            .await
            .unwrap();
        let (deleted, ()) = tokio::join!(server.service.delete(&id, false), async {
            let existing = async || world.sim.sandboxes();
            wait_until("the expiry", existing, Vec::is_empty).await;
            // Until the history is written, or waits for the intent.
            tokio::time::sleep(scaled(Duration::from_secs(1))).await;
            drop(late);
        });
        let history = async || server.service.history(&id).await.unwrap().is_some();
        wait_until("the history", history, |ended| *ended).await;
        let gone = async || server.service.find(&id).is_none();
        wait_until("the end", gone, |gone| *gone).await;
        let location = store_in(world.path()).await.unwrap();
        let store = osb_store::open_shared(&location).await.unwrap().unwrap();
        let left = store.all_changes().await.unwrap();
        assert!(left.is_empty(), "{left:?}, the delete got {deleted:?}");
    });
}

#[test]
fn a_server_that_lost_its_store_to_another_samples_nothing() {
    let world = World::new();
    killed(async {
        world.is_lost.store(true, SeqCst);
        let server = world.mortal(&Arc::new(Fuse::new(MOST, Side::Before))).await;
        let (status, body) = Operation::Create.send(&server, "").await;
        assert_eq!(status, 202, "{body}");
        let id = body["id"].as_str().unwrap();
        let path = format!("/v1/sandboxes/{id}/metrics/watch");
        let watch = || server.request(Method::GET, &path).send();
        let samples = watch().await.unwrap().text().await.unwrap();
        assert!(!samples.contains("data:"), "{samples}");
        world.is_lost.store(false, SeqCst);
        let mut watched = watch().await.unwrap();
        let mut seen = Vec::new();
        while !seen.starts_with(b"data:") {
            let chunk = watched.chunk().await.unwrap();
            seen = chunk.expect("the stream goes on").to_vec();
        }
    });
}

#[test]
fn reports_are_read_also_before_a_removal_but_not_once_the_store_is_lost() {
    let page = r#"{"entries": [{"number": 1, "revision": 1, "kind": "foreground",
        "command": "make", "started_at": "2031-05-01T10:00:00Z"}], "more": false, "epoch": 1}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    killed(async {
        let inside = [127, 0, 62, 1].into();
        let execd = CannedProgram::start_at((inside, EXECD_PORT).into(), answer);
        let _execd = execd.await.unwrap();
        let world = World {
            sim: Arc::new(SimRuntime::with(
                ["a", "b"].map(|id| running_at(id, inside, None)),
            )),
            ..World::new()
        };
        world.is_lost.store(true, SeqCst);
        let server = world.mortal(&Arc::new(Fuse::new(MOST, Side::Before))).await;
        let reported = async |id: &str| {
            let path = format!("/v1/sandboxes/{id}/commands");
            let commands = server.request(Method::GET, &path).send().await.unwrap();
            commands.json::<Value>().await.unwrap()["commands"].clone()
        };
        assert_eq!(reported("a").await, json!([]));
        world.is_lost.store(false, SeqCst);
        assert_eq!(reported("a").await[0]["command"], "make");
        server.service.delete(&"b".into(), true).await.unwrap();
        assert_eq!(reported("b").await[0]["command"], "make");
    });
}

/// Answers every request with this body; counts them.
async fn counting_execd(address: SocketAddr, body: String) -> (Arc<AtomicUsize>, Supervisor) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (asked, tasks) = (Arc::new(AtomicUsize::new(0)), Supervisor::new());
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let count = Arc::clone(&asked);
    tasks.spawn_abortable("execd", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            // One read: the head of such a request is short.
            if stream.read(&mut head).await.is_ok() {
                count.fetch_add(1, SeqCst);
                // Long enough for the other requests to arrive.
                tokio::time::sleep(scaled(Duration::from_millis(400))).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    (asked, tasks)
}

#[test]
fn many_clients_share_a_report_and_a_forged_one_is_not_stored() {
    let page = |count: usize| {
        let entry = |number| {
            json!({"number": number, "revision": number, "kind": "foreground",
                "command": "make", "started_at": "2031-05-01T10:00:00Z"})
        };
        let entries: Vec<Value> = (1..=count).map(entry).collect();
        json!({"entries": entries, "more": false, "epoch": 1}).to_string()
    };
    killed(async {
        let [honest, forged] = [[127, 0, 62, 2], [127, 0, 62, 3]].map(IpAddr::from);
        let (asked, _honest) = counting_execd((honest, EXECD_PORT).into(), page(1)).await;
        let (_, _forged) = counting_execd((forged, EXECD_PORT).into(), page(1001)).await;
        let world = World {
            sim: Arc::new(SimRuntime::with([
                running_at("honest", honest, None),
                running_at("forged", forged, None),
            ])),
            ..World::new()
        };
        let server = world.mortal(&Arc::new(Fuse::new(MOST, Side::Before))).await;
        let reported = async |id: &str| {
            let path = format!("/v1/sandboxes/{id}/commands");
            let commands = server.request(Method::GET, &path).send().await.unwrap();
            commands.json::<Value>().await.unwrap()["commands"].clone()
        };
        let clients = futures::future::join_all((0..20).map(|_| reported("honest"))).await;
        assert!(clients.iter().all(|it| it[0]["command"] == "make"));
        let asked = asked.load(SeqCst);
        assert!(asked <= 5, "execd was asked {asked} times");
        assert_eq!(reported("forged").await, json!([]));
    });
}

#[test]
fn a_create_is_complete_or_leaves_nothing_even_if_the_recovery_is_killed() {
    kill_twice_everywhere(Operation::Create);
}

#[test]
fn a_deleted_sandbox_does_not_return_even_if_the_recovery_is_killed() {
    kill_twice_everywhere(Operation::Delete);
}

macro_rules! kills {
    ($($name:ident: $operation:ident, at least $steps:literal;)*) => {
        $(#[test]
        fn $name() {
            for side in [Side::Before, Side::After] {
                let steps = kill_everywhere(Operation::$operation, side);
                assert!(steps >= $steps, "only {steps} steps were seen");
            }
        })*
    };
}

kills! {
    // Usually six and five; on a busy machine one fewer was seen.
    a_create_is_complete_or_leaves_nothing: Create, at least 5;
    a_create_with_a_key_makes_one_sandbox: CreateWithKey, at least 4;
    a_renewal_is_kept_or_was_not_answered: Renew, at least 2;
    a_change_of_metadata_is_kept_or_was_not_answered: Patch, at least 2;
    a_pause_is_complete_or_did_not_happen: Pause, at least 1;
    a_resume_is_complete_or_did_not_happen: Resume, at least 1;
    a_deleted_sandbox_does_not_return: Delete, at least 1;
}

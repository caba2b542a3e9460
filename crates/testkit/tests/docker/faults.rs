//! Every change of a sandbox while the engine fails in one of several ways. Afterwards, one sweep must
//! have left no container without a sandbox, and no sandbox, expiry or renewal may be lost.

use std::{collections::BTreeSet, time::Duration};

use osb_protocol::WireTime;
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    second_engine::SecondEngine,
    stage::{Stage, answer, body, create, delete, get, ready},
};

/// Longest wait for a response of the engine, in seconds.
const API_TIMEOUT: u64 = 12;
/// How long the engine is frozen: until the server has noticed.
const FROZEN: Duration = Duration::from_secs(11);
/// Life of the sandbox that expires during the fault, in seconds.
const SHORT: i64 = 2;
const LATER: &str = "2099-01-01T00:00:00Z";

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The engine ends as at a restart.
    Restart,
    /// The engine is killed.
    Crash,
    /// The engine accepts connections and does nothing.
    Freeze,
    /// Responses and events on open connections never arrive.
    Stall,
}

const FAULTS: [Fault; 4] = [Fault::Restart, Fault::Crash, Fault::Freeze, Fault::Stall];

/// The sandboxes of one round, named by what happens to them.
struct Sandboxes {
    paused: String,
    resumed: String,
    deleted: String,
    renewed: String,
    expired: String,
    untouched: String,
}

impl Sandboxes {
    async fn make(server: &TestServer) -> Self {
        let body = body();
        let made = || create(server, &body);
        let made = tokio::join!(made(), made(), made(), made(), made(), made());
        let all = Self {
            paused: made.0,
            resumed: made.1,
            deleted: made.2,
            renewed: made.3,
            expired: made.4,
            untouched: made.5,
        };
        assert_eq!(act(server, &all.resumed, "pause").await, 202);
        all
    }
}

async fn act(server: &TestServer, id: &str, action: &str) -> StatusCode {
    let path = format!("/v1/sandboxes/{id}/{action}");
    answer(server.request(Method::POST, &path)).await.0
}

async fn renew(server: &TestServer, id: &str, at: &str) -> StatusCode {
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    let renew = server.request(Method::POST, &path);
    answer(renew.json(&json!({"expiresAt": at}))).await.0
}

async fn provoke(fault: Fault, stage: &Stage, engine: &mut SecondEngine) {
    match fault {
        Fault::Restart => tokio::task::block_in_place(|| engine.restart("TERM")),
        Fault::Crash => tokio::task::block_in_place(|| engine.restart("KILL")),
        Fault::Freeze => {
            engine.signal("STOP");
            sleep(FROZEN).await;
            engine.signal("CONT");
        }
        Fault::Stall => stage.engine.forget_connections(),
    }
}

/// What the server lists: ids with states.
async fn listed(server: &TestServer) -> Vec<(String, String)> {
    let list = server.request(Method::GET, "/v1/sandboxes?pageSize=200");
    let (status, list) = answer(list).await;
    assert_eq!(status, 200, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .map(|item| (text(&item["id"]), text(&item["status"]["state"])))
        .collect()
}

/// What the engine has: ids of sandboxes with states of their containers.
fn on_the_engine(engine: &SecondEngine, instance: &str) -> Vec<(String, String)> {
    let filter = format!("label=opensandbox.io/server={instance}");
    let format = "{{.Label \"opensandbox.io/id\"}} {{.State}}";
    let list = engine.docker(&["ps", "--all", "--filter", &filter, "--format", format]);
    let pairs = list.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(id, state)| (id.to_owned(), state.to_owned()))
        .collect()
}

/// One fault, `delay` after all changes have begun.
async fn round(
    fault: Fault,
    delay: Duration,
    stage: &Stage,
    server: &TestServer,
    engine: &mut SecondEngine,
) {
    let what = format!("{fault:?} after {delay:?}");
    let all = Sandboxes::make(server).await;
    let soon = WireTime::new(jiff::Timestamp::now())
        .plus_seconds(SHORT)
        .unwrap();
    assert_eq!(renew(server, &all.expired, &soon.to_string()).await, 200);
    let path = format!("/v1/sandboxes/{}", all.deleted);
    let made = server.request(Method::POST, "/v1/sandboxes").json(&body());
    let changes = async {
        tokio::join!(
            answer(made),
            act(server, &all.paused, "pause"),
            act(server, &all.resumed, "resume"),
            answer(server.request(Method::DELETE, &path)),
            renew(server, &all.renewed, LATER),
        )
    };
    let fault = async {
        sleep(delay).await;
        provoke(fault, stage, engine).await;
    };
    let ((made, paused, resumed, deleted, renewed), ()) = tokio::join!(changes, fault);
    let answers = format!(
        "{what}: create {} pause {paused} resume {resumed} delete {} renew {renewed}",
        made.0, deleted.0
    );
    eprintln!("{answers}");
    ready(server).await;

    // No expiry is missed, and no delete that was accepted.
    let gone = |seen: &(StatusCode, Value)| seen.0 == 404;
    wait_until("the expiry", || get(server, &all.expired), gone).await;
    if deleted.0.is_success() {
        wait_until("the removal", || get(server, &all.deleted), gone).await;
    }
    // Removals that failed are tried again.
    server.service.reconcile().await;
    let instance = stage.instance.clone();
    let look = async || {
        let ours: BTreeSet<_> = listed(server).await.into_iter().map(|(id, _)| id).collect();
        let theirs = on_the_engine(engine, &instance).into_iter();
        let theirs: BTreeSet<_> = theirs.map(|(id, _)| id).collect();
        (ours, theirs)
    };
    let (ours, _) = wait_until("one view", look, |(ours, theirs)| ours == theirs).await;

    // No sandbox is lost.
    for id in [&all.paused, &all.resumed, &all.renewed, &all.untouched] {
        assert!(ours.contains(id), "{answers}: {id} is lost");
    }
    assert_eq!(
        ours.contains(&all.deleted),
        !deleted.0.is_success(),
        "{answers}"
    );
    if made.0 == 202 {
        let id = made.1["id"].as_str().unwrap();
        assert!(ours.contains(id), "{answers}: the new one is lost");
    }
    // No renewal is undone.
    let expiry = get(server, &all.renewed).await.1["expiresAt"].clone();
    assert_eq!(expiry == LATER, renewed == 200, "{answers}: {expiry}");
    // States are those of the engine, and the answers'.
    let settled = async || {
        let of = |all: Vec<(String, String)>| -> BTreeSet<(String, String)> {
            let lower = all.into_iter();
            lower
                .map(|(id, state)| (id, state.to_lowercase()))
                .collect()
        };
        (
            of(listed(server).await),
            of(on_the_engine(engine, &instance)),
        )
    };
    let (states, _) = wait_until("the same states", settled, |(one, two)| one == two).await;
    let is = |id: &str, state: &str| states.contains(&(id.to_owned(), state.to_owned()));
    assert!(is(&all.untouched, "running"), "{answers}: {states:?}");
    if paused == 202 {
        assert!(is(&all.paused, "paused"), "{answers}: {states:?}");
    }
    if resumed == 202 {
        assert!(is(&all.resumed, "running"), "{answers}: {states:?}");
    }
    let deletes = states.iter().map(|(id, _)| delete(server, id));
    futures::future::join_all(deletes).await;
    assert_eq!(on_the_engine(engine, &instance), [], "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_of_the_engine_loses_a_change() {
    let mut stage = Stage::set();
    let Some(mut engine) = tokio::task::block_in_place(SecondEngine::start) else {
        return;
    };
    stage.move_to(engine.socket());
    stage.engine.up().unwrap();
    let timeout = Duration::from_secs(API_TIMEOUT);
    let server = stage
        .server_tuned(|config| config.api_timeout = timeout)
        .await;
    ready(&server).await;
    let delays: &[u64] = match std::env::var_os("OPENSANDBOX_TEST_FULL") {
        Some(_) => &[0, 5, 20, 50, 100, 200, 400, 800],
        None => &[30],
    };
    for delay in delays {
        for fault in FAULTS {
            let delay = Duration::from_millis(*delay);
            round(fault, delay, &stage, &server, &mut engine).await;
        }
    }
    server.stop().await;
}

//! The server is killed at each step of filling a pool, of a claim, and of each change of a pool.
//! Afterwards no sandbox has two clients, and none is left that neither a client nor a pool has.

use std::{collections::BTreeSet, sync::Arc};

use osb_protocol::SandboxId;
use osb_runtime::sim::SimRuntime;
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Fuse, MOST, Side, World, killed, listed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Fill,
    Claim,
    Shrink,
    Replace,
    Delete,
}

async fn send(server: &TestServer, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = server.request(method, path).json(body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap_or_default())
}

const FIRST_IMAGE: &str = "debian:12";
const SECOND_IMAGE: &str = "debian:13";

/// A pool in which so many wait.
fn pool(waiting: u32, image: &str) -> Value {
    json!({
        "name": "p",
        "template": {"spec": {"containers": [{"image": image}]}},
        "capacitySpec": {"bufferMax": waiting, "bufferMin": waiting, "poolMax": 4, "poolMin": 0},
    })
}

async fn fill(server: &TestServer) {
    let pool = pool(2, FIRST_IMAGE);
    let (status, answer) = send(server, Method::POST, "/v1/pools", &pool).await;
    assert_eq!(status, 201, "{answer}");
    until_full(server).await;
}

/// Waits until as many wait as the pool is to have.
async fn until_full(server: &TestServer) {
    let status = || send(server, Method::GET, "/v1/pools/p", &Value::Null);
    wait_until("a full pool", status, |(_, pool)| {
        pool["status"]["available"] == pool["capacitySpec"]["bufferMax"]
    })
    .await;
}

/// Images of sandboxes.
fn images(sim: &SimRuntime, ids: impl IntoIterator<Item = SandboxId>) -> BTreeSet<String> {
    let specs = ids.into_iter().filter_map(|id| sim.spec(&id));
    specs.map(|spec| spec.origin.source.to_string()).collect()
}

/// Changes the pool, and waits until it is as it is to be.
async fn change(server: &TestServer, sim: &SimRuntime, pool: &Value) {
    let (status, answer) = send(server, Method::PUT, "/v1/pools/p", pool).await;
    assert_eq!(status, 200, "{answer}");
    let waiting = pool["capacitySpec"]["bufferMax"].as_u64();
    let image = &pool["template"]["spec"]["containers"][0]["image"];
    let image = BTreeSet::from([image.as_str().unwrap().to_owned()]);
    let state = async || {
        let ids = sim.sandboxes();
        (u64::try_from(ids.len()).ok(), images(sim, ids))
    };
    wait_until("the change", state, |(count, images)| {
        *count == waiting && *images == image
    })
    .await;
    until_full(server).await;
}

async fn claim(server: &TestServer) -> String {
    let body = json!({"extensions": {"poolRef": "p"}, "env": {"A": "1"}, "timeout": 600});
    let (status, answer) = send(server, Method::POST, "/v1/sandboxes", &body).await;
    assert_eq!(status, 202, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn act(server: &TestServer, sim: &SimRuntime, act: Act) -> Option<String> {
    match act {
        Act::Fill => {
            fill(server).await;
            None
        }
        Act::Claim => Some(claim(server).await),
        Act::Shrink => {
            change(server, sim, &pool(1, FIRST_IMAGE)).await;
            None
        }
        Act::Replace => {
            change(server, sim, &pool(2, SECOND_IMAGE)).await;
            None
        }
        Act::Delete => {
            let (status, answer) = send(server, Method::DELETE, "/v1/pools/p", &Value::Null).await;
            assert_eq!(status, 204, "{answer}");
            let left = async || sim.sandboxes();
            wait_until("an empty engine", left, Vec::is_empty).await;
            None
        }
    }
}

/// Kills the server at a step of an act. Returns the sandbox that the client knows, and whether the act
/// was done.
fn kill_at(world: &World, what: Act, fuse: &Arc<Fuse>) -> (Option<String>, bool) {
    killed(async {
        let server = world.mortal(fuse).await;
        if what != Act::Fill {
            fill(&server).await;
        }
        fuse.arm();
        tokio::select! {
            biased;
            () = fuse.burn() => (None, false),
            id = act(&server, &world.sim, what) => (id, true),
        }
    })
}

fn check(world: &World, what: Act, (known, is_done): &(Option<String>, bool)) {
    killed(async {
        let server = world.server().await;
        let (status, pool) = send(&server, Method::GET, "/v1/pools/p", &Value::Null).await;
        match what {
            Act::Fill => assert!(status == 200 || !is_done, "the pool is lost"),
            Act::Claim | Act::Shrink | Act::Replace => assert_eq!(status, 200),
            Act::Delete => assert!(status == 404 || !is_done, "the pool is back"),
        }
        if status == 200 {
            until_full(&server).await;
        }
        let wanted = pool["capacitySpec"]["bufferMax"].as_u64().unwrap_or(0);
        let wanted = usize::try_from(wanted).unwrap();
        if what == Act::Shrink {
            assert!(wanted == 1 || !is_done, "the change is lost");
        }
        let state = async || {
            let listed = listed(&server).await;
            let ids = listed
                .iter()
                .map(|one| one["id"].as_str().unwrap().to_owned());
            let existing = world.sim.sandboxes().into_iter().map(|id| id.to_string());
            (
                ids.collect::<BTreeSet<_>>(),
                existing.collect::<BTreeSet<_>>(),
            )
        };
        let (clients, existing) = wait_until(
            "what exists is a client's or waits",
            state,
            |(clients, existing)| {
                clients.is_subset(existing) && existing.len() == clients.len() + wanted
            },
        )
        .await;
        assert!(known.iter().all(|id| clients.contains(id)), "{clients:?}");
        for id in &clients {
            let id = id.as_str().into();
            let claimed = async || world.sim.claim_of(&id);
            let claim = wait_until("its entry point", claimed, Option::is_some).await;
            assert_eq!(claim.unwrap().env["A"].as_deref(), Some("1"));
        }
        for id in existing.difference(&clients) {
            let id = id.as_str().into();
            assert_eq!(world.sim.claim_of(&id), None, "a used sandbox waits");
        }
        let waiting = existing.difference(&clients).map(|id| id.as_str().into());
        let waiting = images(&world.sim, waiting);
        assert!(waiting.len() < 2, "{waiting:?}");
        if what == Act::Replace && *is_done {
            assert!(waiting.contains(SECOND_IMAGE), "the change is lost");
        }
        // What waits can be claimed, by one client each.
        if wanted > 0 {
            let claimed = [claim(&server).await, claim(&server).await];
            assert_ne!(claimed[0], claimed[1]);
            assert!(
                claimed.iter().all(|id| !clients.contains(id)),
                "two clients"
            );
        }
    });
}

fn kill_everywhere(what: Act, side: Side) {
    for step in 0..MOST {
        eprintln!("{what:?}, killed {side:?} step {step}");
        let world = World::new();
        let fuse = Arc::new(Fuse::new(step, side));
        let known = kill_at(&world, what, &fuse);
        check(&world, what, &known);
        if !fuse.is_burnt() {
            assert!(step > 2, "{what:?} has {step} steps only");
            return;
        }
    }
    panic!("{what:?} takes more than {MOST} steps");
}

#[test]
fn filling_a_pool_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Fill, Side::Before);
}

#[test]
fn filling_a_pool_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Fill, Side::After);
}

#[test]
fn a_claim_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Claim, Side::Before);
}

#[test]
fn a_claim_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Claim, Side::After);
}

#[test]
fn another_capacity_of_a_pool_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Shrink, Side::Before);
}

#[test]
fn another_capacity_of_a_pool_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Shrink, Side::After);
}

#[test]
fn another_template_of_a_pool_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Replace, Side::Before);
}

#[test]
fn another_template_of_a_pool_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Replace, Side::After);
}

#[test]
fn the_removal_of_a_pool_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Delete, Side::Before);
}

#[test]
fn the_removal_of_a_pool_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Delete, Side::After);
}

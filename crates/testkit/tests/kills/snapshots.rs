//! The server is killed at each step of taking, of restoring and of deleting a snapshot. Afterwards each
//! snapshot is either there, with what it keeps, or it is gone or failed, with nothing left of it.

use std::{collections::BTreeSet, sync::Arc};

use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::Value;

use super::{Fuse, MOST, Operation, Side, World, killed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Take,
    Restore,
    Delete,
}

async fn take(server: &TestServer, sandbox: &str) -> Value {
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    let response = server.request(Method::POST, &path).send().await.unwrap();
    assert_eq!(response.status(), 202);
    response.json().await.unwrap()
}

async fn listed(server: &TestServer) -> Vec<(String, String)> {
    let list = server.request(Method::GET, "/v1/snapshots").send().await;
    let list: Value = list.unwrap().json().await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .map(|item| (text(&item["id"]), text(&item["status"]["state"])))
        .collect()
}

async fn sandboxes(server: &TestServer) -> BTreeSet<String> {
    let listed = super::listed(server).await;
    let ids = listed
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned());
    ids.collect()
}

async fn until_taken(server: &TestServer) -> Vec<(String, String)> {
    let is_taken = |seen: &Vec<(String, String)>| seen.iter().all(|(_, state)| state != "Creating");
    wait_until("the capture", || listed(server), is_taken).await
}

/// A sandbox from a snapshot.
async fn restore(server: &TestServer, id: &str) -> (u16, Value) {
    let body = serde_json::json!({"snapshotId": id, "resourceLimits": {}});
    let create = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let response = create.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap())
}

/// Kills the server at a step of an act. Returns what the client knows: the id of the snapshot that it
/// takes or deletes, or of the sandbox that it restores, and whether it had its answer and all work was done.
fn kill_at(world: &World, act: Act, fuse: &Arc<Fuse>) -> (Option<String>, bool) {
    killed(async {
        let server = world.mortal(fuse).await;
        let (status, sandbox) = Operation::Create.send(&server, "").await;
        assert_eq!(status, 202, "{sandbox}");
        let sandbox = sandbox["id"].as_str().unwrap();
        let mut id = None;
        if act != Act::Take {
            id = take(&server, sandbox).await["id"]
                .as_str()
                .map(str::to_owned);
            until_taken(&server).await;
        }
        fuse.arm();
        let is_restore = act == Act::Restore;
        let act = async {
            match act {
                Act::Take => {
                    let taken = take(&server, sandbox).await;
                    let taken = taken["id"].as_str().map(str::to_owned);
                    // A client that has its answer knows the snapshot, whatever becomes of it.
                    tokio::select! {
                        biased;
                        () = fuse.burn() => return (taken, false),
                        _ = until_taken(&server) => {}
                    }
                    (taken, true)
                }
                Act::Restore => {
                    let (status, restored) = restore(&server, &id.clone().unwrap()).await;
                    assert_eq!(status, 202, "{restored}");
                    (restored["id"].as_str().map(str::to_owned), true)
                }
                Act::Delete => {
                    let path = format!("/v1/snapshots/{}", id.clone().unwrap_or_default());
                    let deleted = server.request(Method::DELETE, &path).send().await.unwrap();
                    assert_eq!(deleted.status(), 204);
                    (id.clone(), true)
                }
            }
        };
        tokio::select! {
            biased;
            known = act => known,
            () = fuse.burn() => (id.clone().filter(|_| !is_restore), false),
        }
    })
}

fn check(world: &World, act: Act, known: &(Option<String>, bool)) {
    killed(async {
        let server = world.server().await;
        server.service.reconcile().await;
        let seen = listed(&server).await;
        let stored = world.sim.stored_snapshots();
        let ready: Vec<_> = seen
            .iter()
            .filter(|(_, state)| state == "Ready")
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(ready, stored, "{seen:?}");
        let is_settled = |state: &str| state == "Ready" || state == "Failed";
        assert!(seen.iter().all(|(_, state)| is_settled(state)), "{seen:?}");
        let (id, is_done) = known;
        let has = |id: &String| seen.iter().any(|(listed, _)| listed == id);
        match act {
            Act::Take => {
                assert!(id.iter().all(has), "an accepted snapshot is lost: {seen:?}");
                assert!(!is_done || ready.len() == 1, "{seen:?}");
            }
            Act::Restore => {
                assert_eq!(ready.len(), 1, "{seen:?}");
                // The source, and what was restored. An unanswered create may end only now.
                let both = async || {
                    let existing = world.sim.sandboxes();
                    let existing: BTreeSet<_> = existing.iter().map(ToString::to_string).collect();
                    (sandboxes(&server).await, existing)
                };
                let is_same = |(listed, existing): &(_, _)| listed == existing;
                let (sandboxes, _) = wait_until("list and runtime agree", both, is_same).await;
                assert!(id.iter().all(|id| sandboxes.contains(id)), "{sandboxes:?}");
                assert!(sandboxes.len() <= 2 && (!is_done || sandboxes.len() == 2));
            }
            Act::Delete => assert!(!is_done || seen.is_empty(), "it is back: {seen:?}"),
        }
        // What is ready can be used.
        for id in ready {
            assert_eq!(restore(&server, &id).await.0, 202);
        }
    });
}

fn kill_everywhere(act: Act, side: Side) {
    for step in 0..MOST {
        eprintln!("{act:?}, killed {side:?} step {step}");
        let world = World::new();
        let fuse = Arc::new(Fuse::new(step, side));
        let known = kill_at(&world, act, &fuse);
        check(&world, act, &known);
        if !fuse.is_burnt() {
            assert!(step > 2, "{act:?} has {step} steps only");
            return;
        }
    }
    panic!("{act:?} takes more than {MOST} steps");
}

#[test]
fn a_capture_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Take, Side::Before);
}

#[test]
fn a_capture_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Take, Side::After);
}

#[test]
fn a_restore_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Restore, Side::Before);
}

#[test]
fn a_restore_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Restore, Side::After);
}

#[test]
fn a_deletion_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Delete, Side::Before);
}

#[test]
fn a_deletion_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Delete, Side::After);
}

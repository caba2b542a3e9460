//! A store that was restored from a backup says that a claimed sandbox waits or is being started, or
//! does not know it.

use std::sync::Arc;

use osb_runtime::{Runtime, sim::Faults};
use osb_store::{MemberState, PoolMemberRow};
use osb_testkit::{TestServer, store_in, wait_until};
use reqwest::Method;
use serde_json::json;

use super::{answer, claim, created, filled, get, over, pool, until_available};

#[tokio::test]
async fn an_old_store_gives_no_used_sandbox_to_another_client() {
    keep_used_one(MemberState::Ready, Meanwhile::Nothing).await;
}

#[tokio::test]
async fn an_old_store_that_has_a_start_removes_no_used_sandbox() {
    keep_used_one(MemberState::Warming, Meanwhile::Nothing).await;
}

#[tokio::test]
async fn an_old_store_removes_no_used_sandbox_that_has_ended() {
    keep_used_one(MemberState::Ready, Meanwhile::End).await;
    keep_used_one(MemberState::Warming, Meanwhile::End).await;
}

#[tokio::test]
async fn an_old_store_removes_no_used_sandbox_that_was_started_again() {
    keep_used_one(MemberState::Ready, Meanwhile::Restart).await;
    keep_used_one(MemberState::Warming, Meanwhile::Restart).await;
}

#[tokio::test]
async fn an_old_store_hides_no_used_sandbox_that_is_paused() {
    keep_used_one(MemberState::Ready, Meanwhile::Pause).await;
}

#[tokio::test]
async fn an_old_store_removes_no_used_sandbox_whose_execd_is_silent() {
    keep_used_one(MemberState::Ready, Meanwhile::Silence).await;
}

#[tokio::test]
async fn an_old_store_removes_no_used_sandbox_whose_pool_has_another_template() {
    keep_used_one(MemberState::Ready, Meanwhile::Replace).await;
}

#[tokio::test]
async fn an_old_store_that_has_a_removal_removes_no_used_sandbox() {
    keep_used_one(MemberState::Draining, Meanwhile::Nothing).await;
}

#[tokio::test]
async fn a_frozen_sandbox_whose_mark_cannot_be_seen_is_asked_when_it_is_thawed() {
    let (server, sim, folder) = filled([1, 1, 4]).await;
    let used = created(&server, &claim()).await;
    server.stop().await;
    drop(server);
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let members = store.all_members().await.unwrap();
    let row = members.into_iter().find(|row| row.id == used).unwrap();
    store
        .remove_member(&used, MemberState::Claimed)
        .await
        .unwrap();
    let row = PoolMemberRow {
        state: MemberState::Ready,
        claim: None,
        ..row
    };
    store.add_member(&row).await.unwrap();
    store.close().await;
    drop(store);
    sim.pausing().unwrap().pause(&used).await.unwrap();
    sim.set_faults(Faults {
        claim_marks_unknown: true,
        ..Faults::default()
    });
    let server = over(&sim, folder.path(), "").await;
    until_available(&server, "p", 1).await;
    assert_eq!(get(&server, &used).await.0, 404, "it may wait");
    assert!(sim.sandboxes().contains(&used));
    sim.pausing().unwrap().resume(&used).await.unwrap();
    let kept = async || get(&server, &used).await.0;
    wait_until("the used one", kept, |status| *status == 200).await;
    server.stop().await;
}

/// What happens to the sandboxes while the old store is restored, or just after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// Their entry points end.
    End,
    /// They are frozen.
    Pause,
    /// Their containers are started again, so that execd remembers no claim.
    Restart,
    /// Their execd does not answer.
    Silence,
    /// Their pool gets another template before they are asked.
    Replace,
}

/// Restores a store of the time before the claim, in which the claimed sandbox has this state.
async fn keep_used_one(state: MemberState, meanwhile: Meanwhile) {
    let (server, sim, folder) = filled([1, 1, 4]).await;
    server.stop().await;
    drop(server);
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let (pools, members) = (
        store.all_pools().await.unwrap(),
        store.all_members().await.unwrap(),
    );
    store.close().await;
    drop(store);
    let server = over(&sim, folder.path(), "").await;
    until_available(&server, "p", 1).await;
    let used = created(&server, &claim()).await;
    until_available(&server, "p", 1).await;
    let unknown = sim.sandboxes().into_iter().find(|id| *id != used).unwrap();
    server.stop().await;
    drop(server);
    let old = tempfile::tempdir().unwrap();
    let location = store_in(old.path()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    store.add_pool(&pools[0]).await.unwrap();
    let row = PoolMemberRow {
        state,
        ..members[0].clone()
    };
    store.add_member(&row).await.unwrap();
    assert_eq!(row.id, used);
    store.close().await;
    drop(store);
    for id in [&used, &unknown] {
        match meanwhile {
            Meanwhile::End => sim.exit(id, 0).await,
            Meanwhile::Pause => drop(sim.pausing().unwrap().pause(id).await.unwrap()),
            Meanwhile::Nothing | Meanwhile::Restart | Meanwhile::Silence | Meanwhile::Replace => {}
        }
    }
    sim.set_faults(Faults {
        claim_unanswered: meanwhile == Meanwhile::Silence,
        claims_forgotten: meanwhile == Meanwhile::Restart,
        ..Faults::default()
    });
    if meanwhile == Meanwhile::Replace {
        sim.go_down("restarts").await;
    }
    let server = TestServer::over(Arc::clone(&sim) as _, old.path(), "");
    let server = server.await.unwrap();
    if meanwhile == Meanwhile::Replace {
        let mut other = pool("p", [1, 1, 4]);
        other["template"]["spec"]["containers"][0]["image"] = json!("debian:13");
        let request = server.request(Method::PUT, "/v1/pools/p").json(&other);
        let (status, body) = answer(request).await;
        assert_eq!(status, 200, "{body}");
        sim.come_back().await;
    }
    let kept = async || get(&server, &used).await.0;
    wait_until("the used one", kept, |status| *status == 200).await;
    let gone = async || sim.sandboxes().contains(&unknown);
    wait_until("the unknown one to go", gone, |is_there| !is_there).await;
    sim.set_faults(Faults::default());
    until_available(&server, "p", 1).await;
    let next = created(&server, &claim()).await;
    assert!(next != used && next != unknown);
    assert_eq!(get(&server, &used).await.0, 200);
    server.stop().await;
}

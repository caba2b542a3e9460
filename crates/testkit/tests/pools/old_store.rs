//! A store that was restored from a backup says that a claimed sandbox waits or is being started, or
//! does not know it.

use osb_store::{MemberState, PoolMemberRow};
use osb_testkit::{store_in, wait_until};

use super::{claim, created, filled, get, over, until_available};

#[tokio::test]
async fn an_old_store_gives_no_used_sandbox_to_another_client() {
    keep_used_one(MemberState::Ready).await;
}

#[tokio::test]
async fn an_old_store_that_has_a_start_removes_no_used_sandbox() {
    keep_used_one(MemberState::Warming).await;
}

/// Restores a store of the time before the claim, in which the claimed sandbox has this state.
async fn keep_used_one(state: MemberState) {
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
    let server = over(&sim, old.path(), "").await;
    let kept = async || get(&server, &used).await.0;
    wait_until("the used one", kept, |status| *status == 200).await;
    let gone = async || sim.sandboxes().contains(&unknown);
    wait_until("the unknown one to go", gone, |is_there| !is_there).await;
    until_available(&server, "p", 1).await;
    let next = created(&server, &claim()).await;
    assert!(next != used && next != unknown);
    assert_eq!(get(&server, &used).await.0, 200);
    server.stop().await;
}

//! Pools and their members.

use osb_protocol::{WireTime, lifecycle::PoolCapacity};

use super::Stage;
use crate::{
    CreateKey, EndedSpec, HistoryEntry, MemberState, Outcome, PoolChange, PoolMemberRow, PoolRow,
    Store, UnansweredCreate,
};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

const CAPACITY: PoolCapacity = PoolCapacity {
    buffer_max: 3,
    buffer_min: 1,
    pool_max: u32::MAX,
    pool_min: 2,
};

pub(super) fn pool(tenant: Option<&str>, name: &str) -> PoolRow {
    PoolRow {
        tenant: tenant.map(str::to_owned),
        name: name.into(),
        template: r#"{"spec":{}}"#.into(),
        revision: "r1".into(),
        capacity: CAPACITY,
        created_at: at(5),
        changed_at: at(6),
    }
}

pub(super) fn member(id: &str, tenant: Option<&str>, pool: &str) -> PoolMemberRow {
    PoolMemberRow {
        id: id.into(),
        tenant: tenant.map(str::to_owned),
        pool: pool.into(),
        revision: "r1".into(),
        settings: "s1".into(),
        state: MemberState::Warming,
        claim: None,
        created_at: at(7),
        changed_at: at(7),
    }
}

/// Changes a member from one state to another.
pub(super) async fn go(store: &dyn Store, id: &str, from: MemberState, to: MemberState) -> bool {
    let claim = (to == MemberState::Claimed).then_some(r#"{"claimId":"c"}"#);
    let id = id.into();
    let changed = store.change_member(&id, from, to, claim, at(9));
    changed.await.unwrap()
}

/// Ids and states of all members.
async fn states(store: &dyn Store) -> Vec<(String, MemberState)> {
    let members = store.all_members().await.unwrap().into_iter();
    let states = members.map(|member| (member.id.to_string(), member.state));
    states.collect()
}

fn state(id: &str, state: MemberState) -> (String, MemberState) {
    (id.to_owned(), state)
}

pub(super) async fn a_pool_and_its_members_are_read_back_whole_after_a_restart(stage: Stage) {
    let store = stage.open().await;
    let pools = [pool(None, "p"), pool(Some("team-a"), "p")];
    for pool in &pools {
        assert!(store.add_pool(pool).await.unwrap());
    }
    let kept = member("a", Some("team-a"), "p");
    assert!(store.add_member(&kept).await.unwrap());
    assert!(go(&*store, "a", MemberState::Warming, MemberState::Ready).await);
    assert!(go(&*store, "a", MemberState::Ready, MemberState::Claimed).await);
    store.close().await;
    drop(store);
    let store = stage.open().await;
    assert_eq!(store.all_pools().await.unwrap(), pools);
    let claimed = PoolMemberRow {
        state: MemberState::Claimed,
        claim: Some(r#"{"claimId":"c"}"#.into()),
        changed_at: at(9),
        ..kept
    };
    assert_eq!(store.all_members().await.unwrap(), [claimed]);
}

pub(super) async fn a_name_is_taken_within_a_tenant(stage: Stage) {
    let store = stage.open().await;
    assert!(store.add_pool(&pool(None, "p")).await.unwrap());
    assert!(!store.add_pool(&pool(None, "p")).await.unwrap());
    assert!(store.add_pool(&pool(Some("team-a"), "p")).await.unwrap());
    assert!(store.remove_pool(None, "p", at(9)).await.unwrap());
    assert!(!store.remove_pool(None, "p", at(9)).await.unwrap());
    assert_eq!(store.all_pools().await.unwrap().len(), 1);
}

pub(super) async fn a_member_is_claimed_once(stage: Stage) {
    let store = stage.open().await;
    store.add_pool(&pool(None, "p")).await.unwrap();
    store.add_member(&member("a", None, "p")).await.unwrap();
    assert!(
        !go(&*store, "a", MemberState::Ready, MemberState::Claimed).await,
        "it is being started"
    );
    assert!(go(&*store, "a", MemberState::Warming, MemberState::Ready).await);
    let claim = || go(&*store, "a", MemberState::Ready, MemberState::Claimed);
    let (one, two, drain) = tokio::join!(
        claim(),
        claim(),
        go(&*store, "a", MemberState::Ready, MemberState::Draining)
    );
    let winners = [one, two, drain].into_iter().filter(|won| *won);
    assert_eq!(winners.count(), 1);
    assert!(!claim().await);
}

pub(super) async fn a_member_whose_id_is_known_already_drains(stage: Stage) {
    let store = stage.open().await;
    store.add_pool(&pool(None, "p")).await.unwrap();
    for id in ["a", "b", "c", "d"] {
        store.add_member(&member(id, None, "p")).await.unwrap();
        assert!(go(&*store, id, MemberState::Warming, MemberState::Ready).await);
    }
    assert!(go(&*store, "d", MemberState::Ready, MemberState::Claimed).await);
    for id in ["a", "d"] {
        let key = CreateKey {
            key: [id.as_bytes()[0]; 32],
            body: [0; 32],
            sandbox_id: id.into(),
            used_at: at(9),
        };
        assert_eq!(store.claim_key(&key, at(1)).await.unwrap(), None);
    }
    let unanswered = UnansweredCreate {
        id: "b".into(),
        image: "debian:12".into(),
        created_at: at(9),
        tenant: None,
    };
    store.set_unanswered(&unanswered).await.unwrap();
    assert_eq!(store.drain_used_members(at(10)).await.unwrap(), 2);
    let drained = [
        state("a", MemberState::Draining),
        state("b", MemberState::Draining),
        state("c", MemberState::Ready),
        state("d", MemberState::Claimed),
    ];
    assert_eq!(states(&*store).await, drained);
}

pub(super) async fn what_waits_drains_with_its_pool_or_template(stage: Stage) {
    let store = stage.open().await;
    for name in ["p", "q"] {
        store.add_pool(&pool(None, name)).await.unwrap();
    }
    for (id, pool) in [("a", "p"), ("b", "p"), ("c", "p"), ("d", "q")] {
        assert!(store.add_member(&member(id, None, pool)).await.unwrap());
    }
    assert!(go(&*store, "b", MemberState::Warming, MemberState::Ready).await);
    assert!(go(&*store, "c", MemberState::Warming, MemberState::Ready).await);
    assert!(go(&*store, "c", MemberState::Ready, MemberState::Claimed).await);
    let capacity = PoolCapacity {
        pool_max: 9,
        ..CAPACITY
    };
    let mut change = PoolChange {
        capacity,
        template: None,
        at: at(10),
    };
    assert!(store.change_pool(None, "p", &change).await.unwrap());
    assert!(!store.change_pool(None, "r", &change).await.unwrap());
    let waiting = [
        state("a", MemberState::Warming),
        state("b", MemberState::Ready),
        state("c", MemberState::Claimed),
        state("d", MemberState::Warming),
    ];
    assert_eq!(states(&*store).await, waiting, "the template is the same");
    change.template = Some(("{}".into(), "r2".into()));
    assert!(store.change_pool(None, "p", &change).await.unwrap());
    let drained = [
        state("a", MemberState::Draining),
        state("b", MemberState::Draining),
        state("c", MemberState::Claimed),
        state("d", MemberState::Warming),
    ];
    assert_eq!(states(&*store).await, drained);
    let stored = store.all_pools().await.unwrap().remove(0);
    assert_eq!(
        (stored.capacity, stored.revision.as_str()),
        (capacity, "r2")
    );
    assert!(store.remove_pool(None, "q", at(11)).await.unwrap());
    assert_eq!(states(&*store).await[3].1, MemberState::Draining);
    for id in ["a", "c"] {
        let member = id.into();
        let removed = store.remove_member(&member, MemberState::Draining);
        assert_eq!(removed.await.unwrap(), id == "a", "{id}");
    }
}

pub(super) async fn a_member_needs_its_pool_with_its_template(stage: Stage) {
    let store = stage.open().await;
    assert!(!store.add_member(&member("a", None, "p")).await.unwrap());
    store.add_pool(&pool(None, "p")).await.unwrap();
    let other = PoolMemberRow {
        revision: "r0".into(),
        ..member("a", None, "p")
    };
    assert!(!store.add_member(&other).await.unwrap());
    let foreign = member("a", Some("team-a"), "p");
    assert!(!store.add_member(&foreign).await.unwrap());
    assert!(store.add_member(&member("a", None, "p")).await.unwrap());
}

pub(super) async fn a_member_that_is_added_beside_another_template_drains_or_is_refused(
    stage: Stage,
) {
    let store = stage.open().await;
    store.add_pool(&pool(None, "p")).await.unwrap();
    for round in 1..20 {
        let added = PoolMemberRow {
            revision: format!("r{round}"),
            ..member(&format!("m{round}"), None, "p")
        };
        let change = PoolChange {
            capacity: CAPACITY,
            template: Some(("{}".into(), format!("r{}", round + 1))),
            at: at(10),
        };
        let (added, changed) = tokio::join!(
            store.add_member(&added),
            store.change_pool(None, "p", &change)
        );
        assert!(changed.unwrap());
        added.unwrap();
        let left = states(&*store).await.into_iter();
        let left = left.filter(|(_, state)| *state != MemberState::Draining);
        assert_eq!(left.collect::<Vec<_>>(), [], "round {round}");
    }
}

pub(super) async fn the_history_of_a_sandbox_forgets_its_membership(stage: Stage) {
    let store = stage.open().await;
    store.add_pool(&pool(None, "p")).await.unwrap();
    for id in ["a", "b"] {
        store.add_member(&member(id, None, "p")).await.unwrap();
    }
    let entry = HistoryEntry {
        id: "a".into(),
        image: "debian:12".into(),
        created_at: at(7),
        ended_at: at(20),
        outcome: Outcome::Deleted,
        reason: "DELETED".into(),
        message: String::new(),
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    };
    store.finish(&entry).await.unwrap();
    assert_eq!(states(&*store).await, [state("b", MemberState::Warming)]);
}

use std::collections::HashSet;

use osb_protocol::lifecycle::PoolCapacity;
use osb_runtime::{Origin, Phase, Prepared, Source, Status};

use super::{schedule::FIRST_PAUSE, *};

/// Settings of the server.
const SETTINGS: &str = "s1";

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

fn key() -> Key {
    (None, "p".to_owned())
}

fn pool(capacity: [u32; 4]) -> PoolRow {
    let [buffer_max, buffer_min, pool_max, pool_min] = capacity;
    PoolRow {
        tenant: None,
        name: "p".to_owned(),
        template: "{}".to_owned(),
        revision: "r1".to_owned(),
        capacity: PoolCapacity {
            buffer_max,
            buffer_min,
            pool_max,
            pool_min,
        },
        created_at: at(1),
        changed_at: at(1),
    }
}

fn failure(reason: &str) -> PoolFailure {
    PoolFailure {
        at: at(7),
        reason: reason.to_owned(),
    }
}

fn row(id: &str, created: i64, state: MemberState) -> PoolMemberRow {
    PoolMemberRow {
        id: id.into(),
        tenant: None,
        pool: "p".to_owned(),
        revision: "r1".to_owned(),
        settings: SETTINGS.to_owned(),
        state,
        claim: None,
        created_at: at(created),
        changed_at: at(created),
    }
}

fn observed(id: &str, phase: Phase, since: i64) -> Observed {
    let source = Source::Image("debian:12".to_owned());
    Observed {
        origin: Origin {
            pool: Some("p".into()),
            ..Origin::new(id, source, at(since))
        },
        status: Status::new(phase, at(since)),
    }
}

/// A pool with members that wait, the first for the longest time.
fn filled(capacity: [u32; 4], ids: &[&str]) -> Arc<Pools> {
    let pools = Pools::new(vec![pool(capacity)], Vec::new(), SETTINGS);
    for (id, created) in ids.iter().zip(10..) {
        pools.add(row(id, created, MemberState::Warming));
        pools.set_ready(observed(id, Phase::Running, created), at(created));
    }
    Arc::new(pools)
}

fn ids(members: &[&str]) -> Vec<SandboxId> {
    members.iter().map(|id| (*id).into()).collect()
}

/// Those that are to be removed. A task has them from now on.
fn drained(pools: &Pools) -> Vec<SandboxId> {
    let mut drained = pools.work(0).drain;
    drained.sort();
    drained
}

fn taken(pools: &Arc<Pools>) -> (Taken, SandboxId) {
    let (taken, member) = pools.take(&key()).unwrap();
    (taken, member.origin.id)
}

#[test]
fn the_oldest_is_taken_and_only_by_one_create() {
    let pools = filled([2, 1, 9, 0], &["a", "b"]);
    let ((first, one), (second, two)) = (taken(&pools), taken(&pools));
    assert_eq!(vec![one, two], ids(&["a", "b"]));
    assert!(pools.take(&key()).is_none());
    drop(second);
    assert_eq!(taken(&pools).1, "b".into(), "given back");
    drop(first);
    assert!(
        pools
            .take(&(Some("t".to_owned()), "p".to_owned()))
            .is_none()
    );
}

#[test]
fn what_a_create_has_shown_and_not_claimed_is_removed() {
    let pools = filled([2, 1, 9, 0], &["a", "b"]);
    let (first, _) = taken(&pools);
    first.commit();
    drop(first);
    assert_eq!(taken(&pools).1, "b".into());
    assert_eq!(drained(&pools), ids(&["a"]));
    let (second, id) = taken(&pools);
    second.commit();
    assert!(pools.set_claimed(&id, "{}".to_owned()).is_some());
    drop(second);
    assert_eq!(drained(&pools), ids(&[]), "it is a client's");
    assert_eq!(pools.counts(&key()).claimed, 1);
    pools.forget(&id);
    let counts = pools.counts(&key());
    assert_eq!((counts.total(), counts.draining), (0, 1));
}

#[test]
fn a_pool_is_filled_within_its_capacity() {
    let pools = filled([3, 2, 4, 0], &["a"]);
    assert_eq!(pools.work(9).start.len(), 2);
    assert_eq!(pools.work(1).start.len(), 1, "starts at once");
    pools.add(row("b", 20, MemberState::Warming));
    assert_eq!(pools.work(1).start.len(), 0, "one is being started");
    assert_eq!(pools.work(9).start.len(), 0, "the buffer is not low");
    let guards: Vec<_> = (0..9).map(|_| pools.wait_for(&key())).collect();
    assert_eq!(pools.work(9).start.len(), 2, "four in all");
    drop(guards);
    assert_eq!(pools.work(9).start.len(), 0);
}

#[test]
fn what_waits_beyond_the_capacity_is_removed_newest_first() {
    let pools = filled([3, 1, 9, 0], &["a", "b", "c"]);
    assert_eq!(drained(&pools), ids(&[]));
    pools.put_pool(pool([1, 1, 9, 0]));
    assert_eq!(drained(&pools), ids(&["b", "c"]));
    assert_eq!(drained(&pools), ids(&[]), "a task has them");
    pools.release(&"b".into());
    assert_eq!(drained(&pools), ids(&["b"]), "its removal has failed");
}

#[test]
fn a_removed_pool_and_another_template_drain_what_waits() {
    let pools = filled([2, 1, 9, 0], &["a", "b"]);
    let (taken, _) = taken(&pools);
    pools.put_pool(PoolRow {
        revision: "r2".to_owned(),
        ..pool([2, 1, 9, 0])
    });
    assert_eq!(drained(&pools), ids(&["b"]), "a create has the other");
    drop(taken);
    assert_eq!(drained(&pools), ids(&["a"]));
    let pools = filled([2, 1, 9, 0], &["a"]);
    pools.remove_pool(&key());
    assert_eq!(pools.pool(&key()), None);
    assert_eq!(drained(&pools), ids(&["a"]));
    pools.add(row("b", 20, MemberState::Warming));
    pools.remove_pool(&key());
    pools.set_ready(observed("b", Phase::Running, 20), at(20));
    assert_eq!(drained(&pools), ids(&["b"]), "it was being started");
}

#[test]
fn members_of_an_earlier_process_are_asked_or_removed() {
    let left = vec![
        row("a", 1, MemberState::Warming),
        row("b", 2, MemberState::Ready),
        row("c", 3, MemberState::Draining),
        row("d", 4, MemberState::Ready),
        row("e", 5, MemberState::Warming),
        row("f", 6, MemberState::Warming),
        row("g", 7, MemberState::Ready),
    ];
    let pools = Arc::new(Pools::new(vec![pool([9, 0, 9, 0])], left, SETTINGS));
    assert!(pools.see(observed("a", Phase::Running, 2)).is_none());
    assert!(pools.see(observed("b", Phase::Running, 2)).is_none());
    assert!(pools.see(observed("c", Phase::Running, 2)).is_none());
    assert!(pools.see(observed("d", Phase::Exited(1), 2)).is_none());
    assert!(pools.see(observed("e", Phase::Created, 2)).is_none());
    assert!(pools.see(observed("g", Phase::Paused, 2)).is_none());
    let seen = ids(&["a", "b", "c", "d", "e", "g"]);
    pools.compare(&seen.into_iter().collect(), at(100));
    let work = pools.work(0);
    let mut removed = work.drain;
    removed.sort();
    assert_eq!(removed, ids(&["f"]), "it is gone");
    let mut asked: Vec<_> = work.verify.into_iter().map(|it| it.origin.id).collect();
    asked.sort();
    let all = ids(&["a", "b", "c", "d", "e", "g"]);
    assert_eq!(asked, all, "those that have ended may be clients'");
    assert!(pools.lose(&"b".into()));
    assert!(pools.work(0).verify.is_empty(), "tasks have them");
    assert!(pools.take(&key()).is_none());
    for id in ["a", "b", "c", "g"] {
        pools.set_verified(&id.into());
    }
    let interrupted = ids(&["a", "c"]);
    assert_eq!(drained(&pools), interrupted, "a start and a removal");
    let (_taken, id) = taken(&pools);
    assert_eq!(id, "b".into());
    assert!(pools.take(&key()).is_none(), "g is frozen");
    pools.freeze(&"g".into(), false, at(3));
    assert_eq!(taken(&pools).1, "g".into());
}

#[test]
fn a_member_of_an_earlier_process_is_asked_before_another_template_removes_it() {
    let left = vec![
        row("a", 1, MemberState::Ready),
        row("b", 2, MemberState::Ready),
    ];
    let pools = Arc::new(Pools::new(vec![pool([9, 0, 9, 0])], left, SETTINGS));
    for id in ["a", "b"] {
        assert!(pools.see(observed(id, Phase::Running, 2)).is_none());
    }
    pools.put_pool(PoolRow {
        revision: "r2".to_owned(),
        ..pool([9, 0, 9, 0])
    });
    pools.remove_pool(&key());
    let work = pools.work(0);
    assert_eq!((work.drain.len(), work.verify.len()), (0, 2));
    pools.set_verified(&"a".into());
    assert_eq!(drained(&pools), ids(&["a"]));
    assert!(pools.contains(&"b".into()));
}

#[test]
fn only_members_without_a_client_are_hidden() {
    let pools = filled([2, 1, 9, 0], &["a", "b"]);
    assert!(pools.see(observed("a", Phase::Running, 10)).is_none());
    pools.set_claimed(&"a".into(), "damaged".to_owned());
    assert!(pools.see(observed("a", Phase::Running, 10)).is_some());
    assert!(!pools.lose(&"a".into()) && !pools.lose(&"x".into()));
    assert!(pools.lose(&"b".into()));
    assert_eq!(drained(&pools), ids(&["b"]));
}

#[test]
fn one_that_only_the_runtime_knows_is_asked_and_never_taken() {
    let pools = filled([2, 0, 9, 0], &[]);
    assert!(pools.see(observed("x", Phase::Exited(0), 1)).is_none());
    assert!(pools.contains(&"x".into()));
    assert_eq!(pools.counts(&key()), PoolCounts::default());
    pools.put_pool(pool([1, 0, 9, 0]));
    let work = pools.work(0);
    let asked: Vec<_> = work.verify.into_iter().map(|it| it.origin.id).collect();
    assert_eq!((work.drain, asked), (ids(&[]), ids(&["x"])));
    assert!(pools.take(&key()).is_none());
    pools.forget(&"x".into());
    assert!(pools.see(observed("x", Phase::Running, 1)).is_none());
    assert!(!pools.contains(&"x".into()), "a list that is out of date");
}

#[test]
fn a_member_that_a_list_lacks_is_gone() {
    let pools = filled([3, 1, 9, 0], &["a", "b", "c"]);
    let (_taken, _) = taken(&pools);
    let compared = pools.compare(&HashSet::from(["b".into()]), at(12));
    assert!(compared.unseen_claims.is_empty() && !compared.has_found);
    assert_eq!(drained(&pools), ids(&[]), "c has started since");
    pools.compare(&HashSet::from(["b".into()]), at(13));
    assert_eq!(drained(&pools), ids(&["c"]), "a create has a");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_repeated_after_a_pause_that_grows() {
    let pools = filled([1, 1, 9, 0], &[]);
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        pools.start_failed(&key(), Instant::now(), failure("no image"));
        assert_eq!(pools.work(9).start.len(), 0);
        let pause = pools.next_attempt().unwrap() - Instant::now();
        assert_eq!(pause.as_secs(), seconds);
        tokio::time::advance(pause).await;
        assert_eq!(pools.work(9).start.len(), 1);
        assert_eq!(pools.next_attempt(), None);
    }
    pools.add(row("a", 20, MemberState::Warming));
    pools.set_ready(observed("a", Phase::Running, 20), at(20));
    pools.start_failed(&key(), Instant::now(), failure("no image"));
    assert_eq!(pools.next_attempt().unwrap() - Instant::now(), FIRST_PAUSE);
}

#[test]
fn a_failure_is_shown_until_a_start_works_and_kept_with_its_template() {
    let pools = filled([1, 1, 9, 0], &[]);
    let now = || {
        let now = pools.now(&key()).unwrap();
        (now.is_failing, now.last_failure)
    };
    assert_eq!(now(), (false, None));
    let reason = failure("no image");
    pools.start_failed(&key(), Instant::now(), reason.clone());
    assert_eq!(now(), (true, Some(reason.clone())));
    pools.add(row("a", 20, MemberState::Warming));
    pools.set_ready(observed("a", Phase::Running, 20), at(20));
    assert_eq!(now(), (false, Some(reason.clone())));
    pools.put_pool(pool([2, 1, 9, 0]));
    assert_eq!(now(), (false, Some(reason)), "another capacity");
    pools.put_pool(PoolRow {
        revision: "r2".to_owned(),
        ..pool([2, 1, 9, 0])
    });
    assert_eq!(now(), (false, None));
    assert_eq!(pools.now_of_tenant(None).len(), 1);
    assert!(pools.now_of_tenant(Some("other")).is_empty());
}

#[test]
fn a_create_waits_only_while_one_may_come() {
    let pools = filled([0, 0, 1, 0], &[]);
    assert!(pools.may_get_one(&key()), "there is room");
    pools.add(row("a", 20, MemberState::Warming));
    assert!(pools.may_get_one(&key()), "it is being started");
    pools.set_ready(observed("a", Phase::Running, 20), at(20));
    pools.set_claimed(&"a".into(), "{}".to_owned());
    assert!(!pools.may_get_one(&key()));
}

#[test]
fn members_of_other_settings_templates_and_pools_are_asked_and_go_to_no_client() {
    let other = |id: &str, change: fn(&mut PoolMemberRow)| {
        let mut row = row(id, 1, MemberState::Ready);
        change(&mut row);
        row
    };
    let left = vec![
        other("a", |it| it.settings = "s0".to_owned()),
        other("b", |it| it.revision = "r0".to_owned()),
        other("c", |it| it.pool = "gone".to_owned()),
        other("d", |_| {}),
        PoolMemberRow {
            state: MemberState::Claimed,
            ..other("e", |it| it.settings = "s0".to_owned())
        },
    ];
    let pools = Arc::new(Pools::new(vec![pool([9, 0, 9, 0])], left, SETTINGS));
    let counts = pools.counts(&key());
    assert_eq!((counts.ready, counts.draining, counts.claimed), (1, 2, 1));
    for id in ["a", "b", "c", "d"] {
        assert!(pools.see(observed(id, Phase::Running, 1)).is_none());
    }
    let work = pools.work(0);
    assert_eq!(work.drain, ids(&[]), "one may be a client's");
    let mut asked: Vec<_> = work.verify.into_iter().map(|it| it.origin.id).collect();
    asked.sort();
    assert_eq!(asked, ids(&["a", "b", "c", "d"]));
    for id in &asked {
        pools.set_verified(id);
    }
    assert_eq!(drained(&pools), ids(&["a", "b", "c"]));
    let (_taken, id) = taken(&pools);
    assert_eq!(id, "d".into());
    assert!(pools.take(&key()).is_none());
}

#[test]
fn a_frozen_member_goes_to_no_client() {
    let pools = filled([1, 1, 9, 0], &["a"]);
    pools.freeze(&"a".into(), true, at(20));
    assert!(pools.take(&key()).is_none());
    assert_eq!(pools.work(9).start.len(), 0, "it fills its place");
    let guard = pools.wait_for(&key());
    assert_eq!(pools.work(9).start.len(), 1, "but serves no create");
    drop(guard);
    pools.freeze(&"a".into(), false, at(21));
    assert_eq!(taken(&pools).1, "a".into());
}

#[test]
fn a_claimed_member_without_a_container_takes_no_place() {
    let claimed = |id: &str| row(id, 1, MemberState::Claimed);
    let left = vec![
        claimed("a"),
        claimed("b"),
        row("c", 1, MemberState::Draining),
    ];
    let pools = Pools::new(vec![pool([0, 0, 2, 0])], left, SETTINGS);
    assert!(!pools.may_get_one(&key()));
    let compared = pools.compare(&HashSet::from(["a".into()]), at(9));
    assert!(compared.has_found, "it is the same runtime");
    assert_eq!(pools.counts(&key()).claimed, 1);
    assert!(pools.may_get_one(&key()));
    let compared = pools.compare(&HashSet::new(), at(9));
    assert!(!compared.has_found);
    assert!(pools.see(observed("a", Phase::Running, 1)).is_some());
    assert_eq!(pools.counts(&key()).claimed, 1, "it came back");
}

#[tokio::test(start_paused = true)]
async fn failures_of_starts_at_once_count_once() {
    let pools = filled([4, 4, 9, 0], &[]);
    let began = Instant::now();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    for _ in 0..4 {
        pools.start_failed(&key(), began, failure("no image"));
    }
    assert_eq!(pools.next_attempt().unwrap() - Instant::now(), FIRST_PAUSE);
    tokio::time::advance(FIRST_PAUSE).await;
    let began = Instant::now();
    pools.start_failed(&key(), began, failure("no image"));
    let pause = pools.next_attempt().unwrap() - Instant::now();
    assert_eq!(pause, 2 * FIRST_PAUSE);
}

/// A pool with this name.
fn named(name: &str, capacity: [u32; 4]) -> PoolRow {
    PoolRow {
        name: name.to_owned(),
        ..pool(capacity)
    }
}

/// The pools that get the next starts, which begin.
fn dealt(pools: &Pools, count: &mut i64) -> Vec<String> {
    let starts = pools.work(4).start.into_iter();
    let starts = starts.map(|pool| {
        *count += 1;
        let id = format!("{}-{count}", pool.name);
        pools.add(PoolMemberRow {
            pool: pool.name.clone(),
            ..row(&id, *count, MemberState::Warming)
        });
        pool.name
    });
    starts.collect()
}

#[test]
fn starts_are_dealt_to_all_pools_in_turn() {
    let large = [90, 90, 90, 0];
    let rows = ["a", "b", "c"].map(|name| named(name, large)).to_vec();
    let pools = Pools::new(rows, Vec::new(), SETTINGS);
    let mut count = 0;
    assert_eq!(dealt(&pools, &mut count), ["a", "b", "c", "a"]);
    assert!(dealt(&pools, &mut count).is_empty());
    for (ended, next) in [("a-1", "b"), ("b-2", "c"), ("c-3", "a"), ("a-4", "b")] {
        pools.forget(&ended.into());
        assert_eq!(dealt(&pools, &mut count), [next]);
    }
}

#[test]
fn one_pool_never_has_all_starts_while_another_wants_one() {
    let pools = Pools::new(
        vec![named("a", [90, 90, 90, 0]), named("b", [9, 9, 9, 0])],
        Vec::new(),
        SETTINGS,
    );
    let pools = Arc::new(pools);
    let key = (None, "a".to_owned());
    let _guards: Vec<_> = (0..9).map(|_| pools.wait_for(&key)).collect();
    let mut count = 0;
    assert_eq!(dealt(&pools, &mut count), ["a", "b", "a", "b"]);
    for (ended, next) in [("b-2", "a"), ("b-4", "b"), ("b-6", "b"), ("a-1", "a")] {
        pools.forget(&ended.into());
        assert_eq!(dealt(&pools, &mut count), [next], "{ended}");
    }
    pools.remove_pool(&(None, "b".to_owned()));
    pools.forget(&"b-7".into());
    assert_eq!(dealt(&pools, &mut count), ["a"], "it is alone");
}

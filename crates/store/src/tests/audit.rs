//! The audit trail.

use std::collections::BTreeSet;

use osb_protocol::{
    WireTime,
    audit::{AuditActor, AuditActorKind, AuditEntry, AuditObject, AuditOutcome},
    identity::Role,
};
use serde_json::{Map, json};

use super::Stage;
use crate::{AuditPlace, AuditQuery, Store, tools};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

pub(super) fn entry(number: i64) -> AuditEntry {
    AuditEntry {
        id: format!("entry-{number}"),
        at: at(number),
        action: "sandbox.renew".into(),
        outcome: AuditOutcome::Succeeded,
        status: Some(200),
        code: None,
        actor: AuditActor {
            kind: AuditActorKind::User,
            id: "user-1".into(),
            name: "zoe".into(),
            role: Some(Role::Operator),
            tenant: Some("team-a".into()),
        },
        object: AuditObject {
            kind: "sandbox".into(),
            id: "a".into(),
        },
        tenant: Some("team-a".into()),
        address: Some("192.0.2.1".into()),
        request_id: Some("r".into()),
        count: 1,
        changes: Map::from_iter([("expiresAt".to_owned(), json!({"before": 1, "after": 2}))]),
    }
}

async fn ids(store: &dyn Store, query: &AuditQuery) -> Vec<String> {
    let found = store.audit(query, 100).await.unwrap();
    found.into_iter().map(|(_, entry)| entry.id).collect()
}

pub(super) async fn entries_are_kept_in_order_and_once(stage: Stage) {
    let store = stage.open().await;
    // The order is that of the writes, whatever their times say.
    let written = [entry(5), entry(3), entry(4)];
    store.append_audit(&written).await.unwrap();
    store.append_audit(&written[1..]).await.unwrap();
    let odd = AuditEntry {
        actor: AuditActor {
            kind: AuditActorKind::Unknown,
            id: String::new(),
            name: "\0'\"\u{1f4a5}".into(),
            role: None,
            tenant: None,
        },
        tenant: None,
        changes: Map::new(),
        ..entry(6)
    };
    store.append_audit(&[odd]).await.unwrap();
    let found = store.audit(&AuditQuery::default(), 100).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|(_, entry)| entry).collect();
    assert!(found[0].actor.name.ends_with('\u{1f4a5}'), "{:?}", found[0]);
    let expected: Vec<_> = written.into_iter().rev().collect();
    assert_eq!(found[1..], expected);
    store.close().await;
    drop(store);
    let store = stage.open().await;
    assert_eq!(ids(&*store, &AuditQuery::default()).await.len(), 4);
    store.close().await;
}

pub(super) async fn a_reader_meets_every_entry_once_while_others_are_written(stage: Stage) {
    let store = stage.open().await;
    let first: Vec<_> = (0..50).map(entry).collect();
    store.append_audit(&first).await.unwrap();
    let (mut query, mut seen) = (AuditQuery::default(), Vec::new());
    for number in 50.. {
        let page = store.audit(&query, 7).await.unwrap();
        let Some((AuditPlace(last), _)) = page.last() else {
            break;
        };
        query.before = Some(AuditPlace(*last));
        seen.extend(page.into_iter().map(|(_, entry)| entry.id));
        store.append_audit(&[entry(number)]).await.unwrap();
    }
    let expected: Vec<_> = first.into_iter().rev().map(|entry| entry.id).collect();
    assert_eq!(seen, expected);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = store.clone();
        writers.spawn(async move {
            for number in 0..5 {
                let entry = entry(1_000 + 100 * writer + number);
                store.append_audit(&[entry]).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let all = store.audit(&AuditQuery::default(), 1_000).await.unwrap();
    let places: BTreeSet<_> = all.iter().map(|(place, _)| *place).collect();
    assert_eq!(places.len(), all.len());
    assert!(all.is_sorted_by(|one, other| one.0 > other.0));
    store.close().await;
}

pub(super) async fn filters_select_and_combine(stage: Stage) {
    let store = stage.open().await;
    let mut entries: Vec<_> = (0..6).map(entry).collect();
    entries[1].action = "user.create".into();
    entries[1].object.kind = "user".into();
    entries[2].outcome = AuditOutcome::Denied;
    entries[3].tenant = None;
    entries[4].actor.id = "user-2".into();
    entries[5].object.id = "b".into();
    store.append_audit(&entries).await.unwrap();
    let any = AuditQuery::default;
    let text = |text: &str| Some(text.to_owned());
    for (query, expected) in [
        (any(), vec![5, 4, 3, 2, 1, 0]),
        (
            AuditQuery {
                since: Some(at(4)),
                ..any()
            },
            vec![5, 4],
        ),
        (
            AuditQuery {
                until: Some(at(2)),
                ..any()
            },
            vec![1, 0],
        ),
        (
            AuditQuery {
                actor: text("user-2"),
                ..any()
            },
            vec![4],
        ),
        (
            AuditQuery {
                actor: text("zoe"),
                since: Some(at(3)),
                ..any()
            },
            vec![5, 4, 3],
        ),
        (
            AuditQuery {
                action: text("user.create"),
                ..any()
            },
            vec![1],
        ),
        (
            AuditQuery {
                sandbox: text("a"),
                ..any()
            },
            vec![4, 3, 2, 0],
        ),
        (
            AuditQuery {
                tenant: text("team-a"),
                sandbox: text("b"),
                ..any()
            },
            vec![5],
        ),
        (
            AuditQuery {
                tenant: text("team-b"),
                ..any()
            },
            vec![],
        ),
        (
            AuditQuery {
                outcome: Some(AuditOutcome::Denied),
                ..any()
            },
            vec![2],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(|n| format!("entry-{n}")).collect();
        assert_eq!(ids(&*store, &query).await, expected, "{query:?}");
    }
    store.close().await;
}

pub(super) async fn the_oldest_are_pruned_in_bounded_steps(stage: Stage) {
    let store = stage.open().await;
    assert_eq!(store.prune_audit(at(100), 0, 10).await.unwrap(), 0);
    let entries: Vec<_> = (0..20).map(entry).collect();
    store.append_audit(&entries).await.unwrap();
    let prune = async |before, keep, most| {
        let gone = store.prune_audit(at(before), keep, most).await.unwrap();
        let left = ids(&*store, &AuditQuery::default()).await;
        (gone, left.len(), left.last().cloned().unwrap())
    };
    assert_eq!(prune(0, 20, 10).await, (0, 20, "entry-0".into()));
    assert_eq!(prune(5, 20, 3).await, (3, 17, "entry-3".into()));
    assert_eq!(prune(5, 20, 3).await, (2, 15, "entry-5".into()));
    assert_eq!(prune(0, 12, 100).await, (3, 12, "entry-8".into()));
    // A place is not given again, or a reader would skip its new owner.
    assert_eq!(store.prune_audit(at(100), 0, 100).await.unwrap(), 12);
    store.append_audit(&[entry(30)]).await.unwrap();
    let (place, _) = store.audit(&AuditQuery::default(), 1).await.unwrap()[0].clone();
    assert!(place > AuditPlace(20), "{place:?}");
    store.close().await;
}

pub(super) async fn entries_are_counted_whatever_their_places(stage: Stage) {
    let store = stage.open().await;
    // A database may use up places without an entry, as PostgreSQL does when a write is rolled back.
    for number in 0..10 {
        store.append_audit(&[entry(number)]).await.unwrap();
        let skip = stage.dialect(
            "UPDATE sqlite_sequence SET seq = seq + 100 WHERE name = 'audit_entries'",
            "SELECT nextval(pg_get_serial_sequence('audit_entries', 'seq'))
             FROM generate_series(1, 100)",
        );
        stage.execute(skip).await;
    }
    assert_eq!(store.prune_audit(at(0), 10, 100).await.unwrap(), 0);
    assert_eq!(store.prune_audit(at(0), 7, 100).await.unwrap(), 3);
    let left = ids(&*store, &AuditQuery::default()).await;
    assert_eq!((left.len(), left[6].as_str()), (7, "entry-3"));
    store.close().await;
}

pub(super) async fn a_flood_of_refusals_displaces_no_act_that_was_done(stage: Stage) {
    let store = stage.open().await;
    let mut entries: Vec<_> = (0..60).map(entry).collect();
    for refused in &mut entries[10..] {
        refused.outcome = AuditOutcome::Denied;
    }
    store.append_audit(&entries).await.unwrap();
    assert_eq!(store.prune_audit(at(0), 20, 30).await.unwrap(), 30);
    assert_eq!(store.prune_audit(at(0), 20, 30).await.unwrap(), 10);
    let left = ids(&*store, &AuditQuery::default()).await;
    let done = (0..10).rev().map(|number| format!("entry-{number}"));
    assert_eq!(left.len(), 20);
    assert!(left.iter().skip(10).cloned().eq(done), "{left:?}");
    assert_eq!(left[9], "entry-50", "the newest refusals stay");
    store.close().await;
}

pub(super) async fn unreadable_entries_are_named(stage: Stage) {
    let store = stage.open().await;
    store.append_audit(&[entry(1), entry(2)]).await.unwrap();
    stage
        .execute("UPDATE audit_entries SET details = '{}' WHERE id = 'entry-2'")
        .await;
    let found = tools::inspect(&stage.location).await.unwrap();
    let expected = "audit_entries: details cannot be read (1): entry-2";
    assert_eq!(found.problems, [expected]);
    let all = ids(&*store, &AuditQuery::default()).await;
    assert_eq!(all, ["entry-2", "entry-1"], "it hides no other");
    store.close().await;
}

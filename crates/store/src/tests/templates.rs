//! Templates.

use std::{collections::BTreeMap, sync::Arc};

use osb_protocol::{WireTime, lifecycle::TemplatePhase};

use super::Stage;
use crate::{Store, StoredFor, TemplateChange, TemplateQuery, TemplateRow, TemplateTotal};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

/// A template that was accepted at a time.
pub(super) fn template(id: &str, us: i64) -> TemplateRow {
    TemplateRow {
        id: id.into(),
        tenant: Some("team-a".into()),
        owner: Some("user:1".into()),
        spec: r#"{"image":"debian:12","publish":"s3://b/p"}"#.into(),
        metadata: labels(&[("team", "core")]),
        phase: TemplatePhase::Pending,
        image: Some("image".into()),
        message: Some("no such image".into()),
        size_bytes: Some(7),
        created_at: at(us),
        changed_at: at(us),
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

pub(super) async fn a_template_is_read_back_whole_after_a_restart(stage: Stage) {
    let store = stage.open().await;
    let whole = template("whole", 1_935_396_000_123_456);
    let bare = TemplateRow {
        tenant: None,
        owner: None,
        metadata: BTreeMap::new(),
        image: None,
        message: None,
        size_bytes: None,
        ..template("bare", 1)
    };
    for row in [&whole, &bare] {
        assert!(store.add_template(row).await.unwrap());
    }
    assert!(!store.add_template(&template("whole", 9)).await.unwrap());
    store.close().await;
    drop(store);
    let store = stage.open().await;
    assert_eq!(store.template("whole").await.unwrap(), Some(whole));
    assert_eq!(store.template("bare").await.unwrap(), Some(bare));
    assert_eq!(store.template("none").await.unwrap(), None);
}

pub(super) async fn lists_are_filtered_by_labels_and_paged(stage: Stage) {
    let store = stage.open().await;
    for (id, us, tenant, pairs) in [
        ("a", 1, Some("red"), &[("team", "core"), ("a.b/c", "1")][..]),
        ("b", 3, Some("blue"), &[("team", "core")][..]),
        ("c", 3, None, &[][..]),
        ("d", 2, Some("red"), &[("team", "other")][..]),
    ] {
        let row = TemplateRow {
            tenant: tenant.map(str::to_owned),
            metadata: labels(pairs),
            ..template(id, us)
        };
        assert!(store.add_template(&row).await.unwrap());
    }
    let deleted = TemplateRow {
        tenant: Some("red".to_owned()),
        phase: TemplatePhase::Deleting,
        ..template("e", 4)
    };
    assert!(store.add_template(&deleted).await.unwrap());
    let list = async |tenant: Option<&str>, pairs: &[(&str, &str)], skip, limit| {
        let query = TemplateQuery {
            tenant: tenant.map(str::to_owned),
            metadata: labels(pairs),
            deleting: false,
            skip,
            limit,
        };
        let (rows, total) = store.templates(&query).await.unwrap();
        let ids: Vec<String> = rows.into_iter().map(|row| row.id).collect();
        (ids.join(" "), total)
    };
    assert_eq!(list(None, &[], 0, 9).await, ("c b d a".into(), 4));
    assert_eq!(list(None, &[], 1, 2).await, ("b d".into(), 4));
    assert_eq!(list(Some("red"), &[], 0, 9).await, ("d a".into(), 2));
    let core = [("team", "core")];
    assert_eq!(list(None, &core, 0, 9).await, ("b a".into(), 2));
    assert_eq!(list(Some("red"), &core, 0, 9).await, ("a".into(), 1));
    let both = [("team", "core"), ("a.b/c", "1")];
    assert_eq!(list(None, &both, 0, 9).await, ("a".into(), 1));
    for value in ["none", "co\0re"] {
        let found = list(None, &[("team", value)], 0, 9).await;
        assert_eq!(found, (String::new(), 0), "{value:?}");
    }
    let query = TemplateQuery {
        tenant: Some("red".to_owned()),
        deleting: true,
        limit: 2,
        ..TemplateQuery::default()
    };
    let (rows, total) = store.templates(&query).await.unwrap();
    let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!((ids.as_slice(), total), (&["e", "d"][..], 3));
}

pub(super) async fn a_template_changes_only_from_the_phase_that_was_seen(stage: Stage) {
    use TemplatePhase::{Building, Deleting, Failed, Pending, Succeeded};
    let store = stage.open().await;
    let fresh = TemplateRow {
        image: None,
        message: None,
        size_bytes: None,
        ..template("t", 1)
    };
    store.add_template(&fresh).await.unwrap();
    let to = |phase, image: Option<&str>, us| TemplateChange {
        phase,
        image: image.map(str::to_owned),
        message: None,
        log: image.map(|image| format!("log of {image}")),
        size_bytes: image.map(|_| 5),
        at: at(us),
    };
    let change = async |from, change: &TemplateChange| {
        store.change_template("t", from, change).await.unwrap()
    };
    assert!(!change(Building, &to(Succeeded, None, 2)).await);
    assert!(change(Pending, &to(Building, None, 2)).await);
    assert!(change(Building, &to(Succeeded, Some("i"), 3)).await);
    assert!(!change(Building, &to(Failed, None, 4)).await);
    assert!(!store.remove_template("t", Deleting).await.unwrap());
    assert!(change(Succeeded, &to(Deleting, None, 5)).await);
    let want = TemplateRow {
        phase: Deleting,
        image: Some("i".into()),
        size_bytes: Some(5),
        changed_at: at(5),
        ..fresh
    };
    assert_eq!(store.template("t").await.unwrap(), Some(want));
    let log = async |id: &str| store.template_log(id).await.unwrap();
    assert_eq!(log("t").await.as_deref(), Some("log of i"));
    assert_eq!(log("none").await, None);
    assert!(store.remove_template("t", Deleting).await.unwrap());
    assert!(!store.remove_template("t", Deleting).await.unwrap());
}

pub(super) async fn a_template_is_marked_as_deleted_once_from_any_phase(stage: Stage) {
    let store = stage.open().await;
    for phase in TemplatePhase::ALL {
        let row = TemplateRow {
            phase,
            ..template("t", 1)
        };
        store.add_template(&row).await.unwrap();
        let was_marked = phase == TemplatePhase::Deleting;
        let marked = store.mark_template("t", at(2)).await.unwrap();
        assert_eq!(marked, !was_marked, "{phase}");
        assert!(!store.mark_template("t", at(3)).await.unwrap(), "{phase}");
        let seen = store.template("t").await.unwrap().unwrap();
        assert_eq!(seen.phase, TemplatePhase::Deleting, "{phase}");
        let since = if was_marked { at(1) } else { at(2) };
        assert_eq!(
            (seen.changed_at, seen.size_bytes),
            (since, Some(7)),
            "{phase}"
        );
        // What makes it cannot bring it back.
        let change = TemplateChange {
            phase: TemplatePhase::Succeeded,
            image: None,
            message: None,
            log: None,
            size_bytes: None,
            at: at(4),
        };
        for from in [TemplatePhase::Pending, TemplatePhase::Building] {
            let changed = store.change_template("t", from, &change).await.unwrap();
            assert!(!changed, "{phase}");
        }
        let removed = store.remove_template("t", TemplatePhase::Deleting).await;
        assert!(removed.unwrap(), "{phase}");
    }
    assert!(!store.mark_template("t", at(5)).await.unwrap());
}

pub(super) async fn concurrent_changes_of_a_template_have_one_winner(stage: Stage) {
    let store: Arc<dyn Store> = stage.open().await;
    store.add_template(&template("t", 1)).await.unwrap();
    let mut changes = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        changes.spawn(async move {
            let change = TemplateChange {
                phase: TemplatePhase::Building,
                image: None,
                message: None,
                log: None,
                size_bytes: None,
                at: at(n),
            };
            let done = store.change_template("t", TemplatePhase::Pending, &change);
            done.await.unwrap()
        });
    }
    let changes = changes.join_all().await;
    assert_eq!(changes.iter().filter(|done| **done).count(), 1);
}

pub(super) async fn open_templates_phases_and_totals_are_found(stage: Stage) {
    use TemplatePhase::{Building, Deleting, Failed, Pending, Succeeded};
    let store = stage.open().await;
    for (id, phase) in [
        ("a", Pending),
        ("b", Building),
        ("c", Succeeded),
        ("d", Failed),
        ("e", Deleting),
    ] {
        let row = TemplateRow {
            phase,
            ..template(id, 1)
        };
        store.add_template(&row).await.unwrap();
    }
    let open = async |after: &str, most| -> Vec<String> {
        let rows = store.open_templates(after, most).await.unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(open("", 2).await, ["a", "b"]);
    assert_eq!(open("b", 2).await, ["e"]);
    assert_eq!(open("e", 2).await, [""; 0]);
    let ids = ["a", "e", "none"].map(str::to_owned);
    let phases = store.template_phases(&ids).await.unwrap();
    let want = [("a".to_owned(), Pending), ("e".to_owned(), Deleting)];
    assert_eq!(phases, want.into_iter().collect());
    for (of, bytes) in [
        (StoredFor::Tenant("team-a"), 35),
        (StoredFor::Tenant("team-b"), 0),
        (StoredFor::Owner("user:1"), 35),
    ] {
        assert_eq!(store.template_bytes(of).await.unwrap(), bytes, "{of:?}");
    }
    let totals = store.template_totals().await.unwrap();
    assert_eq!(totals.len(), 5, "{totals:?}");
    assert_eq!(
        totals[0],
        TemplateTotal {
            phase: Building,
            count: 1,
            bytes: 7,
        }
    );
}

//! Sandboxes that are gone.

use osb_protocol::WireTime;

use super::Stage;
use crate::{EndedSpec, HistoryEntry, Outcome, StageTime};

pub(super) async fn finishing_moves_a_sandbox_from_changes_to_history_once(stage: Stage) {
    let store = stage.open().await;
    let at = |us| WireTime::from_unix_us(us).unwrap();
    let entry = HistoryEntry {
        id: "a".into(),
        image: "debian:12".into(),
        created_at: at(1),
        ended_at: at(9),
        outcome: Outcome::Expired,
        reason: "EXPIRED".into(),
        message: "its time was up".into(),
        stages: vec![StageTime {
            stage: "accepted".into(),
            at: at(1),
        }],
        tenant: Some("team-a".into()),
        spec: EndedSpec {
            metadata: [("name".to_owned(), "search\0".to_owned())].into(),
            entrypoint: vec!["sleep".to_owned(), "9 9".to_owned()],
            resources: [("cpu".to_owned(), "500m".to_owned())].into(),
            expires_at: Some(at(5)),
        },
    };
    store.set_expiry(&entry.id, at(5), None).await.unwrap();
    store.finish(&entry).await.unwrap();
    store
        .finish(&HistoryEntry {
            message: "again".into(),
            ..entry.clone()
        })
        .await
        .unwrap();
    assert!(store.all_changes().await.unwrap().is_empty());
    assert_eq!(store.history(&entry.id).await.unwrap(), Some(entry.clone()));
    assert_eq!(store.recent_history(None, 0, 10).await.unwrap(), [entry]);
    assert_eq!(store.prune_history(at(9)).await.unwrap(), 0);
    assert_eq!(store.prune_history(at(10)).await.unwrap(), 1);
}

pub(super) async fn the_last_use_of_each_image_is_known(stage: Stage) {
    let store = stage.open().await;
    let at = |us| WireTime::from_unix_us(us).unwrap();
    for (id, image, us) in [
        ("a", "debian:12", 5),
        ("b", "debian:12", 9),
        ("c", "debian:12", 7),
        ("d", "alpine:3", 6),
        ("e", "", 8),
    ] {
        let entry = HistoryEntry {
            id: id.into(),
            image: image.to_owned(),
            created_at: at(1),
            ended_at: at(us),
            outcome: Outcome::Deleted,
            reason: "DELETED".into(),
            message: String::new(),
            stages: Vec::new(),
            tenant: None,
            spec: EndedSpec::default(),
        };
        store.finish(&entry).await.unwrap();
    }
    let uses = store.image_uses().await.unwrap();
    let wanted = [("alpine:3", 6), ("debian:12", 9)];
    let wanted = wanted.map(|(image, us)| (image.to_owned(), at(us)));
    assert_eq!(uses, wanted);
}

pub(super) async fn a_busy_tenant_does_not_hide_the_history_of_another(stage: Stage) {
    let store = stage.open().await;
    let ended = |id: &str, us: i64, tenant: Option<&str>| HistoryEntry {
        id: id.into(),
        image: "debian:12".into(),
        created_at: WireTime::from_unix_us(1).unwrap(),
        ended_at: WireTime::from_unix_us(us).unwrap(),
        outcome: Outcome::Deleted,
        reason: "DELETED".into(),
        message: String::new(),
        stages: Vec::new(),
        tenant: tenant.map(str::to_owned),
        spec: EndedSpec::default(),
    };
    for (id, us, tenant) in [
        ("quiet", 1, Some("quiet")),
        ("busy-1", 2, Some("busy")),
        ("busy-2", 4, Some("busy")),
        ("operator", 3, None),
    ] {
        store.finish(&ended(id, us, tenant)).await.unwrap();
    }
    let ids = async |tenant, limit| {
        let recent = store.recent_history(tenant, 0, limit).await.unwrap();
        let ids = recent.iter().map(|entry| entry.id.as_str().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(Some("quiet"), 2).await, ["quiet"]);
    assert_eq!(ids(Some("busy"), 1).await, ["busy-2"]);
    assert_eq!(ids(None, 2).await, ["busy-2", "operator"]);
    assert_eq!(ids(Some("absent"), 2).await, [""; 0]);
}

pub(super) async fn pages_of_the_history_meet_every_entry_once(stage: Stage) {
    let store = stage.open().await;
    let mut all = Vec::new();
    // Several end at the same moment: their order must not differ between pages.
    for (number, us) in [(0, 5), (1, 5), (2, 5), (3, 9), (4, 1), (5, 5), (6, 5)] {
        let tenant = if number % 2 == 0 { "even" } else { "odd" };
        let entry = HistoryEntry {
            tenant: Some(tenant.to_owned()),
            ..super::commands::ended(&format!("s{number}"), us)
        };
        store.finish(&entry).await.unwrap();
        all.push(entry);
    }
    all.sort_by(|a, b| b.ended_at.cmp(&a.ended_at).then(a.id.cmp(&b.id)));
    for tenant in [None, Some("even"), Some("odd"), Some("absent")] {
        let mut met = Vec::new();
        for skip in [0, 2, 4, 6] {
            met.extend(store.recent_history(tenant, skip, 2).await.unwrap());
        }
        let own = all
            .iter()
            .filter(|it| tenant.is_none() || it.tenant.as_deref() == tenant);
        let own: Vec<_> = own.cloned().collect();
        assert_eq!(met, own, "{tenant:?}");
        let count = u32::try_from(own.len()).unwrap();
        assert_eq!(store.count_history(tenant, 100).await.unwrap(), count);
        assert_eq!(store.count_history(tenant, 2).await.unwrap(), count.min(2));
    }
}

/// The columns of its description have no value there.
pub(super) async fn an_entry_of_an_earlier_release_is_read(stage: Stage) {
    let store = stage.open().await;
    let entry = super::commands::ended("old", 1);
    store.finish(&entry).await.unwrap();
    stage
        .execute("UPDATE sandbox_history SET metadata = NULL, entrypoint = NULL, resources = NULL")
        .await;
    let read = store.history(&entry.id).await.unwrap();
    assert_eq!(read, Some(entry));
}

/// PostgreSQL has no NUL in texts; ids come from URLs, messages from programs.
pub(super) async fn any_text_can_be_stored_and_looked_up(stage: Stage) {
    let store = stage.open().await;
    let at = WireTime::from_unix_us(1).unwrap();
    let entry = HistoryEntry {
        id: "a".into(),
        image: "debian:12\0'\"\\".into(),
        created_at: at,
        ended_at: at,
        outcome: Outcome::CreateFailed,
        reason: "\0".into(),
        message: "\u{1f4a5}\0".into(),
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    };
    store.finish(&entry).await.unwrap();
    let read = store.history(&entry.id).await.unwrap().unwrap();
    assert!(read.message.starts_with('\u{1f4a5}'), "{read:?}");
    assert_eq!(store.history(&"\0".into()).await.unwrap(), None);
    assert_eq!(store.session_load("\0").await.unwrap(), None);
    let metadata = [("k\0".to_owned(), "v\0".to_owned())].into();
    store
        .set_metadata(&entry.id, &metadata, None)
        .await
        .unwrap();
    assert_eq!(store.all_changes().await.unwrap().len(), 1);
}

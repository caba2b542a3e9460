//! Sandboxes that are gone.

use osb_protocol::WireTime;

use super::Stage;
use crate::{HistoryEntry, Outcome, StageTime};

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
    assert_eq!(store.recent_history(None, 10).await.unwrap(), [entry]);
    assert_eq!(store.prune_history(at(9)).await.unwrap(), 0);
    assert_eq!(store.prune_history(at(10)).await.unwrap(), 1);
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
        let recent = store.recent_history(tenant, limit).await.unwrap();
        let ids = recent.iter().map(|entry| entry.id.as_str().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(Some("quiet"), 2).await, ["quiet"]);
    assert_eq!(ids(Some("busy"), 1).await, ["busy-2"]);
    assert_eq!(ids(None, 2).await, ["busy-2", "operator"]);
    assert_eq!(ids(Some("absent"), 2).await, [""; 0]);
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

//! What changed of sandboxes.

use std::collections::{BTreeMap, HashMap};

use osb_protocol::{SandboxId, WireTime};

use super::Stage;
use crate::Changes;

pub(super) async fn changes_survive_a_restart_and_do_not_touch_each_other(stage: Stage) {
    let (id, at) = (
        SandboxId::from("a"),
        WireTime::from_unix_us(5_000_001).unwrap(),
    );
    let metadata = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let instance = {
        let store = stage.open().await;
        store.set_expiry(&id, at, None).await.unwrap();
        store.set_metadata(&id, &metadata, None).await.unwrap();
        store.set_deleted(&id, at, Some("team-a")).await.unwrap();
        store
            .set_deleted(&id, at.plus_seconds(9).unwrap(), Some("team-a"))
            .await
            .unwrap();
        let instance = store.instance_id().await.unwrap();
        assert_eq!(store.instance_id().await.unwrap(), instance);
        store.close().await;
        instance
    };
    let store = stage.open().await;
    assert_eq!(store.instance_id().await.unwrap(), instance);
    let want = Changes {
        expires_at: Some(at),
        metadata: Some(metadata),
        deleted_at: Some(at),
        tenant: Some("team-a".to_owned()),
    };
    assert_eq!(
        store.all_changes().await.unwrap(),
        HashMap::from([(id, want)])
    );
}

pub(super) async fn many_writers_queue_instead_of_failing(stage: Stage) {
    let store = stage.open().await;
    let writes = (0..64).map(|n| {
        let store = store.clone();
        async move {
            let at = WireTime::from_unix_us(n).unwrap();
            let id = SandboxId::new(n.to_string());
            store.set_expiry(&id, at, None).await
        }
    });
    let mut set = tokio::task::JoinSet::new();
    for write in writes {
        set.spawn(write);
    }
    for result in set.join_all().await {
        result.unwrap();
    }
    assert_eq!(store.all_changes().await.unwrap().len(), 64);
}

pub(super) async fn every_change_keeps_the_tenant(stage: Stage) {
    let store = stage.open().await;
    let at = WireTime::from_unix_us(5_000_001).unwrap();
    let none = BTreeMap::new();
    let team = Some("team-a");
    store.set_expiry(&"renewed".into(), at, team).await.unwrap();
    let patched = "patched".into();
    store.set_metadata(&patched, &none, team).await.unwrap();
    // What knows no tenant does not take it away.
    for id in ["renewed".into(), patched] {
        store.set_expiry(&id, at, None).await.unwrap();
        store.set_metadata(&id, &none, None).await.unwrap();
        store.set_deleted(&id, at, None).await.unwrap();
        let changes = store.all_changes().await.unwrap();
        assert_eq!(changes[&id].tenant.as_deref(), team, "{id}");
    }
}

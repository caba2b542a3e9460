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
        store.set_expiry(&id, at).await.unwrap();
        store.set_metadata(&id, &metadata).await.unwrap();
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
            store.set_expiry(&SandboxId::new(n.to_string()), at).await
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

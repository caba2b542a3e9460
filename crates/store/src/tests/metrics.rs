//! Resource use of sandboxes.

use super::Stage;
use crate::MetricStretch;

fn stretch(id: &str, step: u32, place: u32, start: i64, written_at: i64) -> MetricStretch {
    MetricStretch {
        id: id.into(),
        step,
        place,
        start,
        written_at,
        points: start.to_le_bytes().to_vec(),
    }
}

pub(super) async fn a_stretch_replaces_the_one_in_its_place(stage: Stage) {
    let old = [
        stretch("a", 10, 0, 600, 700),
        stretch("a", 10, 1, 1200, 1300),
        stretch("a", 60, 0, 0, 1300),
        stretch("b", 10, 0, 600, 700),
    ];
    {
        let store = stage.open().await;
        store.put_metrics(&old).await.unwrap();
        store.put_metrics(&[]).await.unwrap();
        store.close().await;
    }
    let store = stage.open().await;
    let newest = stretch("a", 10, 0, 4800, 4900);
    store
        .put_metrics(std::slice::from_ref(&newest))
        .await
        .unwrap();
    let read = store.metrics(&"a".into()).await.unwrap();
    assert_eq!(read, [old[1].clone(), newest, old[2].clone()]);
    assert_eq!(store.metrics(&"b".into()).await.unwrap(), [old[3].clone()]);
    assert_eq!(store.metrics(&"c\0".into()).await.unwrap(), []);
}

pub(super) async fn metrics_are_pruned_by_their_newest_stretch(stage: Stage) {
    let store = stage.open().await;
    let old = [
        stretch("ended", 10, 0, 600, 700),
        stretch("ended", 10, 1, 1200, 1300),
        stretch("alive", 60, 0, 0, 100),
        stretch("alive", 60, 1, 7200, 8000),
    ];
    store.put_metrics(&old).await.unwrap();
    assert_eq!(store.prune_metrics(1300).await.unwrap(), 0);
    assert_eq!(store.prune_metrics(1301).await.unwrap(), 2);
    assert_eq!(store.metrics(&"ended".into()).await.unwrap(), []);
    assert_eq!(store.metrics(&"alive".into()).await.unwrap().len(), 2);
}

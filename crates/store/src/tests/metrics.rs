//! Resource use of sandboxes.

use super::{Stage, commands::ended};
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

pub(super) async fn metrics_are_kept_from_the_end_of_their_sandbox(stage: Stage) {
    let store = stage.open().await;
    let old = [
        stretch("ended", 10, 0, 600, 700),
        stretch("ended", 10, 1, 1200, 1300),
        stretch("alive", 60, 0, 0, 100),
        stretch("alive", 60, 1, 7200, 8000),
    ];
    store.put_metrics(&old).await.unwrap();
    let alive = ["alive".into()];
    assert_eq!(store.prune_metrics(1300, &alive).await.unwrap(), 0);
    store.finish(&ended("ended", 9000)).await.unwrap();
    assert_eq!(store.prune_metrics(9000, &alive).await.unwrap(), 0);
    assert_eq!(store.prune_metrics(9001, &alive).await.unwrap(), 2);
    assert_eq!(store.metrics(&"ended".into()).await.unwrap(), []);
    assert_eq!(store.metrics(&"alive".into()).await.unwrap().len(), 2);
    assert_eq!(store.prune_metrics(8001, &[]).await.unwrap(), 2);
}

//! What a restart, and a store that takes no writes, do to events.

use std::collections::BTreeSet;

use osb_runtime::{RuntimeEvent, sim::SimRuntime};
use osb_store::Location;
use osb_testkit::{WebhookReceiver, patience, store_in, wait_until};
use serde_json::json;
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use super::support::{OPEN, Stage, arrived};

#[tokio::test]
async fn what_happened_while_no_server_ran_is_found_at_the_start() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    let added = stage.subscribe(&receiver).await;
    let (removed, ended) = (stage.create().await, stage.create().await);
    arrived(&receiver, 4).await;
    // An attempt whose end is not stored is repeated.
    stage.until(&added, "delivered", 1).await;
    let stage = stage
        .restart(OPEN, async |sim| {
            sim.vanish(&removed.as_str().into()).await;
            sim.exit(&ended.as_str().into(), 7).await;
        })
        .await;
    let received = arrived(&receiver, 6).await;
    let mut last: Vec<_> = received[4..]
        .iter()
        .map(|message| {
            let data = message.json()["data"].clone();
            (
                message.kind(),
                data["sandboxId"].clone(),
                data["reason"].clone(),
            )
        })
        .collect();
    last.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        last[0],
        ("sandbox.deleted".into(), json!(removed), json!("GONE"))
    );
    let failed = (
        "sandbox.failed".into(),
        json!(ended),
        json!("CONTAINER_EXITED_ERROR"),
    );
    assert_eq!(last[1], failed);
    let stage = stage.restart(OPEN, async |_| {}).await;
    stage.test(&added).await;
    // A message that was under way at the stop may arrive twice, with one id.
    let ids = async || {
        let received = receiver.received().into_iter();
        let ids = received.map(|it| it.header("webhook-id").to_owned());
        ids.collect::<BTreeSet<_>>()
    };
    let ids = wait_until("messages", ids, |ids| ids.len() >= 7).await;
    assert_eq!(ids.len(), 7, "nothing is announced again");
    stage.server.stop().await;
}

/// An address in the configuration may lead to another engine.
#[tokio::test]
async fn a_runtime_without_any_of_the_sandboxes_is_looked_at_twice() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    stage.subscribe(&receiver).await;
    let ids = [stage.create().await, stage.create().await];
    arrived(&receiver, 4).await;
    let look_later = |sim: &SimRuntime, seconds| match sim.look() {
        RuntimeEvent::Synced { all, at } => RuntimeEvent::Synced {
            all,
            at: at.plus_seconds(seconds).unwrap(),
        },
        other => panic!("{other:?}"),
    };
    // A message that was under way at a stop may arrive twice, with one id.
    let deleted = async || {
        let received = receiver.received().into_iter();
        let deleted = received.filter(|it| it.kind() == "sandbox.deleted");
        let ids = deleted.map(|it| it.header("webhook-id").to_owned());
        ids.collect::<BTreeSet<_>>().len()
    };
    let stage = stage
        .restart(OPEN, async |sim| {
            for id in &ids {
                sim.vanish(&id.as_str().into()).await;
            }
        })
        .await;
    // What is created there meanwhile is announced.
    let new = stage.create().await;
    stage.sim.emit(look_later(&stage.sim, 29)).await;
    stage.delete(&new).await;
    wait_until("its end", &deleted, |count| *count > 0).await;
    assert_eq!(deleted().await, 1);
    stage.sim.emit(look_later(&stage.sim, 31)).await;
    wait_until("the ends of the others", &deleted, |count| *count > 2).await;
    assert_eq!(deleted().await, 3);
    stage.server.stop().await;
}

#[tokio::test]
async fn messages_that_wait_are_sent_after_a_restart() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    receiver.answer_next(["500 Oops"]);
    let added = stage.subscribe(&receiver).await;
    let event = stage.test(&added).await;
    stage.until(&added, "pending", 1).await;
    let stage = stage.restart(OPEN, async |_| {}).await;
    stage.advance(6);
    stage.until(&added, "delivered", 2).await;
    let received = arrived(&receiver, 2).await;
    assert!(received.iter().all(|it| it.header("webhook-id") == event));
    stage.server.stop().await;
}

#[tokio::test]
async fn sqlite_a_locked_store_delays_events_and_not_sandboxes() {
    let stage = Stage::new().await;
    let Location::Sqlite(path) = store_in(stage.folder.path()).await.unwrap() else {
        panic!("this test is about SQLite's lock");
    };
    let receiver = WebhookReceiver::start().await.unwrap();
    stage.subscribe(&receiver).await;
    let id = stage.create().await;
    arrived(&receiver, 2).await;
    let options = SqliteConnectOptions::new().filename(path);
    let mut other = options.connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    for change in ["pause", "resume"] {
        let path = format!("/v1/sandboxes/{id}/{change}");
        let (status, body) = tokio::time::timeout(patience(), stage.post(&path, &json!({})))
            .await
            .unwrap();
        assert_eq!(status, 202, "{body}");
    }
    assert_eq!(
        receiver.received().len(),
        2,
        "what is not stored is not sent"
    );
    other.close().await.unwrap();
    arrived(&receiver, 4).await;
    let kinds = receiver.kinds();
    assert_eq!(kinds[2..], ["sandbox.paused", "sandbox.resumed"]);
    stage.server.stop().await;
}

//! More messages than may wait for one receiver.

use osb_testkit::{WebhookReceiver, wait_until};
use serde_json::json;

use super::{
    log::Lines,
    support::{Stage, arrived},
};

const DROPPED: &str = "opensandbox_webhook_deliveries_total{outcome=\"dropped\"}";

#[tokio::test]
async fn events_without_room_are_counted_and_reported_once() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let more = "[webhooks_delivery]\nallow_private = true\nmax_pending = 2\n";
    let stage = Stage::with(more).await;
    let receiver = WebhookReceiver::start().await.unwrap();
    receiver.answer_always("500 Oops");
    let added = stage.subscribe(&receiver).await;
    let dropped = |count: u32| {
        let stage = &stage;
        async move {
            let seen = async || stage.metric(DROPPED).await;
            wait_until("lost events", seen, |seen| *seen >= f64::from(count)).await
        }
    };
    let first = stage.create().await;
    arrived(&receiver, 2).await;
    stage.delete(&first).await;
    dropped(1).await;
    let second = stage.create().await;
    assert_eq!(dropped(3).await, 3.0);
    let pending = async || stage.deliveries(&added, "?status=pending").await;
    assert_eq!(pending().await.len(), 2);
    let (_, shown) = stage
        .ask(reqwest::Method::GET, &format!("/v1/webhooks/{}", added.id))
        .await;
    assert_eq!(shown["pending"], json!(2));
    let test = format!("/v1/webhooks/{}/test", added.id);
    let (status, body) = stage.post(&test, &json!({})).await;
    assert_eq!((status, &body["code"]), (409, &json!("GENERAL::CONFLICT")));
    let ended = "too many messages wait for this webhook";
    assert_eq!(lines.with(ended).len(), 1, "{:?}", lines.with(ended));
    receiver.answer_always("204 No Content");
    let delivered = async || {
        stage.advance(3600);
        pending().await.len()
    };
    wait_until("room", delivered, |count| *count == 0).await;
    stage.delete(&second).await;
    let kinds = async || receiver.kinds();
    let is_deleted = |kinds: &Vec<String>| kinds.iter().any(|it| it == "sandbox.deleted");
    wait_until("the next event", kinds, is_deleted).await;
    let again = lines.with("messages find room again");
    assert_eq!(again.len(), 1, "{again:?}");
    assert!(again[0].contains("lost=3"), "{again:?}");
    assert_eq!(lines.with(ended).len(), 1);
    stage.server.stop().await;
}

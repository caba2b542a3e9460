//! Receivers that refuse, move or ask for time.

use osb_testkit::WebhookReceiver;
use reqwest::Method;
use serde_json::json;

use super::support::{SECRET, Stage, arrived, verify};

#[tokio::test]
async fn a_refused_message_is_sent_again_by_the_schedule_with_the_same_id() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    receiver.answer_next(["500 Oops", "400 Bad Request"]);
    let new = json!({"name": "ops", "url": receiver.url(), "secret": SECRET});
    let added = stage.add(new).await;
    assert_eq!(added.secret, "", "the caller knows it");
    let event = stage.test(&added).await;
    let failed = stage.until(&added, "pending", 1).await;
    assert_eq!(
        (&failed["responseStatus"], &failed["error"]),
        (&json!(500), &json!("the answer was 500"))
    );
    assert_eq!(arrived(&receiver, 1).await.len(), 1);
    stage.advance(6);
    stage.until(&added, "pending", 2).await;
    stage.advance(34);
    let done = stage.until(&added, "delivered", 3).await;
    assert!(done["endedAt"].is_string() && done.get("nextAttemptAt").is_none());
    let received = receiver.received();
    assert_eq!(received.len(), 3);
    for message in &received {
        verify(message, SECRET);
        assert_eq!(message.header("webhook-id"), event);
        assert_eq!(message.body, received[0].body);
    }
    let sent =
        |index: usize| -> i64 { received[index].header("webhook-timestamp").parse().unwrap() };
    assert!(
        sent(1) >= sent(0) + 6 && sent(2) >= sent(1) + 34,
        "signed anew"
    );
    stage.server.stop().await;
}

#[tokio::test]
async fn a_receiver_may_ask_for_time() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    let added = stage.subscribe(&receiver).await;
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let answer = format!("{status}\r\nretry-after: 3600");
        receiver.answer_next([answer.as_str()]);
        stage.test(&added).await;
        let failed = stage.until(&added, "pending", 1).await;
        let at = |value: &serde_json::Value| value.as_str().unwrap().parse::<jiff::Timestamp>();
        let next = at(&failed["nextAttemptAt"]).unwrap();
        let pause = next.duration_since(at(&failed["createdAt"]).unwrap());
        assert_eq!(pause.as_secs(), 3600, "{status}");
        stage.advance(3601);
        stage.until(&added, "delivered", 2).await;
    }
    stage.server.stop().await;
}

#[tokio::test]
async fn a_message_that_is_never_accepted_is_kept_and_can_be_sent_again() {
    let more = "[webhooks_delivery]\nallow_private = true\nretry_seconds = [5, 5]\n";
    let stage = Stage::with(more).await;
    let receiver = WebhookReceiver::start().await.unwrap();
    receiver.answer_always("500 Oops");
    let added = stage.subscribe(&receiver).await;
    let event = stage.test(&added).await;
    stage.until(&added, "pending", 1).await;
    stage.advance(6);
    stage.until(&added, "pending", 2).await;
    assert_eq!(
        stage
            .metric("opensandbox_webhook_backlog{status=\"pending\"}")
            .await,
        1.0
    );
    assert!(
        stage
            .metric("opensandbox_webhook_oldest_pending_seconds")
            .await
            >= 6.0
    );
    stage.advance(6);
    let dead = stage.until(&added, "dead", 3).await;
    assert_eq!(
        stage
            .metric("opensandbox_webhook_backlog{status=\"dead\"}")
            .await,
        1.0
    );
    assert_eq!(
        stage
            .metric("opensandbox_webhook_deliveries_total{outcome=\"failed\"}")
            .await,
        2.0
    );
    assert_eq!(
        stage
            .metric("opensandbox_webhook_deliveries_total{outcome=\"dead\"}")
            .await,
        1.0
    );
    assert_eq!(stage.deliveries(&added, "?status=dead").await.len(), 1);
    stage.advance(24 * 3600);
    assert_eq!(arrived(&receiver, 3).await.len(), 3, "no further attempt");
    receiver.answer_always("200 OK");
    let redeliver = |id: &str| format!("/v1/webhooks/{}/deliveries/{id}/redeliver", added.id);
    let path = redeliver(&dead["id"].to_string());
    let (status, body) = stage.post(&path, &json!({})).await;
    assert_eq!(status, 202, "{body}");
    stage.until(&added, "delivered", 1).await;
    let received = arrived(&receiver, 4).await;
    assert_eq!(received[3].header("webhook-id"), event);
    for unknown in ["0", "x"] {
        let (status, _) = stage.post(&redeliver(unknown), &json!({})).await;
        assert_eq!(status, 404);
    }
    stage.server.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let stage = Stage::new().await;
    let [first, second] = [
        WebhookReceiver::start().await.unwrap(),
        WebhookReceiver::start().await.unwrap(),
    ];
    let answer = format!("307 Temporary Redirect\r\nlocation: {}", second.url());
    first.answer_always(&answer);
    let added = stage.subscribe(&first).await;
    stage.test(&added).await;
    let failed = stage.until(&added, "pending", 1).await;
    assert_eq!(
        failed["error"],
        "the answer was 307: redirects are not followed"
    );
    assert_eq!(second.received().len(), 0);
    stage.server.stop().await;
}

#[tokio::test]
async fn gone_disables_a_webhook_until_it_is_enabled() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    receiver.answer_next(["500 Oops", "410 Gone"]);
    let added = stage.subscribe(&receiver).await;
    stage.test(&added).await;
    stage.until(&added, "pending", 1).await;
    stage.test(&added).await;
    stage.until(&added, "dead", 1).await;
    let path = format!("/v1/webhooks/{}", added.id);
    let shown = async || stage.ask(Method::GET, &path).await.1["disabled"].clone();
    let disabled = osb_testkit::wait_until("it is disabled", shown, |it| it.is_string()).await;
    assert_eq!(disabled, "the receiver answered 410 Gone");
    let test = format!("{path}/test");
    let (status, body) = stage.post(&test, &json!({})).await;
    assert_eq!(status, 409, "{body}");
    stage.create().await;
    stage.advance(3600);
    assert_eq!(receiver.received().len(), 2, "nothing is sent");
    let (status, body) = stage.post(&format!("{path}/enable"), &json!({})).await;
    assert_eq!((status, body.get("disabled")), (200, None), "{body}");
    stage.test(&added).await;
    stage.until(&added, "delivered", 1).await;
    stage.server.stop().await;
}

//! Which events reach whom.

use osb_testkit::{TestServer, WebhookReceiver, soon, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::support::{Stage, answer, arrived, verify};

#[tokio::test]
async fn the_life_of_a_sandbox_arrives_signed_and_in_order() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    let before = stage.create().await;
    let added = stage.subscribe(&receiver).await;
    let mut body = TestServer::good_create();
    body["metadata"] = json!({"team": "blue"});
    let (status, made) = stage.post("/v1/sandboxes", &body).await;
    assert_eq!(status, 202, "{made}");
    let id = made["id"].as_str().unwrap();
    let path = |rest: &str| format!("/v1/sandboxes/{id}/{rest}");
    for change in ["pause", "resume"] {
        let (status, body) = stage.post(&path(change), &json!({})).await;
        assert_eq!(status, 202, "{body}");
    }
    let renewal = json!({"expiresAt": "2100-01-01T00:00:00Z"});
    let (status, body) = stage.post(&path("renew-expiration"), &renewal).await;
    assert_eq!(status, 200, "{body}");
    stage.delete(id).await;
    let received = arrived(&receiver, 6).await;
    let kinds: Vec<_> = received.iter().map(|it| it.kind()).collect();
    let expected = [
        "created", "ready", "paused", "resumed", "renewed", "deleted",
    ];
    assert_eq!(kinds, expected.map(|kind| format!("sandbox.{kind}")));
    let mut ids = std::collections::BTreeSet::new();
    for message in &received {
        verify(message, &added.secret);
        ids.insert(message.header("webhook-id").to_owned());
        let data = &message.json()["data"];
        assert_eq!(data["sandboxId"], id, "{before} is older");
        assert_eq!(data["metadata"], json!({"team": "blue"}), "{data}");
        assert_eq!(message.header("content-type"), "application/json");
        assert_eq!(message.path, "/hook");
    }
    assert_eq!(ids.len(), 6, "each event has an id of its own");
    let data = |index: usize| received[index].json()["data"].clone();
    let states = |index| {
        let data = data(index);
        (data["previousState"].clone(), data["state"].clone())
    };
    assert_eq!(states(0), (Value::Null, json!("Pending")));
    assert_eq!(states(1), (json!("Pending"), json!("Running")));
    assert_eq!(states(3), (json!("Paused"), json!("Running")));
    assert_eq!(data(4)["expiresAt"], "2100-01-01T00:00:00Z");
    assert!(data(4)["previousExpiresAt"].is_string());
    assert_eq!(states(5), (json!("Running"), Value::Null));
    assert_eq!(data(5)["reason"], "DELETED");
    stage.server.stop().await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_loses_no_event() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    stage.subscribe(&receiver).await;
    stage.clock.set_back(std::time::Duration::from_secs(3600));
    let id = stage.create().await;
    stage.delete(&id).await;
    let received = arrived(&receiver, 3).await;
    let kinds: Vec<_> = received.iter().map(|it| it.kind()).collect();
    let expected = ["created", "ready", "deleted"];
    assert_eq!(kinds, expected.map(|kind| format!("sandbox.{kind}")));
    stage.server.stop().await;
}

#[tokio::test]
async fn a_failure_has_its_reason_and_other_types_are_left_out() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    let new = json!({
        "name": "failures",
        "url": receiver.url(),
        "events": ["sandbox.failed", "sandbox.expired"],
    });
    stage.add(new).await;
    let id = stage.create().await;
    stage.sim.exit(&id.as_str().into(), 3).await;
    let received = arrived(&receiver, 1).await;
    let data = received[0].json()["data"].clone();
    assert_eq!(data["reason"], "CONTAINER_EXITED_ERROR", "{data}");
    assert!(data["message"].as_str().unwrap().contains("exit code 3"));
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    let renewal = json!({"expiresAt": soon().to_string()});
    let (status, body) = stage.post(&path, &renewal).await;
    assert_eq!(status, 200, "{body}");
    let received = arrived(&receiver, 2).await;
    assert_eq!(received[1].kind(), "sandbox.expired");
    assert_eq!(received[1].json()["data"]["reason"], "EXPIRED");
    assert_eq!(received.len(), 2, "{received:?}");
    stage.server.stop().await;
}

#[tokio::test]
async fn a_tenants_webhook_gets_the_tenants_events_only() {
    let stage = Stage::new().await;
    let [all, of_a] = [
        WebhookReceiver::start().await.unwrap(),
        WebhookReceiver::start().await.unwrap(),
    ];
    stage.subscribe(&all).await;
    let new = json!({"name": "a", "url": of_a.url(), "tenant": "team-a"});
    stage.add(new).await;
    let mut made = Vec::new();
    for tenant in ["team-b", "team-a"] {
        let new = json!({"name": "k", "role": "operator", "tenant": tenant});
        let (_, issued) = stage.post("/v1/api-keys", &new).await;
        let key = issued["secret"].as_str().unwrap();
        let request = stage.server.request_as(key, Method::POST, "/v1/sandboxes");
        let (status, body) = answer(request.json(&TestServer::good_create())).await;
        assert_eq!(status, 202, "{body}");
        made.push(body["id"].clone());
    }
    arrived(&all, 4).await;
    let received = arrived(&of_a, 2).await;
    for message in &received {
        let data = &message.json()["data"];
        assert_eq!(
            (&data["sandboxId"], &data["tenant"]),
            (&made[1], &json!("team-a"))
        );
    }
    stage.server.stop().await;
}

#[tokio::test]
async fn a_slow_receiver_delays_neither_another_nor_a_sandbox() {
    let stage = Stage::new().await;
    let [slow, other] = [
        WebhookReceiver::start().await.unwrap(),
        WebhookReceiver::start().await.unwrap(),
    ];
    slow.be_silent();
    let waiting = stage.subscribe(&slow).await;
    stage.subscribe(&other).await;
    let id = stage.create().await;
    stage.delete(&id).await;
    let received = arrived(&other, 3).await;
    assert_eq!(received[2].kind(), "sandbox.deleted");
    assert_eq!(arrived(&slow, 1).await.len(), 1, "one at a time");
    let pending = async || stage.deliveries(&waiting, "?status=pending").await.len();
    wait_until("the other messages wait", pending, |count| *count == 3).await;
    stage.server.stop().await;
}

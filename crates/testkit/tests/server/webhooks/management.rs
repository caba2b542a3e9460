//! What administrators do.

use osb_testkit::{WebhookReceiver, wait_until};
use reqwest::Method;
use serde_json::json;

use super::support::{OPEN, SECRET, Stage, arrived, verify};

#[tokio::test]
async fn a_secret_is_shown_once() {
    let stage = Stage::new().await;
    let receiver = WebhookReceiver::start().await.unwrap();
    let added = stage.subscribe(&receiver).await;
    assert!(added.secret.starts_with("whsec_"), "{}", added.secret);
    let path = format!("/v1/webhooks/{}", added.id);
    for path in [
        "/v1/webhooks",
        &path,
        &format!("{path}/deliveries"),
        "/metrics",
    ] {
        let response = stage.server.request(Method::GET, path).send().await;
        let text = response.unwrap().text().await.unwrap();
        assert!(
            !text.contains("whsec_") && !text.contains(&added.secret[6..]),
            "{text}"
        );
    }
    let (_, list) = stage.ask(Method::GET, "/v1/webhooks").await;
    let shown = &list["items"][0];
    assert_eq!(
        (&shown["name"], &shown["pending"]),
        (&json!(receiver.address.to_string()), &json!(0))
    );
    assert_eq!(shown["configured"], json!(false));
    let (status, _) = stage.ask(Method::DELETE, &path).await;
    assert_eq!(status, 204);
    let acts = async || {
        let (_, trail) = stage.ask(Method::GET, "/v1/audit").await;
        assert!(!trail.to_string().contains("whsec_"), "{trail}");
        assert!(!trail.to_string().contains(&receiver.url()), "{trail}");
        let entries = trail["items"].as_array().unwrap().iter();
        let of_webhook = entries.filter(|entry| entry["object"]["id"] == json!(added.id));
        let actions = of_webhook.map(|entry| entry["action"].clone());
        actions.collect::<Vec<_>>()
    };
    let acts = wait_until("both acts", acts, |acts| acts.len() == 2).await;
    assert_eq!(acts, ["webhook.delete", "webhook.create"]);
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::POST, format!("{path}/test")),
        (Method::POST, format!("{path}/enable")),
        (Method::GET, format!("{path}/deliveries")),
        (Method::POST, format!("{path}/deliveries/1/redeliver")),
    ] {
        let (status, body) = stage.ask(method.clone(), &path).await;
        assert_eq!(status, 404, "{method} {path}: {body}");
    }
    stage.create().await;
    assert_eq!(receiver.received().len(), 0, "no subscription, no message");
    stage.server.stop().await;
}

#[tokio::test]
async fn fields_that_break_rules_are_named() {
    let stage = Stage::new().await;
    let bad = json!({
        "name": " ",
        "url": "ftp://user:hunter2@example.org",
        "events": ["sandbox.x"],
        "tenant": "",
        "secret": "hunter2",
    });
    let (status, body) = stage.post("/v1/webhooks", &bad).await;
    assert_eq!(status, 422);
    let detail = body["detail"].as_array().unwrap().iter();
    let fields: Vec<_> = detail.map(|it| it["loc"][1].as_str().unwrap()).collect();
    assert_eq!(fields, ["name", "url", "events", "tenant", "secret"]);
    assert!(!body.to_string().contains("hunter2"), "{body}");
    for (bad, field) in [
        (json!({"name": "a"}), "url"),
        (json!({"name": "a", "url": 1}), "url"),
        (
            json!({"name": "a", "url": "http://a", "events": "x"}),
            "events",
        ),
        (
            json!({"name": "a", "url": "http://a", "events": [1]}),
            "events",
        ),
        (json!({"name": "a", "url": "http://u:p@a/"}), "url"),
    ] {
        let (status, body) = stage.post("/v1/webhooks", &bad).await;
        assert_eq!(
            (status, &body["detail"][0]["loc"][1]),
            (422, &json!(field)),
            "{body}"
        );
    }
    let added = stage
        .add(json!({"name": "a", "url": "http://a.invalid"}))
        .await;
    for (query, field) in [
        ("status=x", "status"),
        ("before=x", "before"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
    ] {
        let path = format!("/v1/webhooks/{}/deliveries?{query}", added.id);
        let (status, body) = stage.ask(Method::GET, &path).await;
        assert_eq!(
            (status, &body["detail"][0]["loc"][1]),
            (422, &json!(field)),
            "{body}"
        );
    }
    stage.server.stop().await;
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let entry = format!(
        "[[webhooks]]\nname = 'configured'\nurl = 'https://a.invalid'\nsecret = '{SECRET}'\n"
    );
    let stage = Stage::with(&entry).await;
    let new = |name: &str| json!({"name": name, "url": "https://b.invalid"});
    let first = stage.add(new("ops")).await;
    for taken in ["ops", " ops ", "configured"] {
        let (status, body) = stage.post("/v1/webhooks", &new(taken)).await;
        assert_eq!(
            (status, &body["code"]),
            (409, &json!("GENERAL::CONFLICT")),
            "{body}"
        );
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(taken.trim()), "{message}");
    }
    let (_, list) = stage.ask(Method::GET, "/v1/webhooks").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    let path = format!("/v1/webhooks/{}", first.id);
    assert_eq!(stage.ask(Method::DELETE, &path).await.0, 204);
    stage.add(new("ops")).await;
    stage.server.stop().await;
}

#[tokio::test]
async fn the_configuration_names_webhooks_with_secrets_of_their_own() {
    let receiver = WebhookReceiver::start().await.unwrap();
    let entry = |name: &str| {
        let url = receiver.url();
        format!("{OPEN}[[webhooks]]\nname = '{name}'\nurl = '{url}'\nsecret = '{SECRET}'\n")
    };
    let stage = Stage::with(&entry("ops")).await;
    let list =
        async |stage: &Stage| stage.ask(Method::GET, "/v1/webhooks").await.1["items"].clone();
    let shown = list(&stage).await;
    let id = shown[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&shown[0]["name"], &shown[0]["configured"]),
        (&json!("ops"), &json!(true))
    );
    let (status, body) = stage
        .ask(Method::DELETE, &format!("/v1/webhooks/{id}"))
        .await;
    assert_eq!(status, 409, "{body}");
    let tracked = async || {
        // Events are recorded once the sandboxes are known.
        let created = stage.create().await;
        stage.delete(&created).await;
        receiver.received().len()
    };
    wait_until("events are recorded", tracked, |count| *count > 0).await;
    for message in &arrived(&receiver, 1).await {
        verify(message, SECRET);
    }
    let stage = stage.restart(&entry("ops"), async |_| {}).await;
    assert_eq!(
        list(&stage).await[0]["id"],
        json!(id),
        "the same after a restart"
    );
    let stage = stage.restart(&entry("other"), async |_| {}).await;
    let shown = list(&stage).await;
    assert_eq!(shown.as_array().unwrap().len(), 1);
    assert_eq!(shown[0]["name"], "other");
    let stage = stage.restart(OPEN, async |_| {}).await;
    assert_eq!(list(&stage).await, json!([]));
    stage.server.stop().await;
}

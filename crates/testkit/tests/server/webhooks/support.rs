//! A server with a clock that stands still, its subscriptions and what they got.

use std::{path::Path, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use osb_runtime::sim::{Options, SimRuntime};
use osb_server::webhooks::Clock as _;
use osb_testkit::{ManualClock, ReceivedWebhook, TestServer, WebhookReceiver, wait_until};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::Sha256;

/// Lets messages reach receivers on this machine.
pub(crate) const OPEN: &str = "[webhooks_delivery]\nallow_private = true\n";
/// A secret of the configuration or of a request.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A server whose messages are due by a clock that the test moves.
pub(crate) struct Stage {
    pub(crate) server: TestServer,
    pub(crate) sim: Arc<SimRuntime>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) folder: tempfile::TempDir,
}

/// A subscription that was added.
pub(crate) struct Added {
    pub(crate) id: String,
    pub(crate) secret: String,
}

pub(crate) async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(OPEN).await
    }

    pub(crate) async fn with(more: &str) -> Self {
        let options = Options {
            powers: true,
            ..Options::default()
        };
        let sim = Arc::new(SimRuntime::with_options(options));
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        let server = start(&sim, folder.path(), more, &clock).await;
        Self {
            server,
            sim,
            clock,
            folder,
        }
    }

    /// Stops the server and starts it again, after something happens in between.
    pub(crate) async fn restart(self, more: &str, between: impl AsyncFnOnce(&SimRuntime)) -> Self {
        self.server.stop().await;
        // The store is open as long as the server exists.
        drop(self.server);
        between(&self.sim).await;
        let server = start(&self.sim, self.folder.path(), more, &self.clock).await;
        Self { server, ..self }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str) -> (u16, Value) {
        answer(self.server.request(method, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.server.request(Method::POST, path).json(body)).await
    }

    pub(crate) async fn add(&self, new: Value) -> Added {
        let (status, body) = self.post("/v1/webhooks", &new).await;
        assert_eq!(status, 201, "{body}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Added {
            id: text(&body["webhook"]["id"]),
            secret: text(&body["secret"]),
        }
    }

    /// Subscribes a receiver to everything, under its address as a name.
    pub(crate) async fn subscribe(&self, receiver: &WebhookReceiver) -> Added {
        let name = receiver.address.to_string();
        self.add(json!({"name": name, "url": receiver.url()})).await
    }

    /// The value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let response = self.server.request(Method::GET, "/metrics").send().await;
        let text = response.unwrap().text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("{name}: {text}")).trim();
        value.parse().unwrap()
    }

    pub(crate) async fn create(&self) -> String {
        let (status, body) = self.post("/v1/sandboxes", &TestServer::good_create()).await;
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn delete(&self, id: &str) {
        let path = format!("/v1/sandboxes/{id}");
        let request = self.server.request(Method::DELETE, &path);
        let (status, body) = answer(request.header("prefer", "wait")).await;
        assert_eq!(status, 204, "{body}");
    }

    pub(crate) async fn test(&self, webhook: &Added) -> String {
        let path = format!("/v1/webhooks/{}/test", webhook.id);
        let (status, body) = self.post(&path, &json!({})).await;
        assert_eq!(status, 202, "{body}");
        body["eventId"].as_str().unwrap().to_owned()
    }

    /// Deliveries of a subscription, newest first.
    pub(crate) async fn deliveries(&self, webhook: &Added, query: &str) -> Vec<Value> {
        let path = format!("/v1/webhooks/{}/deliveries{query}", webhook.id);
        let (status, body) = self.ask(Method::GET, &path).await;
        assert_eq!(status, 200, "{body}");
        body["items"].as_array().unwrap().clone()
    }

    /// Waits until the newest delivery has a status and as many attempts.
    pub(crate) async fn until(&self, webhook: &Added, status: &str, attempts: u32) -> Value {
        let newest = async || self.deliveries(webhook, "?limit=1").await.pop();
        let is_there = |found: &Option<Value>| {
            let found = found.as_ref();
            found.is_some_and(|it| {
                let attempted = it["responseStatus"].is_number() || it["error"].is_string();
                // An attempt under way counts already, and what came of the one before it is still there.
                let is_over = status != "pending" || self.is_ahead(&it["nextAttemptAt"]);
                let is_done = attempts == 0 || (attempted && is_over);
                it["status"] == status && it["attempts"] == attempts && is_done
            })
        };
        let found = wait_until("the status of a delivery", newest, is_there).await;
        found.unwrap()
    }

    fn is_ahead(&self, time: &Value) -> bool {
        let time = time
            .as_str()
            .and_then(|it| it.parse::<jiff::Timestamp>().ok());
        let now = self.clock.now().to_string().parse::<jiff::Timestamp>();
        time > Some(now.unwrap())
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

async fn start(
    sim: &Arc<SimRuntime>,
    folder: &Path,
    more: &str,
    clock: &Arc<ManualClock>,
) -> TestServer {
    let (sim, clock) = (Arc::clone(sim), Arc::clone(clock));
    TestServer::with_clock(sim, folder, more, clock)
        .await
        .unwrap()
}

/// Waits until a receiver has as many messages, and returns them.
pub(crate) async fn arrived(receiver: &WebhookReceiver, count: usize) -> Vec<ReceivedWebhook> {
    let received = async || receiver.received();
    wait_until("messages", received, |it| it.len() >= count).await
}

/// Checks the signature of a message as Standard Webhooks describes it.
pub(crate) fn verify(message: &ReceivedWebhook, secret: &str) {
    let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap());
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.unwrap()).unwrap();
    let (id, timestamp) = (
        message.header("webhook-id"),
        message.header("webhook-timestamp"),
    );
    mac.update(format!("{id}.{timestamp}.{}", message.body).as_bytes());
    let expected = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(
        message.header("webhook-signature"),
        format!("v1,{expected}")
    );
    assert_eq!(message.json()["id"], id);
}

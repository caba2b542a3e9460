//! What the log has of webhooks, and what it never has.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use osb_service::telemetry;
use osb_testkit::{WebhookReceiver, collect_with, wait_until};
use reqwest::Method;
use serde_json::json;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::{
    filter::filter_fn,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
};

use super::{
    support::{OPEN, Stage},
    tls,
};

/// Lines of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Collects what the tasks of this thread log.
    ///
    /// It has no spans: the store's threads close those of their callers, and do so in the log of the
    /// whole process, which another test starts and which does not know them.
    pub(crate) fn collect(&self) -> DefaultGuard {
        let lines = fmt::layer().with_ansi(false).with_writer(self.clone());
        let events = filter_fn(|of| of.is_event() && *of.level() <= tracing::Level::INFO);
        let subscriber = tracing_subscriber::registry().with(lines).with(events);
        collect_with(subscriber)
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The lines that contain a text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let all = self.text();
        let found = all.lines().filter(|line| line.contains(text));
        found.map(str::to_owned).collect()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The log of the whole process, as a server has it at its lowest level.
#[tokio::test]
async fn neither_secrets_nor_paths_of_urls_are_logged_at_any_level() {
    const CONFIGURED: &str = "whsec_Y29uZmlndXJlZGNvbmZpZ3VyZWRjb25m";
    const GIVEN: &str = "whsec_Z2l2ZW5naXZlbmdpdmVuZ2l2ZW5naXZl";
    const WRONG: &str = "whsec_wrong-wrong-wrong";
    let lines = Lines::default();
    telemetry::init_with_writer("trace", true, lines.clone()).unwrap();
    let receiver = WebhookReceiver::start().await.unwrap();
    let url = |scheme: &str, port: u16| {
        format!("{scheme}://127.0.0.1:{port}/hidden-path?token=hidden-query#hidden-part")
    };
    let port = receiver.address.port();
    let configured = url("http", port);
    let stage = Stage::with(&format!(
        "{OPEN}[[webhooks]]\nname = 'configured'\nurl = '{configured}'\nsecret = '{CONFIGURED}'\n"
    ))
    .await;
    let (status, _) = stage
        .post(
            "/v1/webhooks",
            &json!({"name": "wrong", "url": configured, "secret": WRONG}),
        )
        .await;
    assert_eq!(status, 422);
    let free = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let made = stage
        .add(json!({"name": "made", "url": url("http", port)}))
        .await;
    receiver.answer_next(["500 Oops", "204 No Content", "410 Gone"]);
    let mut hidden = vec![made.secret.clone()];
    stage.test(&made).await;
    stage.until(&made, "pending", 1).await;
    stage.advance(6);
    let done = stage.until(&made, "delivered", 2).await;
    let path = format!("/v1/webhooks/{}", made.id);
    let again = format!("{path}/deliveries/{}/redeliver", done["id"]);
    assert_eq!(stage.post(&again, &json!({})).await.0, 202);
    let shown = async || stage.ask(Method::GET, &path).await.1["disabled"].clone();
    wait_until("it is disabled", shown, |it| it.is_string()).await;
    assert_eq!(stage.ask(Method::DELETE, &path).await.0, 204);
    // Refused by the port, and for the certificate.
    let (secure, _) = tls::receiver(&["127.0.0.1"]).await;
    let secure = url("https", secure.address.port());
    for (name, url) in [("refused", url("http", free)), ("unknown", secure)] {
        let given = stage.add(json!({"name": name, "url": url, "secret": GIVEN}));
        let given = given.await;
        stage.test(&given).await;
        stage.until(&given, "pending", 1).await;
    }
    stage.create().await;
    wait_until("events", async || receiver.kinds(), |it| it.len() >= 4).await;
    stage.server.stop().await;
    let text = lines.text();
    for word in [
        "a webhook was added",
        "a delivery was tried",
        "a webhook is disabled",
    ] {
        assert!(text.contains(word), "{word} is not in the log");
    }
    hidden.extend([CONFIGURED, GIVEN, WRONG].map(str::to_owned));
    let keys = hidden
        .iter()
        .map(|secret| secret.trim_start_matches("whsec_"));
    for secret in keys.chain(["hidden-"]) {
        let found = lines.with(secret);
        assert!(found.is_empty(), "{found:?}");
    }
}

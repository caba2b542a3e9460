//! Reports denied names to a webhook (contract: egress §9).
//!
//! The query of a denied name never waits: names go through a bounded queue to one task. The
//! webhook's own host resolves through this sidecar's proxy like everything else, so a policy that
//! denies it must not report it, or each report would cause another.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp, fmt::temporal::DateTimePrinter};
use osb_service::Supervisor;
use serde::Serialize;
use tokio::{sync::mpsc, time::sleep};
use tracing::{debug, warn};

use crate::limits;

/// `source` in every report.
const SOURCE: &str = "opensandbox-egress";
/// Pauses before further attempts.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Queue of reports. Clones share it.
#[derive(Clone, Debug)]
pub struct Webhook {
    queue: mpsc::Sender<Event>,
    own_host: Arc<str>,
}

#[derive(Debug)]
struct Event {
    hostname: String,
    at: Timestamp,
}

/// Body of a report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    hostname: &'a str,
    timestamp: String,
    source: &'static str,
    sandbox_id: &'a str,
}

/// Reason why there is no webhook.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the client of the webhook")]
pub struct WebhookError(#[source] reqwest::Error);

/// How an attempt ended.
enum Attempt {
    Delivered,
    /// Another attempt would fail, too.
    Refused(String),
    /// Another attempt may succeed.
    Failed(String),
}

impl Webhook {
    /// Starts the task that delivers. Must be called within a runtime.
    ///
    /// # Errors
    /// See [`WebhookError`].
    pub fn start(
        address: &http::Uri,
        sandbox: String,
        tasks: &Supervisor,
    ) -> Result<Self, WebhookError> {
        let client = reqwest::Client::builder()
            .timeout(limits::WEBHOOK_TRY)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(WebhookError)?;
        let (queue, mut events) = mpsc::channel(limits::WEBHOOK_QUEUE);
        let url = address.to_string();
        tasks.spawn_abortable("webhook", async move {
            while let Some(event) = events.recv().await {
                deliver(&client, &url, &sandbox, &event).await;
            }
        });
        let own_host = address.host().unwrap_or_default().to_ascii_lowercase();
        Ok(Self {
            queue,
            own_host: own_host.into(),
        })
    }

    /// Reports a denied name. A full queue drops it.
    pub fn denied(&self, hostname: &str) {
        if *hostname == *self.own_host {
            return;
        }
        let event = Event {
            hostname: hostname.to_owned(),
            at: Timestamp::now(),
        };
        if self.queue.try_send(event).is_err() {
            warn!(
                hostname,
                "the webhook is too slow, a denied name is not reported"
            );
        }
    }
}

async fn deliver(client: &reqwest::Client, url: &str, sandbox: &str, event: &Event) {
    let mut pauses = PAUSES.into_iter();
    loop {
        let reason = match attempt(client, url, sandbox, event).await {
            Attempt::Delivered => return,
            Attempt::Refused(reason) => {
                warn!(
                    hostname = event.hostname,
                    reason, "the webhook refused a report"
                );
                return;
            }
            Attempt::Failed(reason) => reason,
        };
        let Some(pause) = pauses.next() else {
            warn!(
                hostname = event.hostname,
                reason, "a report cannot be delivered"
            );
            return;
        };
        debug!(
            hostname = event.hostname,
            reason, "a report is delivered again"
        );
        sleep(pause).await;
    }
}

async fn attempt(client: &reqwest::Client, url: &str, sandbox: &str, event: &Event) -> Attempt {
    let report = Report {
        hostname: &event.hostname,
        timestamp: seconds(event.at),
        source: SOURCE,
        sandbox_id: sandbox,
    };
    match client.post(url).json(&report).send().await {
        Ok(answer) => match answer.status().as_u16() {
            ..300 => Attempt::Delivered,
            status @ 300..500 => Attempt::Refused(format!("status {status}")),
            status => Attempt::Failed(format!("status {status}")),
        },
        // The address may have a secret.
        Err(error) => Attempt::Failed(osb_service::ErrorChain(&error.without_url()).to_string()),
    }
}

/// Time in RFC 3339 with whole seconds.
fn seconds(at: Timestamp) -> String {
    let whole = at.round(jiff::Unit::Second).unwrap_or(at);
    // Rounding up would lie in the future.
    let whole = if whole > at {
        whole - SignedDuration::from_secs(1)
    } else {
        whole
    };
    DateTimePrinter::new().timestamp_to_string(&whole)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
    use serde_json::{Value, json};

    use super::*;

    type Log = Arc<Mutex<Vec<(Value, u16)>>>;

    /// A receiver that answers with these codes in turn, then with 204.
    async fn receiver(codes: &[u16]) -> (http::Uri, Log) {
        let log = Log::default();
        let answers = Arc::new(Mutex::new(codes.to_vec()));
        let handler = move |State((log, answers)): State<(Log, Arc<Mutex<Vec<u16>>>)>,
                            body: Bytes| async move {
            let mut answers = answers.lock().unwrap();
            let code = if answers.is_empty() {
                204
            } else {
                answers.remove(0)
            };
            log.lock()
                .unwrap()
                .push((serde_json::from_slice(&body).unwrap(), code));
            StatusCode::from_u16(code).unwrap()
        };
        let router = Router::new()
            .route("/hook", post(handler))
            .with_state((Arc::clone(&log), answers));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/hook", listener.local_addr().unwrap());
        Supervisor::new().spawn("receiver", async move {
            axum::serve(listener, router).await.unwrap()
        });
        (address.parse().unwrap(), log)
    }

    async fn reports(log: &Log, count: usize) -> Vec<(Value, u16)> {
        for _ in 0..3000 {
            if log.lock().unwrap().len() >= count {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        log.lock().unwrap().clone()
    }

    fn provider() {
        // The second test finds it installed.
        let _installed = rustls::crypto::ring::default_provider().install_default();
    }

    #[tokio::test]
    async fn a_denied_name_is_reported() {
        provider();
        let (address, log) = receiver(&[]).await;
        let webhook = Webhook::start(&address, "sb-77".to_owned(), &Supervisor::new()).unwrap();
        webhook.denied("127.0.0.1");
        webhook.denied("tracker.example");
        let (report, _) = reports(&log, 1).await.remove(0);
        let time = report["timestamp"].as_str().unwrap().to_owned();
        assert_eq!(time.len(), "2026-05-04T10:00:00Z".len(), "{time}");
        assert_eq!(
            report,
            json!({
                "hostname": "tracker.example",
                "timestamp": time,
                "source": "opensandbox-egress",
                "sandboxId": "sb-77",
            })
        );
        assert_eq!(log.lock().unwrap().len(), 1, "its own host is not reported");
    }

    #[test]
    fn a_full_queue_drops_names() {
        let (queue, mut events) = mpsc::channel(1);
        let webhook = Webhook {
            queue,
            own_host: "hooks.example".into(),
        };
        for name in ["hooks.example", "a.example", "b.example"] {
            webhook.denied(name);
        }
        assert_eq!(events.try_recv().unwrap().hostname, "a.example");
        assert!(events.try_recv().is_err());
    }

    #[tokio::test]
    async fn failures_are_repeated_and_refusals_are_not() {
        provider();
        let (address, log) = receiver(&[500, 404]).await;
        let webhook = Webhook::start(&address, String::new(), &Supervisor::new()).unwrap();
        webhook.denied("a.example");
        webhook.denied("b.example");
        let all = reports(&log, 3).await;
        let short: Vec<_> = all
            .iter()
            .map(|(it, code)| (it["hostname"].as_str().unwrap(), *code))
            .collect();
        assert_eq!(
            short,
            [("a.example", 500), ("a.example", 404), ("b.example", 204)]
        );
    }
}

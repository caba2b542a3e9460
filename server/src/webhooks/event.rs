//! Events and the messages that report them.

use std::collections::BTreeMap;

use osb_protocol::{SandboxId, WireTime};
use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

/// Most bytes of metadata in a message.
const METADATA_MAX: usize = 8 << 10;
/// Most bytes of a text in a message.
const TEXT_MAX: usize = 1 << 10;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// A create was accepted.
    #[serde(rename = "sandbox.created")]
    Created,
    /// The sandbox runs and can be used.
    #[serde(rename = "sandbox.ready")]
    Ready,
    /// It failed, or its create did.
    #[serde(rename = "sandbox.failed")]
    Failed,
    /// Its entry point ended with status 0.
    #[serde(rename = "sandbox.terminated")]
    Terminated,
    /// It was frozen.
    #[serde(rename = "sandbox.paused")]
    Paused,
    /// It was thawed.
    #[serde(rename = "sandbox.resumed")]
    Resumed,
    /// Its expiry moved.
    #[serde(rename = "sandbox.renewed")]
    Renewed,
    /// It expired and is gone.
    #[serde(rename = "sandbox.expired")]
    Expired,
    /// It is gone for any other reason.
    #[serde(rename = "sandbox.deleted")]
    Deleted,
    /// An administrator tests a subscription.
    #[serde(rename = "webhook.test")]
    Test,
}

impl EventType {
    /// What can be subscribed to. Tests go to the subscription that is tested.
    pub const OF_SANDBOXES: [Self; 9] = [
        Self::Created,
        Self::Ready,
        Self::Failed,
        Self::Terminated,
        Self::Paused,
        Self::Resumed,
        Self::Renewed,
        Self::Expired,
        Self::Deleted,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "sandbox.created",
            Self::Ready => "sandbox.ready",
            Self::Failed => "sandbox.failed",
            Self::Terminated => "sandbox.terminated",
            Self::Paused => "sandbox.paused",
            Self::Resumed => "sandbox.resumed",
            Self::Renewed => "sandbox.renewed",
            Self::Expired => "sandbox.expired",
            Self::Deleted => "sandbox.deleted",
            Self::Test => "webhook.test",
        }
    }
}

/// Something that happened to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SandboxEvent {
    pub(super) kind: EventType,
    pub(super) sandbox: SandboxId,
    pub(super) tenant: Option<String>,
    /// State after it; `None` when the sandbox is gone.
    pub(super) state: Option<String>,
    /// State before it; `None` when there was no sandbox.
    pub(super) previous_state: Option<String>,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) created_at: Option<WireTime>,
    pub(super) expires_at: Option<WireTime>,
    pub(super) previous_expires_at: Option<WireTime>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// An event with its id, as it is sent to every receiver.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) kind: EventType,
    pub(super) sandbox: Option<SandboxId>,
    pub(super) tenant: Option<String>,
    pub(super) at: WireTime,
    /// When it was made, whatever time the host shows.
    pub(super) made: Instant,
    pub(super) body: String,
}

#[derive(Serialize)]
struct Body<'a, Data> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: EventType,
    timestamp: WireTime,
    data: Data,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SandboxData<'a> {
    sandbox_id: &'a SandboxId,
    tenant: Option<&'a str>,
    state: Option<&'a str>,
    previous_state: Option<&'a str>,
    reason: &'a str,
    message: &'a str,
    created_at: Option<WireTime>,
    expires_at: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_expires_at: Option<WireTime>,
    metadata: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    metadata_truncated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TestData<'a> {
    webhook_id: &'a str,
    message: &'a str,
}

impl Message {
    /// The message about an event that is recorded at `at`.
    pub(super) fn of(event: SandboxEvent, at: WireTime) -> Self {
        let id = new_id();
        let (metadata, metadata_truncated) = bounded(&event.metadata);
        let body = Body {
            id: &id,
            kind: event.kind,
            timestamp: at,
            data: SandboxData {
                sandbox_id: &event.sandbox,
                tenant: event.tenant.as_deref(),
                state: event.state.as_deref(),
                previous_state: event.previous_state.as_deref(),
                reason: cut(&event.reason),
                message: cut(&event.message),
                created_at: event.created_at,
                expires_at: event.expires_at,
                previous_expires_at: event.previous_expires_at,
                metadata,
                metadata_truncated,
            },
        };
        let body = to_text(&body);
        Self {
            id,
            kind: event.kind,
            sandbox: Some(event.sandbox),
            tenant: event.tenant,
            at,
            made: Instant::now(),
            body,
        }
    }

    /// A message that tests a subscription.
    pub(super) fn test(webhook: &str, at: WireTime) -> Self {
        let id = new_id();
        let data = TestData {
            webhook_id: webhook,
            message: "A test by an administrator of the server.",
        };
        let body = to_text(&Body {
            id: &id,
            kind: EventType::Test,
            timestamp: at,
            data,
        });
        Self {
            id,
            kind: EventType::Test,
            sandbox: None,
            tenant: None,
            at,
            made: Instant::now(),
            body,
        }
    }
}

fn new_id() -> String {
    format!("evt_{}", Uuid::now_v7().simple())
}

fn to_text<Data: Serialize>(body: &Body<'_, Data>) -> String {
    serde_json::to_string(body).expect("maps have string keys, so this serialises")
}

/// As many entries as fit, and whether some did not.
pub(super) fn bounded(metadata: &BTreeMap<String, String>) -> (BTreeMap<&str, &str>, bool) {
    let mut left = METADATA_MAX;
    let mut kept = BTreeMap::new();
    for (key, value) in metadata {
        match left.checked_sub(key.len() + value.len()) {
            None => return (kept, true),
            Some(rest) => left = rest,
        }
        kept.insert(key.as_str(), value.as_str());
    }
    (kept, false)
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event() -> SandboxEvent {
        SandboxEvent {
            kind: EventType::Failed,
            sandbox: "a".into(),
            tenant: Some("team-a".into()),
            state: Some("Failed".into()),
            previous_state: Some("Running".into()),
            reason: "CONTAINER_EXITED_ERROR".into(),
            message: "It ended.".into(),
            created_at: WireTime::from_unix_us(0),
            expires_at: None,
            previous_expires_at: None,
            metadata: [("k".to_owned(), "v".to_owned())].into(),
        }
    }

    fn read(message: &Message) -> Value {
        serde_json::from_str(&message.body).unwrap()
    }

    #[test]
    fn a_message_says_what_happened() {
        let message = Message::of(event(), WireTime::from_unix_us(1_000_000).unwrap());
        let expected = json!({
            "id": message.id,
            "type": "sandbox.failed",
            "timestamp": "1970-01-01T00:00:01Z",
            "data": {
                "sandboxId": "a",
                "tenant": "team-a",
                "state": "Failed",
                "previousState": "Running",
                "reason": "CONTAINER_EXITED_ERROR",
                "message": "It ended.",
                "createdAt": "1970-01-01T00:00:00Z",
                "expiresAt": null,
                "metadata": {"k": "v"},
            },
        });
        assert_eq!(read(&message), expected);
        assert!(message.id.starts_with("evt_") && !message.id.contains('.'));
        for kind in EventType::OF_SANDBOXES {
            assert_eq!(json!(kind), json!(kind.as_str()));
        }
    }

    #[test]
    fn texts_and_metadata_are_bounded() {
        let mut large = event();
        large.message = "é".repeat(2000);
        large.metadata = (0..2000)
            .map(|n| (format!("key-{n:04}"), "v".repeat(60)))
            .collect();
        let message = Message::of(large, WireTime::from_unix_us(0).unwrap());
        assert!(message.body.len() < 16 << 10, "{}", message.body.len());
        let data = &read(&message)["data"];
        assert_eq!(data["metadataTruncated"], json!(true));
        assert!(data["metadata"].as_object().unwrap().len() > 100);
    }
}

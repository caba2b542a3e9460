//! Webhooks: subscriptions to events about sandboxes, and what became of their messages.

use serde::{Deserialize, Serialize};

use crate::{SandboxId, WireTime};

/// A subscription, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Id, never used again.
    #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Where messages are sent.
    pub url: String,
    /// Types of the events; all when empty.
    pub events: Vec<String>,
    /// The tenant about whose sandboxes it is; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether the server's configuration names it, so that only the configuration can remove it.
    pub configured: bool,
    /// Why nothing is sent; absent while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
    /// When it was added.
    pub created_at: WireTime,
    /// Messages that are not delivered yet.
    pub pending: u64,
}

/// Subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookList {
    /// Oldest first.
    pub items: Vec<Webhook>,
}

/// A subscription to add.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewWebhook {
    /// Name for people.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// Where to send messages: http or https, without user name and password.
    pub url: String,
    /// Types of the events, such as `sandbox.failed`; all when absent or empty.
    #[serde(default)]
    pub events: Vec<String>,
    /// The tenant about whose sandboxes it is; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What signs the messages: `whsec_` and 24 to 64 bytes in Base64. Made when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A new subscription with its secret, which no other answer contains.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssuedWebhook {
    /// The subscription.
    pub webhook: Webhook,
    /// What signs the messages; absent when the request contained it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A message for a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WebhookTest {
    /// Id of the event, by which its delivery is found.
    pub event_id: String,
}

/// A message and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    /// Grows with every delivery of the server.
    pub id: i64,
    /// Id of the event, the same in every attempt: the header `webhook-id`.
    pub event_id: String,
    /// Type of the event.
    pub event_type: String,
    /// The sandbox that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// `pending`, `delivered` or `dead`.
    pub status: String,
    /// Attempts that were begun.
    pub attempts: u32,
    /// When the event was recorded.
    pub created_at: WireTime,
    /// When the next attempt begins; absent unless it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<WireTime>,
    /// When it was delivered or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<WireTime>,
    /// Status of the receiver's last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_status: Option<u16>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Messages of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookDeliveryList {
    /// Newest first.
    pub items: Vec<WebhookDelivery>,
}

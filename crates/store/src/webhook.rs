//! Webhooks: what is stored of subscriptions, announcements and deliveries.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use crate::{HistoryEntry, StoreError};

/// The secret that signs messages to a receiver. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(pub String);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

/// A subscription to events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRow {
    /// Id, never used again.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Where messages go.
    pub url: String,
    /// What signs them; `None` when the configuration has it.
    pub secret: Option<WebhookSecret>,
    /// Types of the events; all when empty.
    pub events: Vec<String>,
    /// The tenant about whose sandboxes it is; all when `None`.
    pub tenant: Option<String>,
    /// Whether the configuration names it.
    pub is_configured: bool,
    /// Why nothing is sent, if so.
    pub disabled: Option<String>,
    /// When it was added.
    pub created_at: WireTime,
}

/// What was last announced of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedRow {
    /// The sandbox.
    pub id: SandboxId,
    /// Its state.
    pub state: String,
    /// The reason of the state.
    pub reason: String,
    /// When it was to expire.
    pub expires_at: Option<WireTime>,
    /// The tenant whose sandbox it is.
    pub tenant: Option<String>,
    /// Its metadata, as far as events contain it.
    pub metadata: BTreeMap<String, String>,
}

/// What is announced in one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Sandboxes with what is announced of them now.
    pub announced: Vec<AnnouncedRow>,
    /// Sandboxes whose end is announced.
    pub ended: Vec<SandboxId>,
    /// Messages to send, in order.
    pub deliveries: Vec<NewDelivery>,
}

/// A message to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// The subscription.
    pub webhook_id: String,
    /// Id of the event, the same for every receiver and attempt.
    pub event_id: String,
    /// Type of the event.
    pub event_type: String,
    /// The sandbox that it is about, if any.
    pub sandbox_id: Option<SandboxId>,
    /// The message.
    pub body: String,
    /// When the event was announced.
    pub created_at: WireTime,
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryStatus {
    /// To be sent, or sent again.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// It is not sent again by itself.
    Dead,
}

impl DeliveryStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// The stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// The status of a name; `None` for an unknown one.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

/// A stored message with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Grows with every delivery.
    pub id: i64,
    /// The subscription.
    pub webhook_id: String,
    /// Id of the event.
    pub event_id: String,
    /// Type of the event.
    pub event_type: String,
    /// The sandbox that it is about, if any.
    pub sandbox_id: Option<SandboxId>,
    /// The message.
    pub body: String,
    /// Where it stands.
    pub status: DeliveryStatus,
    /// Attempts that were begun.
    pub attempts: u32,
    /// When the event was announced.
    pub created_at: WireTime,
    /// When the next attempt may begin.
    pub due_at: WireTime,
    /// When it was delivered or given up.
    pub ended_at: Option<WireTime>,
    /// Status of the last answer, if there was one.
    pub answer: Option<u16>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    /// Where the delivery stands now.
    pub status: DeliveryStatus,
    /// When the attempt ended.
    pub at: WireTime,
    /// When the next attempt may begin.
    pub due_at: WireTime,
    /// Status of the answer, if there was one.
    pub answer: Option<u16>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Deliveries by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryBacklog {
    /// Pending ones.
    pub pending: u64,
    /// Dead ones.
    pub dead: u64,
    /// When the oldest pending one was announced.
    pub oldest_pending: Option<WireTime>,
}

/// Subscriptions to events.
#[async_trait]
pub trait Webhooks: Send + Sync + 'static {
    /// Reads all subscriptions, oldest first.
    async fn webhooks(&self) -> Result<Vec<WebhookRow>, StoreError>;

    /// Adds a subscription.
    async fn add_webhook(&self, webhook: &WebhookRow) -> Result<(), StoreError>;

    /// Replaces what is stored of a subscription, except its secret; `false` when there is none.
    async fn change_webhook(&self, webhook: &WebhookRow) -> Result<bool, StoreError>;

    /// Deletes a subscription; `false` when there is none. Its deliveries are pruned later.
    async fn delete_webhook(&self, id: &str) -> Result<bool, StoreError>;
}

/// What was announced of sandboxes.
#[async_trait]
pub trait Announcements: Send + Sync + 'static {
    /// Whether what happens to sandboxes is announced.
    async fn is_tracking(&self) -> Result<bool, StoreError>;

    /// Begins: these sandboxes are as they are without an announcement.
    async fn start_tracking(&self, sandboxes: &[AnnouncedRow]) -> Result<(), StoreError>;

    /// Ends, and forgets what was announced.
    async fn stop_tracking(&self) -> Result<(), StoreError>;

    /// What was last announced of each sandbox.
    async fn announced(&self) -> Result<Vec<AnnouncedRow>, StoreError>;

    /// Adds messages together with the state that they announce.
    async fn announce(&self, announcement: &Announcement) -> Result<(), StoreError>;

    /// Sandboxes that ended and whose end is not announced, oldest first.
    async fn unannounced_ends(&self, limit: u32) -> Result<Vec<HistoryEntry>, StoreError>;
}

/// Messages to receivers.
#[async_trait]
pub trait Deliveries: Send + Sync + 'static {
    /// The pending delivery of a subscription that is due first.
    async fn next_delivery(&self, webhook: &str) -> Result<Option<DeliveryRow>, StoreError>;

    /// Counts an attempt that begins; `false` when the delivery is not pending any more.
    async fn begin_attempt(&self, id: i64) -> Result<bool, StoreError>;

    /// Keeps what became of an attempt.
    async fn end_attempt(&self, id: i64, result: &AttemptResult) -> Result<(), StoreError>;

    /// Deliveries of a subscription, newest first; of one status if given, and older than `before`.
    async fn deliveries(
        &self,
        webhook: &str,
        status: Option<DeliveryStatus>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<DeliveryRow>, StoreError>;

    /// Makes a delivery pending again, as if it were new; `false` when the subscription has none such,
    /// or it is pending.
    async fn redeliver(&self, webhook: &str, id: i64, at: WireTime) -> Result<bool, StoreError>;

    /// Gives up at most `limit` pending deliveries of a subscription; returns their number.
    async fn give_up(
        &self,
        webhook: &str,
        error: &str,
        at: WireTime,
        limit: u32,
    ) -> Result<u64, StoreError>;

    /// Number of pending deliveries of each subscription that has any.
    async fn pending_by_webhook(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Number of deliveries that are not delivered.
    async fn backlog(&self) -> Result<DeliveryBacklog, StoreError>;

    /// Deletes at most `limit` deliveries that ended before these times, or whose subscription is gone;
    /// returns their number.
    async fn prune_deliveries(
        &self,
        delivered_before: WireTime,
        dead_before: WireTime,
        limit: u32,
    ) -> Result<u64, StoreError>;
}

/// The events of a row. A list that cannot be read selects no event.
pub(crate) fn stored_events(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_else(|_| vec![String::new()])
}

/// The metadata of a row; none if it cannot be read.
pub(crate) fn stored_metadata(json: &str) -> BTreeMap<String, String> {
    serde_json::from_str(json).unwrap_or_default()
}

/// A list or map of texts as JSON.
pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("texts in lists and maps serialise")
}

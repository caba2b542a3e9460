//! Data of the page about the server's settings and health.

use osb_protocol::webhook::{Webhook, WebhookDelivery};
use serde::{Deserialize, Serialize};

use super::Host;

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingsView {
    /// What was checked.
    pub checks: Vec<Check>,
    /// What is for service administrators, or why the caller may not see it.
    pub operator: Result<OperatorView, String>,
}

/// Something that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What it is.
    pub name: String,
    /// What was found.
    pub text: String,
    /// How it stands.
    pub state: CheckState,
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// It works.
    Good,
    /// It works, and an operator should know something.
    Note,
    /// It does not work.
    Bad,
}

/// What service administrators see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorView {
    /// The configuration in force; `None` where the process does not know it.
    pub config: Option<ConfigView>,
    /// What a check of the store found, if it was asked for.
    pub store: Option<Result<StoreView, String>>,
    /// What the host has.
    pub host: Option<Host>,
    /// Subscriptions to events, each with its last message.
    pub webhooks: Vec<WebhookView>,
}

/// The configuration in force, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigView {
    /// Version and commit of the server.
    pub build: String,
    /// The file.
    pub file: String,
    /// Kind of store.
    pub store: String,
    /// Every key, in the order of the documentation.
    pub settings: Vec<SettingView>,
    /// What an operator should know of it: keys without effect, and risks.
    pub notes: Vec<String>,
    /// Variables of the server that are set.
    pub environment: Vec<String>,
    /// Where metrics are read, in words.
    pub metrics: String,
}

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingView {
    /// Dotted key.
    pub key: String,
    /// Its value in TOML's notation; secrets are masked.
    pub value: String,
    /// Where the value comes from.
    pub origin: String,
    /// Whether the file or the environment has it.
    pub is_set: bool,
}

/// What a check of the store found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreView {
    /// Kind of database.
    pub database: String,
    /// Version of its schema, and the newest one that the server knows.
    pub schema: (i64, i64),
    /// Rows of each table.
    pub tables: Vec<(String, u64)>,
    /// Size of its file in bytes.
    pub bytes: Option<u64>,
    /// What keeps the server from using it, or some of its rows.
    pub problems: Vec<String>,
    /// What an operator should know.
    pub notes: Vec<String>,
}

/// A subscription to events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookView {
    /// The subscription.
    pub webhook: Webhook,
    /// Its last messages, newest first, or why they are not known.
    pub deliveries: Result<Vec<WebhookDelivery>, String>,
}

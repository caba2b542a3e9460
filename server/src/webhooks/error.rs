//! Why a request about webhooks was not done.

use osb_protocol::FieldError;
use osb_store::StoreError;

use crate::sandbox;

/// Why a request about webhooks was not done. The text may be shown to clients.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Fields break rules.
    #[error("{}", .0.iter().map(|it| format!("{}: {}", it.field(), it.msg)).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<FieldError>),
    /// There is no such webhook.
    #[error("no such webhook")]
    NoWebhook,
    /// The webhook has no such delivery, or it is pending.
    #[error("the webhook has no such delivery that has ended")]
    NoDelivery,
    /// Only the configuration can remove it.
    #[error("the server's configuration names this webhook, so it cannot be deleted here")]
    Configured,
    /// Nothing is sent to it.
    #[error("the webhook is disabled: {0}")]
    Disabled(String),
    /// There is one of this name.
    #[error("a webhook named {0} exists")]
    NameTaken(String),
    /// There are as many as there may be.
    #[error("there are {0} webhooks, and no more are possible")]
    Full(usize),
    /// Too many messages wait for it.
    #[error("{0} messages wait for this webhook, and no more are possible")]
    Backlog(u64),
    /// Events cannot be recorded now.
    #[error(transparent)]
    Unavailable(#[from] sandbox::Error),
    /// The store failed.
    #[error("the server cannot keep its state")]
    Store(#[from] StoreError),
}

//! No server without authentication by accident (contract: lifecycle §2).

use std::{io::IsTerminal, time::Duration};

use osb_store::{Store, StoreError};
use tokio::io::{AsyncBufReadExt, BufReader};
use tracing::warn;

use crate::config::{Config, ENV_INSECURE};

/// How long an operator has to confirm.
const PATIENCE: Duration = Duration::from_secs(30);
/// What has to be typed, or set.
const CONFIRMATION: &str = "YES";

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// No confirmation came.
    #[error(
        "server.api_key is empty: set it, or set {ENV_INSECURE}={CONFIRMATION} to let everybody \
         who can connect control sandboxes"
    )]
    NoKey,
    /// The operator typed something else.
    #[error("not confirmed: the server does not start without server.api_key")]
    Refused,
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No input came.
    #[error("no answer within {} seconds: the server does not start without server.api_key", PATIENCE.as_secs())]
    NoAnswer,
}

/// Lets the server start with a key, users or tenants, or without any when the operator confirms it.
///
/// # Errors
/// See [`GuardError`].
pub async fn check(config: &Config, store: &dyn Store) -> Result<(), GuardError> {
    if config.server.usable_key().is_some() || config.tenants.is_some() {
        return Ok(());
    }
    let accounts = store.accounts().await?;
    if !accounts.users.is_empty() || !accounts.keys.is_empty() {
        return Ok(());
    }
    if std::env::var(ENV_INSECURE).is_ok_and(|value| value == CONFIRMATION) {
        warn!("running WITHOUT an API key: every client that can connect controls all sandboxes");
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(GuardError::NoKey);
    }
    eprint!(
        "\x1b[31mserver.api_key is empty: every client that can connect will control all sandboxes.\x1b[0m\n\
         Type {CONFIRMATION} to start all the same: "
    );
    let mut line = String::new();
    let mut input = BufReader::new(tokio::io::stdin());
    match tokio::time::timeout(PATIENCE, input.read_line(&mut line)).await {
        Ok(Ok(_)) if line.trim_end_matches(['\r', '\n']) == CONFIRMATION => Ok(()),
        Ok(_) => Err(GuardError::Refused),
        Err(_) => Err(GuardError::NoAnswer),
    }
}

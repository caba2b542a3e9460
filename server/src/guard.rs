//! No server without authentication by accident (contract: lifecycle §2).

use std::{io::IsTerminal, time::Duration};

use osb_store::{Store, StoreError};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
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
    let variable = std::env::var(ENV_INSECURE).ok();
    let terminal = std::io::stdin()
        .is_terminal()
        .then(|| BufReader::new(tokio::io::stdin()));
    confirm(variable.as_deref(), terminal).await
}

/// Lets the server start without a key if the variable or the operator at the terminal says so.
async fn confirm(
    variable: Option<&str>,
    terminal: Option<impl AsyncBufRead + Unpin>,
) -> Result<(), GuardError> {
    if variable == Some(CONFIRMATION) {
        warn!("running WITHOUT an API key: every client that can connect controls all sandboxes");
        return Ok(());
    }
    let Some(mut input) = terminal else {
        return Err(GuardError::NoKey);
    };
    eprint!(
        "\x1b[31mserver.api_key is empty: every client that can connect will control all sandboxes.\x1b[0m\n\
         Type {CONFIRMATION} to start all the same: "
    );
    let mut line = String::new();
    match tokio::time::timeout(PATIENCE, input.read_line(&mut line)).await {
        Ok(Ok(_)) if line.trim_end_matches(['\r', '\n']) == CONFIRMATION => Ok(()),
        Ok(_) => Err(GuardError::Refused),
        Err(_) => Err(GuardError::NoAnswer),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const NO_TERMINAL: Option<&[u8]> = None;

    #[tokio::test]
    async fn without_a_terminal_only_the_exact_variable_confirms() {
        assert!(confirm(Some("YES"), NO_TERMINAL).await.is_ok());
        for variable in [None, Some(""), Some("yes"), Some("YES "), Some("s3cret")] {
            let error = confirm(variable, NO_TERMINAL).await.unwrap_err();
            assert!(matches!(error, GuardError::NoKey), "{variable:?}");
            let text = error.to_string();
            assert!(text.contains("OPENSANDBOX_INSECURE_SERVER=YES"), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[tokio::test]
    async fn at_a_terminal_only_the_exact_word_confirms() {
        for line in ["YES\n", "YES\r\n", "YES"] {
            let answer = confirm(None, Some(line.as_bytes())).await;
            assert!(answer.is_ok(), "{line:?}: {answer:?}");
        }
        for line in ["", "\n", "yes\n", "YES!\n", " YES\n", "no\nYES\n"] {
            let answer = confirm(None, Some(line.as_bytes())).await;
            assert!(
                matches!(answer, Err(GuardError::Refused)),
                "{line:?}: {answer:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_who_types_nothing_is_not_waited_for() {
        let (_silent, terminal) = tokio::io::duplex(16);
        let begun = Instant::now();
        let answer = confirm(None, Some(BufReader::new(terminal))).await;
        assert!(matches!(answer, Err(GuardError::NoAnswer)), "{answer:?}");
        // The clock of the test, which does not run by itself.
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    }
}

//! The claim of a warm sidecar (an addition to the contract; see docs/egress.md).

use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::time::timeout;

use super::WarmSidecar;
use crate::docker::exchange::{Answer, Exchange};

/// Longest wait for the answer. It usually takes some hundredths of a second; a cold sidecar would have
/// to wait for the same work.
const PATIENCE: Duration = Duration::from_secs(10);
/// Member of the answer of a sidecar that waits.
const UNCLAIMED: &str = r#""claimed":false"#;

/// Whether a sidecar can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimable {
    Yes,
    /// Its program knows no claims.
    Unknown,
}

impl WarmSidecar {
    /// Asks whether it can be claimed.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) async fn ask(&self) -> Result<Claimable, String> {
        let answer = self.send("GET", "").await?;
        match answer.status {
            200 if answer.body.contains(UNCLAIMED) => Ok(Claimable::Yes),
            404 | 405 => Ok(Claimable::Unknown),
            _ => Err(answer.into_reason()),
        }
    }

    /// Has the sidecar enforce the policy of its sandbox. It does when this succeeds. It succeeds once
    /// only, whichever process asks.
    ///
    /// # Errors
    /// Why it does not.
    pub(in super::super) async fn claim(&self, policy: &str) -> Result<(), String> {
        let answer = self.send("POST", policy).await?;
        match answer.status {
            200 => Ok(()),
            _ => Err(answer.into_reason()),
        }
    }

    async fn send(&self, method: &str, body: &str) -> Result<Answer, String> {
        let path = format!("/claim/{}", self.id);
        let exchange = Exchange {
            method,
            path: &path,
            token: Some(("OPENSANDBOX-EGRESS-AUTH", self.token.expose_secret())),
            body,
        };
        match timeout(PATIENCE, exchange.send(self.api)).await {
            Ok(Ok(answer)) => answer.ok_or_else(|| "its answer is no HTTP".to_owned()),
            Ok(Err(error)) => Err(format!("it cannot be asked: {error}")),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                Err(format!("it did not answer within {seconds} s"))
            }
        }
    }
}

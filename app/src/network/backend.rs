//! The networks of sandboxes as the tab sees them. The server implements this over the sidecars.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::{SandboxId, lifecycle::NetworkPolicyProposal};

use super::{NetworkView, PolicyChange};
use crate::error::ConsoleError;

/// What the tab asks for.
#[async_trait]
pub trait NetworkBackend: Send + Sync {
    /// The policy of a sandbox and what was decided by it; of names only what changed after the number
    /// `since`.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], and [`ConsoleError::Refused`] when the sandbox does not run or its
    /// sidecar does not answer.
    async fn read(&self, id: &SandboxId, since: u64) -> Result<NetworkView, ConsoleError>;

    /// Changes the policy of a sandbox.
    ///
    /// # Errors
    /// As [`Self::read`], and [`ConsoleError::Refused`] when the change makes no sense.
    async fn change(&self, id: &SandboxId, change: PolicyChange) -> Result<(), ConsoleError>;

    /// The smallest policy for what was asked for, with `with_denied` also for what was refused.
    ///
    /// # Errors
    /// As [`Self::read`], and [`ConsoleError::Refused`] when the sidecar keeps no decisions.
    async fn propose(
        &self,
        id: &SandboxId,
        with_denied: bool,
    ) -> Result<NetworkPolicyProposal, ConsoleError>;
}

/// The backend of this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub(super) fn backend() -> Result<Arc<dyn NetworkBackend>, ConsoleError> {
    use_context::<Arc<dyn NetworkBackend>>().ok_or(ConsoleError::SignedOut)
}

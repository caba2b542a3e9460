//! The checks of sandboxes as the tab sees them. The server implements this over the engine and execd.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::SandboxId;

use super::HealthCheck;
use crate::error::ConsoleError;

/// What the tab asks for.
#[async_trait]
pub trait HealthBackend: Send + Sync {
    /// Checks the engine, the container and the execd of a sandbox now. A check that fails is a
    /// result.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`].
    async fn check(&self, id: &SandboxId) -> Result<Vec<HealthCheck>, ConsoleError>;
}

/// The backend of this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub(super) fn backend() -> Result<Arc<dyn HealthBackend>, ConsoleError> {
    use_context::<Arc<dyn HealthBackend>>().ok_or(ConsoleError::SignedOut)
}

//! The shells of sandboxes as the terminal sees them, beside their WebSocket. The server implements
//! this over execd.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::SandboxId;

use crate::error::ConsoleError;

/// What the terminal asks for.
#[async_trait]
pub trait ShellBackend: Send + Sync {
    /// Ends a shell of a sandbox with all that runs in it. One that is gone has ended.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn end(&self, id: &SandboxId, pty: &str) -> Result<(), ConsoleError>;
}

/// The backend of this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub(super) fn backend() -> Result<Arc<dyn ShellBackend>, ConsoleError> {
    use_context::<Arc<dyn ShellBackend>>().ok_or(ConsoleError::SignedOut)
}

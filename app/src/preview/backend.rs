//! The ports of sandboxes as the tab sees them. The server implements this over execd.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::{SandboxId, execd::port::ListeningPort};

use crate::error::ConsoleError;

/// What the tab asks for.
#[async_trait]
pub trait PortBackend: Send + Sync {
    /// The ports on which programs of a sandbox listen, without those of execd.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn listening(&self, id: &SandboxId) -> Result<Vec<ListeningPort>, ConsoleError>;
}

/// The backend of this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub(super) fn backend() -> Result<Arc<dyn PortBackend>, ConsoleError> {
    use_context::<Arc<dyn PortBackend>>().ok_or(ConsoleError::SignedOut)
}

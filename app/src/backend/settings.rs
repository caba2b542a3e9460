//! The server's settings and health as the console sees them.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;

use crate::{error::ConsoleError, view::SettingsView};

/// What the page about settings asks the server for.
#[async_trait]
pub trait SettingsBackend: Send + Sync {
    /// What the page shows, as far as the caller's role allows it. With `checks_store`, the whole store
    /// is looked through for damage.
    async fn settings(&self, checks_store: bool) -> SettingsView;
}

/// The settings for this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn settings_backend() -> Result<Arc<dyn SettingsBackend>, ConsoleError> {
    use_context::<Arc<dyn SettingsBackend>>().ok_or(ConsoleError::SignedOut)
}

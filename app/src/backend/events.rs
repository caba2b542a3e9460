//! The audit trail as the console sees it.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;

use crate::{
    error::ConsoleError,
    view::{EventsQuery, EventsView},
};

/// What the page about the audit trail asks the server for.
#[async_trait]
pub trait EventsBackend: Send + Sync {
    /// One page of entries, if the caller's role allows it.
    async fn events(&self, query: &EventsQuery) -> EventsView;
}

/// The audit trail for this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn events_backend() -> Result<Arc<dyn EventsBackend>, ConsoleError> {
    use_context::<Arc<dyn EventsBackend>>().ok_or(ConsoleError::SignedOut)
}

//! Server function of the page. The session and the origin of the request were checked before it runs.

use leptos::prelude::*;

use crate::{
    error::ConsoleError,
    view::{EventsQuery, EventsView},
};

/// One page of entries.
#[server(prefix = "/console/fn", endpoint = "events/get")]
pub async fn read_events(query: EventsQuery) -> Result<EventsView, ConsoleError> {
    Ok(crate::backend::events_backend()?.events(&query).await)
}

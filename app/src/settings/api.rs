//! Server function of the page. The session and the origin of the request were checked before it runs.

use leptos::prelude::*;

use crate::{error::ConsoleError, view::SettingsView};

/// What the page shows.
#[server(prefix = "/console/fn", endpoint = "settings/get")]
pub async fn read_settings(checks_store: bool) -> Result<SettingsView, ConsoleError> {
    let backend = crate::backend::settings_backend()?;
    Ok(backend.settings(checks_store).await)
}

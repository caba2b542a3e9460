//! The server function of the terminal.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use crate::error::ConsoleError;

/// Ends a shell of a sandbox with all that runs in it.
#[server(prefix = "/console/fn", endpoint = "terminal/end")]
pub async fn end(id: SandboxId, pty: String) -> Result<(), ConsoleError> {
    super::backend::backend()?.end(&id, &pty).await
}

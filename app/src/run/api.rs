//! The server functions of the tab.

use leptos::prelude::*;
use osb_protocol::{SandboxId, WireTime, lifecycle::SandboxCommand};

use crate::error::ConsoleError;

/// The last commands of a sandbox, newest first, also of one that is gone. A list that is not there is
/// a result, not an error: browsers would log an error.
#[server(prefix = "/console/fn", endpoint = "sandboxes/commands")]
pub async fn commands(id: SandboxId) -> Result<Result<Vec<SandboxCommand>, String>, ConsoleError> {
    match crate::backend::backend()?.commands(&id).await {
        Ok(commands) => Ok(Ok(commands)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Interrupts the command of a sandbox that began at this time.
#[server(prefix = "/console/fn", endpoint = "sandboxes/interrupt")]
pub async fn interrupt(id: SandboxId, started_at: WireTime) -> Result<(), ConsoleError> {
    crate::backend::backend()?.interrupt(&id, started_at).await
}

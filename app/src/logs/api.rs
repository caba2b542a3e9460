//! The server function of the log.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use crate::{error::ConsoleError, live::LogLine};

/// The last lines of a sandbox's output. A log that is not there is a result, not an error: browsers
/// would log an error.
#[server(prefix = "/console/fn", endpoint = "sandboxes/log")]
pub async fn tail(id: SandboxId) -> Result<Result<Vec<LogLine>, String>, ConsoleError> {
    match crate::backend::backend()?.log(&id).await {
        Ok(lines) => Ok(Ok(lines)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}

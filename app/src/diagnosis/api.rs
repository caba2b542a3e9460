//! The server function of the tab.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use crate::{error::ConsoleError, view::Diagnosis};

/// What is known of a sandbox now. A description that is not there is a result, not an error: browsers
/// would log an error.
#[server(prefix = "/console/fn", endpoint = "sandboxes/diagnosis")]
pub async fn read_diagnosis(id: SandboxId) -> Result<Result<Diagnosis, String>, ConsoleError> {
    match crate::backend::backend()?.diagnosis(&id).await {
        Ok(diagnosis) => Ok(Ok(diagnosis)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}

//! The server functions of the tab.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::HealthCheck;
use crate::{error::ConsoleError, view::Diagnosis};

/// Checks a sandbox now. That it is gone is a result, not an error: browsers would log an error.
#[server(prefix = "/console/fn", endpoint = "sandboxes/health")]
pub async fn check_health(id: SandboxId) -> Result<Result<Vec<HealthCheck>, String>, ConsoleError> {
    match super::backend::backend()?.check(&id).await {
        Ok(checks) => Ok(Ok(checks)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}

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

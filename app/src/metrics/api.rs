//! The server function of the metrics.

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::MetricsHistory};

use super::series::Range;
use crate::error::ConsoleError;

/// What was recorded of a sandbox, in the steps that a range needs. That nothing is known of it is a
/// result, not an error: browsers would log an error.
#[server(prefix = "/console/fn", endpoint = "sandboxes/metrics")]
pub async fn history(
    id: SandboxId,
    range: Range,
) -> Result<Result<MetricsHistory, String>, ConsoleError> {
    let backend = crate::backend::backend()?;
    let found = match range {
        Range::Quarter | Range::Hour => backend.metrics(&id, super::series::FINE).await,
        Range::Day => backend.metrics(&id, super::series::COARSE).await,
        Range::Start => {
            // The fine steps cover an hour.
            let fine = backend.metrics(&id, super::series::FINE).await;
            match &fine {
                Ok(fine) if fine.memory_bytes.len() >= super::series::HOUR_OF_FINE => {
                    backend.metrics(&id, super::series::COARSE).await
                }
                _ => fine,
            }
        }
    };
    match found {
        Ok(history) => Ok(Ok(history)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}

//! What the domain refuses, in words for pages.

use osb_app::error::ConsoleError;
use osb_service::ErrorChain;

use crate::sandbox::{Error, explain};

/// The domain's error as a page shows it.
pub(super) fn refused(error: Error) -> ConsoleError {
    let problems = error.fields();
    match error {
        Error::NotFound(_) => ConsoleError::NotFound,
        Error::Shortens { until, .. } => ConsoleError::Shortens { until },
        _ if !problems.is_empty() => ConsoleError::Invalid { problems },
        other => ConsoleError::Refused {
            // The causes hold the runtime's own words, which explain the refusal.
            message: explain(ErrorChain(&other).to_string(), other.cause()),
        },
    }
}

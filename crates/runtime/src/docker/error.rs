//! Translation of the engine's errors.

use bollard::errors::Error;
use osb_service::ErrorChain;

use super::KIND;
use crate::RuntimeError;

/// Reason when a response or the event stream is cut off.
pub(super) const CLOSED: &str = "the engine closed the connection";
/// Reason when a response does not arrive in time.
pub(super) const NO_ANSWER: &str = "the engine did not answer in time";
/// Longest message of the engine that is passed on, in bytes.
const MAX_MESSAGE: usize = 600;

/// Returns the HTTP status of the engine's response, if there is one.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the engine reports that the object does not exist.
pub(super) fn is_missing(error: &Error) -> bool {
    status(error) == Some(404)
}

/// Returns the engine's message, truncated to at most [`MAX_MESSAGE`] bytes.
pub(super) fn reason(error: &Error) -> String {
    shortened(&message(error))
}

/// Returns the engine's whole message.
pub(super) fn message(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } | Error::DockerContainerWaitError { error, .. } => {
            error.clone()
        }
        Error::RequestTimeoutError => NO_ANSWER.to_owned(),
        Error::HyperLegacyError { err } if err.is_connect() => {
            format!("cannot connect to the engine: {}", root(err))
        }
        Error::HyperLegacyError { err } => root(err),
        // Both come from reading the body of a response and have no further details.
        Error::IOError { .. } | Error::HyperResponseError { .. } => CLOSED.to_owned(),
        other => ErrorChain(other).to_string(),
    }
}

/// Truncates a message to at most [`MAX_MESSAGE`] bytes.
pub(super) fn shortened(text: &str) -> String {
    let mut end = text.len().min(MAX_MESSAGE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim().to_owned()
}

/// Returns the root cause. The errors above it describe the client library.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Converts an error that means that the engine is unavailable.
pub(super) fn unavailable(error: &Error) -> Option<RuntimeError> {
    match error {
        Error::HyperLegacyError { .. }
        | Error::HyperResponseError { .. }
        | Error::HttpClientError { .. }
        | Error::IOError { .. }
        | Error::SocketNotFoundError(_)
        | Error::RequestTimeoutError => Some(RuntimeError::Unavailable {
            runtime: KIND,
            reason: reason(error),
        }),
        _ => None,
    }
}

/// Returns the error of a call that was not answered in time.
pub(super) fn no_answer() -> RuntimeError {
    RuntimeError::Unavailable {
        runtime: KIND,
        reason: NO_ANSWER.to_owned(),
    }
}

/// Whether an error means that the engine cannot be reached at all. An engine that is late with one
/// response may still send others.
pub(super) fn is_disconnected(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Unavailable { reason, .. } if reason != NO_ANSWER)
}

/// Converts an error of an operation that has no variant of its own.
pub(super) fn other(op: &'static str, error: &Error) -> RuntimeError {
    unavailable(error).unwrap_or_else(|| RuntimeError::Other {
        runtime: KIND,
        op,
        reason: reason(error),
    })
}

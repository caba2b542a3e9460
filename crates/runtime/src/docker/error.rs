//! What the engine's errors mean.

use bollard::errors::Error;
use osb_service::ErrorChain;

use super::KIND;
use crate::RuntimeError;

/// What it means that an answer or the event stream ends.
pub(super) const CLOSED: &str = "the engine closed the connection";
/// What it means that an answer does not come.
pub(super) const NO_ANSWER: &str = "the engine did not answer in time";
/// Longest text of the engine that is passed on, in bytes.
const SHOWN: usize = 600;

/// The HTTP status of the engine's answer, when it answered.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the engine says that the thing does not exist.
pub(super) fn is_missing(error: &Error) -> bool {
    status(error) == Some(404)
}

/// The engine's own words, cut to a bound.
pub(super) fn reason(error: &Error) -> String {
    let text = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } | Error::DockerContainerWaitError { error, .. } => {
            error.clone()
        }
        Error::RequestTimeoutError => NO_ANSWER.to_owned(),
        Error::HyperLegacyError { err } if err.is_connect() => {
            format!("cannot connect to the engine: {}", root(err))
        }
        Error::HyperLegacyError { err } => root(err),
        // Both come from reading the body of an answer, and tell no more than that.
        Error::IOError { .. } | Error::HyperResponseError { .. } => CLOSED.to_owned(),
        other => ErrorChain(other).to_string(),
    };
    let mut end = text.len().min(SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim().to_owned()
}

/// The first cause: what lies between tells about the client library.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// An error that means the engine cannot be reached, if it does.
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

/// Any error of an operation that has no variant of its own.
pub(super) fn other(op: &'static str, error: &Error) -> RuntimeError {
    unavailable(error).unwrap_or_else(|| RuntimeError::Other {
        runtime: KIND,
        op,
        reason: reason(error),
    })
}

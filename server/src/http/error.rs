//! The one place that turns errors into HTTP answers (contract: lifecycle §1.3, §13, §A12).

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use osb_protocol::{ErrorBody, FieldError, error::code};
use osb_runtime::RuntimeError;
use osb_service::ErrorChain;

use crate::sandbox::Error;

/// Seconds after which a client may try again when the runtime is away.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// An error answer.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    body: ErrorBody,
    /// For the log: what clients are not told.
    cause: Option<String>,
}

/// Left on error answers of ours for the log: why, or nothing when the message says it all.
#[derive(Clone, Debug)]
pub(super) struct Cause(pub(super) String);

impl ApiError {
    /// An answer with status, code and message.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            body: ErrorBody::new(code, message),
            cause: None,
        }
    }

    /// 422 with the fields at fault.
    pub(super) fn invalid(fields: Vec<FieldError>) -> Self {
        Error::Invalid(fields).into()
    }

    /// Keeps a cause for the log.
    #[must_use]
    pub(super) fn because(mut self, cause: &dyn std::error::Error) -> Self {
        self.cause = Some(ErrorChain(cause).to_string());
        self
    }

    /// The message, for a WebSocket close reason.
    pub(super) fn message(&self) -> &str {
        &self.body.message
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let (status, code) = status_and_code(&error);
        let mut answer = Self::new(status, code, error.to_string());
        if status.is_server_error() {
            answer = answer.because(&error);
        }
        if let Error::Invalid(fields) = error {
            answer.body.detail = fields;
        }
        answer
    }
}

fn status_and_code(error: &Error) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match error {
        Error::Invalid(_) => (S::UNPROCESSABLE_ENTITY, code::INVALID_PARAMETER),
        Error::Rule { .. } | Error::Resources(_) => (S::BAD_REQUEST, code::INVALID_PARAMETER),
        Error::Label(_) => (S::BAD_REQUEST, code::INVALID_METADATA_LABEL),
        Error::ReservedLabel(_) => (S::BAD_REQUEST, code::RESERVED_METADATA_LABEL),
        Error::Entrypoint(_) => (S::BAD_REQUEST, code::INVALID_ENTRYPOINT),
        Error::PoolRef(_) => (S::BAD_REQUEST, code::UNSUPPORTED_POOL_REF),
        Error::Unsupported { .. } => (S::BAD_REQUEST, code::API_NOT_SUPPORTED),
        Error::NoSnapshot(_) => (S::NOT_FOUND, code::SNAPSHOT_NOT_FOUND),
        Error::NotFound(_) => (S::NOT_FOUND, code::SANDBOX_NOT_FOUND),
        Error::WrongState { .. } => (S::CONFLICT, code::SANDBOX_NOT_RUNNING),
        Error::ExpiryPassed => (S::BAD_REQUEST, code::INVALID_EXPIRATION),
        Error::NoExpiry(_) => (S::CONFLICT, code::INVALID_EXPIRATION),
        Error::Port => (S::BAD_REQUEST, code::INVALID_PORT),
        // The one endpoint error that SDKs poll, on every runtime (contract: clients rule 20).
        Error::NoAddressYet(_) => (S::NOT_FOUND, code::ADDRESS_NOT_AVAILABLE),
        Error::Unreachable { .. } => (S::INTERNAL_SERVER_ERROR, code::ENDPOINT_UNAVAILABLE),
        Error::RuntimeDown { .. } => (S::SERVICE_UNAVAILABLE, code::RUNTIME_UNAVAILABLE),
        Error::Runtime(error) => runtime(error),
        Error::Store(_) => (S::INTERNAL_SERVER_ERROR, code::UNKNOWN_ERROR),
        Error::ShuttingDown => (S::SERVICE_UNAVAILABLE, code::OVERLOADED),
    }
}

fn runtime(error: &RuntimeError) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match error {
        RuntimeError::Unavailable { .. } => (S::SERVICE_UNAVAILABLE, code::RUNTIME_UNAVAILABLE),
        RuntimeError::ImagePull { .. } => (S::INTERNAL_SERVER_ERROR, code::IMAGE_PULL_FAILED),
        RuntimeError::Refused { .. } | RuntimeError::NoNetwork(_) => {
            (S::BAD_REQUEST, code::INVALID_PARAMETER)
        }
        RuntimeError::NoPort { .. } | RuntimeError::Start { .. } => {
            (S::INTERNAL_SERVER_ERROR, code::START_FAILED)
        }
        RuntimeError::Execd { .. } => (S::INTERNAL_SERVER_ERROR, code::EXECD_DISTRIBUTION_FAILED),
        RuntimeError::Remove { .. } => (S::INTERNAL_SERVER_ERROR, code::DELETE_FAILED),
        RuntimeError::NotFound(_) => (S::NOT_FOUND, code::SANDBOX_NOT_FOUND),
        RuntimeError::Other { .. } => (S::INTERNAL_SERVER_ERROR, code::SANDBOX_QUERY_FAILED),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        }
        // Marks the answer as ours, unlike one that a sandbox gave.
        response
            .extensions_mut()
            .insert(Cause(self.cause.unwrap_or_default()));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_the_contracts_status_and_code() {
        let id = || osb_protocol::SandboxId::from("a");
        let docker = "docker";
        let words = String::new;
        for (error, status, code) in [
            (
                Error::Invalid(Vec::new()),
                422,
                "SANDBOX::INVALID_PARAMETER",
            ),
            (Error::rule("a", "b"), 400, "SANDBOX::INVALID_PARAMETER"),
            (
                Error::Entrypoint("is required"),
                400,
                "DOCKER::INVALID_ENTRYPOINT",
            ),
            (Error::PoolRef(docker), 400, "SANDBOX::UNSUPPORTED_POOL_REF"),
            (Error::NotFound(id()), 404, "DOCKER::SANDBOX_NOT_FOUND"),
            (Error::ExpiryPassed, 400, "DOCKER::INVALID_EXPIRATION"),
            (Error::NoExpiry(id()), 409, "DOCKER::INVALID_EXPIRATION"),
            (Error::Port, 400, "DOCKER::INVALID_PORT"),
            (
                Error::NoAddressYet(id()),
                404,
                "KUBERNETES::POD_IP_NOT_AVAILABLE",
            ),
            (
                Error::RuntimeDown {
                    runtime: docker,
                    reason: words(),
                },
                503,
                "GENERAL::RUNTIME_UNAVAILABLE",
            ),
            (
                RuntimeError::ImagePull {
                    image: words(),
                    reason: words(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
            ),
            (
                RuntimeError::Start {
                    id: id(),
                    reason: words(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_START_FAILED",
            ),
            (
                RuntimeError::Refused {
                    runtime: docker,
                    reason: words(),
                }
                .into(),
                400,
                "SANDBOX::INVALID_PARAMETER",
            ),
            (
                RuntimeError::Remove {
                    id: id(),
                    reason: words(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_DELETE_FAILED",
            ),
        ] {
            let answer = ApiError::from(error);
            assert_eq!(
                (answer.status.as_u16(), answer.body.code.as_str()),
                (status, code)
            );
            assert!(!answer.body.message.is_empty());
        }
    }
}

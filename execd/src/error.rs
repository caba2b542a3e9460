//! What a request can fail with, and its answer. Every body has `code` and `message`, because some
//! official clients parse nothing less (contract: execd §2.2).

use std::{fmt::Display, io, path::Path};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use osb_protocol::{ErrorBody, execd::code};
use rustix::io::Errno;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    /// An error with all its parts.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// 400: the request breaks a rule.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST_BODY, message)
    }

    /// 400: a query parameter is absent.
    #[must_use]
    pub fn missing_query(name: &str) -> Self {
        let message = format!("missing query parameter '{name}'");
        Self::new(StatusCode::BAD_REQUEST, code::MISSING_QUERY, message)
    }

    /// 500: the system refused.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            code::RUNTIME_ERROR,
            message,
        )
    }

    /// 404 for what is absent, 500 for everything else (contract: execd §10, "file error").
    #[must_use]
    pub fn file(path: &Path, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::file_not_found(path.display())
        } else {
            let why = told(error);
            Self::runtime(format!("error accessing file: {}: {why}", path.display()))
        }
    }

    /// 404 of a file.
    #[must_use]
    pub fn file_not_found(path: impl Display) -> Self {
        let message = format!("file not found. {path}: no such file or directory");
        Self::new(StatusCode::NOT_FOUND, code::FILE_NOT_FOUND, message)
    }

    /// 404 of a session.
    pub fn no_session(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code::CONTEXT_NOT_FOUND, message)
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody::new(self.code, self.message))).into_response()
    }
}

/// What the system said about a file. Official clients know a refusal by the word `permission`
/// (contract: execd A3.3), which not all of the system's own texts have.
#[must_use]
pub fn told(error: &io::Error) -> String {
    const ACCESS: i32 = Errno::ACCESS.raw_os_error();
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, Some(ACCESS)) => "permission denied".to_owned(),
        (io::ErrorKind::PermissionDenied, _) => format!("permission denied: {error}"),
        _ => error.to_string(),
    }
}

/// Result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_speaks_of_permission() {
        let system = |errno: Errno| told(&io::Error::from(errno));
        assert_eq!(system(Errno::ACCESS), "permission denied");
        assert!(system(Errno::PERM).starts_with("permission denied: "));
        let wrapped = io::Error::new(io::ErrorKind::PermissionDenied, "changing the owner");
        assert_eq!(told(&wrapped), "permission denied: changing the owner");
        assert!(!system(Errno::ROFS).contains("permission"));
    }
}

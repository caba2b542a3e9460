//! Error responses. Every body has `code` and `message`, because some official clients cannot parse
//! less (contract: execd §2.2).

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use osb_protocol::{ErrorBody, execd::code};

use crate::{error::ApiError, limits};

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = status_and_code(&self);
        let mut response = (status, Json(ErrorBody::new(code, self.to_string()))).into_response();
        if let Self::Busy(_) = self {
            let seconds = HeaderValue::from(limits::RETRY_AFTER.as_secs());
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// Status and stable code of an error.
pub(crate) fn status_and_code(error: &ApiError) -> (StatusCode, &'static str) {
    match error {
        ApiError::Invalid(_) => (StatusCode::BAD_REQUEST, code::INVALID_REQUEST_BODY),
        ApiError::MissingQuery(_) => (StatusCode::BAD_REQUEST, code::MISSING_QUERY),
        ApiError::NotAllowed(_) => (StatusCode::BAD_REQUEST, code::RUNTIME_ERROR),
        ApiError::UploadForm(_) => (StatusCode::BAD_REQUEST, code::INVALID_FILE),
        ApiError::UploadMetadata(_) => (StatusCode::BAD_REQUEST, code::INVALID_FILE_METADATA),
        ApiError::UploadContent(_) => (StatusCode::BAD_REQUEST, code::INVALID_FILE_CONTENT),
        ApiError::ReadOnly(_) => (StatusCode::FORBIDDEN, code::RUNTIME_ERROR),
        ApiError::FileNotFound(_) => (StatusCode::NOT_FOUND, code::FILE_NOT_FOUND),
        ApiError::NoCommand(_) => (StatusCode::NOT_FOUND, code::INVALID_REQUEST_BODY),
        ApiError::NoSession(_) => (StatusCode::NOT_FOUND, code::CONTEXT_NOT_FOUND),
        ApiError::NoIsolatedSession(_) => (StatusCode::NOT_FOUND, code::SESSION_NOT_FOUND),
        ApiError::AlreadyConnected(_) => (StatusCode::CONFLICT, code::ALREADY_CONNECTED),
        ApiError::NothingToView(_) => {
            let code = code::VIEWER_REQUIRES_RUNNING_SESSION;
            (StatusCode::CONFLICT, code)
        }
        ApiError::RunsActive => (StatusCode::CONFLICT, code::RUNTIME_ERROR),
        ApiError::AlreadyInitialized(_) => (StatusCode::CONFLICT, code::ALREADY_INITIALIZED),
        ApiError::NoLongerKept(_) => (StatusCode::GONE, code::INVALID_REQUEST_BODY),
        ApiError::Range(_) => (StatusCode::RANGE_NOT_SATISFIABLE, code::UNKNOWN),
        ApiError::TooManySessions(_) => {
            let code = code::TOO_MANY_SESSIONS;
            (StatusCode::TOO_MANY_REQUESTS, code)
        }
        ApiError::KeyReused => {
            let code = code::INVALID_REQUEST_BODY;
            (StatusCode::UNPROCESSABLE_ENTITY, code)
        }
        ApiError::System(_) => (StatusCode::INTERNAL_SERVER_ERROR, code::RUNTIME_ERROR),
        ApiError::NotSupported(_) => (StatusCode::SERVICE_UNAVAILABLE, code::NOT_SUPPORTED),
        ApiError::NotImplemented(_) => (StatusCode::NOT_IMPLEMENTED, code::NOT_SUPPORTED),
        ApiError::Unavailable(_) | ApiError::Busy(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, code::SERVICE_UNAVAILABLE)
        }
        ApiError::NoProgram(_) => (StatusCode::BAD_GATEWAY, code::RUNTIME_ERROR),
        ApiError::IdentityUnavailable(_) => {
            let code = code::FILESYSTEM_IDENTITY_UNAVAILABLE;
            (StatusCode::SERVICE_UNAVAILABLE, code)
        }
    }
}

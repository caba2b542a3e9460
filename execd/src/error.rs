//! Errors of requests. [`crate::http`] maps them to responses.

use std::{fmt::Display, io, path::Path};

use rustix::io::Errno;

/// Failed request. The text of each variant is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The request breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// A query parameter is missing.
    #[error("missing query parameter '{0}'")]
    MissingQuery(String),
    /// The idempotency key of a run was used before, for another request.
    #[error("Idempotency-Key was used for another request")]
    KeyReused,
    /// An isolated session with these settings is not allowed.
    #[error("{0}")]
    NotAllowed(String),
    /// The overlay to change is read-only.
    #[error("workspace is read-only: {0}")]
    ReadOnly(String),
    /// The range of a download is malformed, or begins past the end.
    #[error("{0}")]
    Range(&'static str),
    /// The upload is not a form, or one of its parts is misplaced.
    #[error("{0}")]
    UploadForm(String),
    /// Metadata of an uploaded file is missing or invalid.
    #[error("{0}")]
    UploadMetadata(String),
    /// The upload has metadata without a file.
    #[error("{0}")]
    UploadContent(String),
    /// File not found.
    #[error("file not found. {0}: no such file or directory")]
    FileNotFound(String),
    /// Command not found.
    #[error("command not found: {0}")]
    NoCommand(String),
    /// The output of a command has been removed.
    #[error("{0}")]
    NoLongerKept(String),
    /// Shell or terminal session not found.
    #[error("{0}")]
    NoSession(String),
    /// Isolated session or run not found.
    #[error("{0}")]
    NoIsolatedSession(String),
    /// The session limit is reached, and all sessions are in use.
    #[error("{0}")]
    TooManySessions(String),
    /// Another client writes to the terminal session.
    #[error("another client is already connected to pty session {0}")]
    AlreadyConnected(String),
    /// No process runs in the terminal session to view.
    #[error("pty session {0} is not running")]
    NothingToView(String),
    /// Background runs use the files to change.
    #[error("background runs are active: their files would be lost")]
    RunsActive,
    /// An order was accepted before, or has failed.
    #[error("{0}")]
    AlreadyInitialized(String),
    /// The system does not support the operation.
    #[error("{0}")]
    NotSupported(String),
    /// A feature of the contract that this release lacks.
    #[error("{0}")]
    NotImplemented(&'static str),
    /// Temporarily unavailable.
    #[error("{0}")]
    Unavailable(String),
    /// All places for such requests are taken. A repetition may succeed.
    #[error("{0}")]
    Busy(String),
    /// No program of the sandbox accepts the connection.
    #[error("{0}")]
    NoProgram(String),
    /// No worker can serve files with this identity.
    #[error("filesystem identity unavailable: {0}")]
    IdentityUnavailable(String),
    /// System error.
    #[error("{0}")]
    System(String),
}

impl ApiError {
    /// Creates the error for a broken rule.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Creates the error for a missing query parameter.
    #[must_use]
    pub fn missing_query(name: &str) -> Self {
        Self::MissingQuery(name.to_owned())
    }

    /// Creates a system error.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::System(message.into())
    }

    /// Creates the error for a file operation (contract: execd §10, "file error").
    #[must_use]
    pub fn file(path: &Path, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::file_not_found(path.display())
        } else {
            let why = client_message(error);
            Self::runtime(format!("error accessing file: {}: {why}", path.display()))
        }
    }

    /// Creates the error for a missing file.
    #[must_use]
    pub fn file_not_found(path: impl Display) -> Self {
        Self::FileNotFound(path.to_string())
    }

    /// Creates the error for a missing shell or terminal session.
    pub fn no_session(message: impl Into<String>) -> Self {
        Self::NoSession(message.into())
    }
}

/// Text of a file error for the client. Official clients recognise a refusal by the word
/// `permission` (contract: execd A3.3), which some of the system's texts lack.
#[must_use]
pub fn client_message(error: &io::Error) -> String {
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
    fn every_refusal_contains_the_word_permission() {
        let system = |errno: Errno| client_message(&io::Error::from(errno));
        assert_eq!(system(Errno::ACCESS), "permission denied");
        assert!(system(Errno::PERM).starts_with("permission denied: "));
        let wrapped = io::Error::new(io::ErrorKind::PermissionDenied, "changing the owner");
        assert_eq!(
            client_message(&wrapped),
            "permission denied: changing the owner"
        );
        assert!(!system(Errno::ROFS).contains("permission"));
    }
}

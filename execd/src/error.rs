//! What a request can fail with. What a client is answered then is in [`crate::http`].

use std::{fmt::Display, io, path::Path};

use rustix::io::Errno;

/// A failed request. The text of each is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The request breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// A query parameter is absent.
    #[error("missing query parameter '{0}'")]
    MissingQuery(String),
    /// The key of a run was used before, for another request.
    #[error("Idempotency-Key was used for another request")]
    KeyReused,
    /// An isolated session that cannot be made as it is wanted.
    #[error("{0}")]
    NotAllowed(String),
    /// An overlay of an isolated session shall be changed and must not be.
    #[error("workspace is read-only: {0}")]
    ReadOnly(String),
    /// The range of a download is malformed, or begins beyond the end.
    #[error("{0}")]
    Range(&'static str),
    /// An upload is no form, or a part of it is out of place.
    #[error("{0}")]
    UploadForm(String),
    /// The metadata of an uploaded file are missing or wrong.
    #[error("{0}")]
    UploadMetadata(String),
    /// An upload has metadata and no file.
    #[error("{0}")]
    UploadContent(String),
    /// There is no such file.
    #[error("file not found. {0}: no such file or directory")]
    FileNotFound(String),
    /// There is no such command.
    #[error("command not found: {0}")]
    NoCommand(String),
    /// What a command left is no longer kept.
    #[error("{0}")]
    NoLongerKept(String),
    /// There is no such shell or terminal session.
    #[error("{0}")]
    NoSession(String),
    /// There is no such isolated session, or no such run in it.
    #[error("{0}")]
    NoIsolatedSession(String),
    /// As many sessions as there may be are in use.
    #[error("{0}")]
    TooManySessions(String),
    /// Another client writes to the terminal session.
    #[error("another client is already connected to pty session {0}")]
    AlreadyConnected(String),
    /// A viewer wants to see a terminal session in which nothing runs.
    #[error("pty session {0} is not running")]
    NothingToView(String),
    /// Background runs use what shall be changed.
    #[error("background runs are active: their files would be lost")]
    RunsActive,
    /// The one order was given already, or could not be carried out.
    #[error("{0}")]
    AlreadyInitialized(String),
    /// This system lacks what it takes.
    #[error("{0}")]
    NotSupported(String),
    /// What may be there another time.
    #[error("{0}")]
    Unavailable(String),
    /// No process serves files as this user and group.
    #[error("filesystem identity unavailable: {0}")]
    IdentityUnavailable(String),
    /// The system refused.
    #[error("{0}")]
    System(String),
}

impl ApiError {
    /// The request breaks a rule.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// A query parameter is absent.
    #[must_use]
    pub fn missing_query(name: &str) -> Self {
        Self::MissingQuery(name.to_owned())
    }

    /// The system refused.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::System(message.into())
    }

    /// What the system said about a file (contract: execd §10, "file error").
    #[must_use]
    pub fn file(path: &Path, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::file_not_found(path.display())
        } else {
            let why = client_message(error);
            Self::runtime(format!("error accessing file: {}: {why}", path.display()))
        }
    }

    /// There is no such file.
    #[must_use]
    pub fn file_not_found(path: impl Display) -> Self {
        Self::FileNotFound(path.to_string())
    }

    /// There is no such shell or terminal session.
    pub fn no_session(message: impl Into<String>) -> Self {
        Self::NoSession(message.into())
    }
}

/// What the system said about a file. Official clients know a refusal by the word `permission`
/// (contract: execd A3.3), which not all of the system's own texts have.
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
    fn every_refusal_speaks_of_permission() {
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

//! What back ends do in a sandbox for one request: over its execd, or over the sidecar that enforces its
//! network policy. They reach both within the scope of the caller, and note in the act of the request
//! how it ended.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use osb_app::error::ConsoleError;
use osb_client::{EgressClient, ExecdClient};
use osb_protocol::SandboxId;
use serde_json::Value;

use super::{
    super::audited::Noted,
    ConsoleState,
    execd::{ExecdError, Execds},
    for_request::ForRequest,
    session::Admitted,
};
use crate::{identity::Scope, sandbox};

/// Code in the audit trail of what a page wants and what makes no sense.
const INVALID_REQUEST: &str = "INVALID_REQUEST";

/// The daemons of sandboxes, for one request.
pub(super) struct Daemons {
    execds: Execds,
    scope: Scope,
    /// The act of the request.
    noted: Noted,
}

impl ForRequest for Daemons {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        Self {
            execds: state.execds.clone(),
            scope: admitted.principal().scope.clone(),
            noted,
        }
    }
}

impl Daemons {
    /// A client of the execd of a sandbox.
    pub(super) fn execd(&self, id: &SandboxId) -> Result<ExecdClient, ExecdError> {
        self.execds.client(id, &self.scope)
    }

    /// A client of the sidecar of a sandbox.
    pub(super) fn sidecar(&self, id: &SandboxId) -> Result<EgressClient, ExecdError> {
        self.execds.sidecar(id, &self.scope)
    }

    /// Names a sandbox as the object of the act.
    pub(super) fn set_object(&self, id: &SandboxId) {
        let tenant = self.execds.tenant(id, &self.scope).flatten();
        self.noted.set_object(id.as_str(), tenant.as_deref());
    }

    /// Notes a fact about the act.
    pub(super) fn note(&self, name: &str, value: impl Into<Value>) {
        self.noted.note(name, value);
    }

    /// Notes in the act how it ended: forms are answered with a redirect in any case.
    pub(super) fn settle<T>(&self, result: &Result<T, DaemonFailure>) {
        let failure = result.as_ref().err().map(|failure| match failure {
            DaemonFailure::Daemon(error) => self.execds.answer_to(error),
            DaemonFailure::Words(_) => (StatusCode::UNPROCESSABLE_ENTITY, INVALID_REQUEST),
        });
        self.noted.settle(failure);
    }
}

/// Why something could not be done in a sandbox.
#[derive(Debug)]
pub(super) enum DaemonFailure {
    /// There is no daemon, or it refuses.
    Daemon(ExecdError),
    /// What the page wants makes no sense.
    Words(String),
}

impl<E: Into<ExecdError>> From<E> for DaemonFailure {
    fn from(error: E) -> Self {
        Self::Daemon(error.into())
    }
}

impl DaemonFailure {
    /// As a page shows it. `explain` has the words for what a daemon refuses.
    pub(super) fn shown(self, explain: impl FnOnce(ExecdError) -> String) -> ConsoleError {
        let message = match self {
            Self::Words(message) => message,
            Self::Daemon(ExecdError::Domain(sandbox::Error::NotFound(_))) => {
                return ConsoleError::NotFound;
            }
            Self::Daemon(error) => explain(error),
        };
        ConsoleError::Refused { message }
    }
}

impl IntoResponse for DaemonFailure {
    fn into_response(self) -> Response {
        match self {
            Self::Words(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
            Self::Daemon(ExecdError::Domain(error)) => {
                (StatusCode::NOT_FOUND, error.to_string()).into_response()
            }
            Self::Daemon(error) => {
                let status = match error.status() {
                    Some(status) if status.is_client_error() => status,
                    _ => StatusCode::BAD_GATEWAY,
                };
                (status, error.to_string()).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: StatusCode) -> DaemonFailure {
        let refusal = osb_client::ApiError {
            status,
            code: "RUNTIME_ERROR".to_owned(),
            message: "no space left".to_owned(),
            request_id: None,
        };
        osb_client::Error::Api(refusal).into()
    }

    fn gone() -> DaemonFailure {
        sandbox::Error::NotFound("a".into()).into()
    }

    #[test]
    fn a_page_learns_that_a_sandbox_is_gone_and_otherwise_why_something_failed() {
        let shown = |failure: DaemonFailure| failure.shown(|error| format!("execd: {error}"));
        assert_eq!(shown(gone()), ConsoleError::NotFound);
        for (failure, message) in [
            (DaemonFailure::Words("path: no".to_owned()), "path: no"),
            (refusal(StatusCode::CONFLICT), "execd: no space left"),
        ] {
            let message = message.to_owned();
            assert_eq!(shown(failure), ConsoleError::Refused { message });
        }
    }

    #[test]
    fn a_download_has_the_status_of_its_failure() {
        let status = |failure: DaemonFailure| failure.into_response().status();
        let words = DaemonFailure::Words("path: no".to_owned());
        assert_eq!(status(words), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(status(gone()), StatusCode::NOT_FOUND);
        let forbidden = StatusCode::FORBIDDEN;
        assert_eq!(status(refusal(forbidden)), forbidden);
        let failed = status(refusal(StatusCode::INTERNAL_SERVER_ERROR));
        assert_eq!(failed, StatusCode::BAD_GATEWAY);
    }
}

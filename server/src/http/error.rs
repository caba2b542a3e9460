//! The one place that turns errors into HTTP answers (contract: lifecycle §1.3, §13, §A12).

use std::{num::NonZeroU32, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, RETRY_AFTER},
};
use osb_protocol::{ErrorBody, Feature, FieldError, error::code};
use osb_runtime::{Codes, Fault, RuntimeError, Vocabulary};
use osb_service::ErrorChain;
use osb_store::StoreError;

use super::error_codes;
use crate::sandbox::{Error, quota::QuotaError};

/// Seconds after which a client may try again when the runtime is away.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// An error answer.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    body: ErrorBody,
    /// Set when the code is the runtime's.
    fault: Option<Fault>,
    /// For the log, not for clients.
    cause: Option<String>,
    /// Seconds after which a client may try again, if not after the usual time.
    retry: Option<NonZeroU32>,
    /// Whether the log has no line for it: clients without a key can cause many such answers.
    unlogged: bool,
}

/// Left on error answers of ours for the log: why, or nothing when the message says it all.
#[derive(Clone, Debug)]
pub(super) struct Cause(pub(super) String);

/// Extension of error answers: their code, as runtimes that run containers word it.
#[derive(Clone, Debug)]
struct ErrorCode(String);

impl ApiError {
    /// An answer with status, code and message.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            body: ErrorBody::new(code, message),
            fault: None,
            cause: None,
            retry: None,
            unlogged: false,
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

    /// Keeps the answer out of the log.
    #[must_use]
    pub(super) fn unlogged(mut self) -> Self {
        self.unlogged = true;
        self
    }

    /// Has the client of an exhausted pool wait for as long as creates wait for a sandbox of a pool.
    #[must_use]
    pub(super) fn after_pool(mut self, acquisition: Duration) -> Self {
        if self.body.code == code::POOL_EXHAUSTED {
            let seconds = acquisition.as_secs() + u64::from(acquisition.subsec_nanos() > 0);
            self.retry = NonZeroU32::new(u32::try_from(seconds).unwrap_or(u32::MAX).max(1));
        }
        self
    }

    /// The message, for a WebSocket close reason.
    pub(super) fn message(&self) -> &str {
        &self.body.message
    }

    /// The code, as runtimes that run containers word it.
    pub(super) fn code(&self) -> &str {
        &self.body.code
    }

    /// The status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Answers in a form of its own, with the status, the headers and the log line of this error.
    pub(super) fn in_form(self, form: impl FnOnce(&Self) -> Response) -> Response {
        let mut response = form(&self);
        *response.status_mut() = self.status;
        let code = ErrorCode(self.body.code);
        response.extensions_mut().insert(code);
        let later = [
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        if later.contains(&self.status) {
            let retry = self.retry.map_or(RETRY_SECONDS, |it| it.get().into());
            response.headers_mut().insert(RETRY_AFTER, retry);
        }
        // Marks the answer as ours, unlike one that a sandbox gave.
        if !self.unlogged {
            response
                .extensions_mut()
                .insert(Cause(self.cause.unwrap_or_default()));
        }
        response
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let (status, code) = status_and_code(&error);
        let text = code.text(&Vocabulary::CONTAINERS.codes);
        let mut answer = Self::new(status, text, error.explained());
        if let Code::Runtime(fault) = code {
            answer.fault = Some(fault);
        }
        if status.is_server_error() {
            answer = answer.because(&error);
        }
        answer.body.detail = detail(&error);
        answer
    }
}

/// The fields at fault, where the answer lists them.
fn detail(error: &Error) -> Vec<FieldError> {
    match error {
        Error::Invalid(fields) => fields.clone(),
        // A volume that cannot be provided may be the request's fault, such as the name of a claim.
        Error::Broken(_) | Error::Runtime(RuntimeError::Volume { .. }) => error.fields(),
        Error::Joined(first) => detail(first),
        _ => Vec::new(),
    }
}

/// The code of an answer: the contract's own, or one that the runtime words.
#[derive(Clone, Copy, Debug)]
enum Code {
    Fixed(&'static str),
    Runtime(Fault),
}

impl Code {
    fn text(self, codes: &Codes) -> &'static str {
        match self {
            Self::Fixed(code) => code,
            Self::Runtime(fault) => codes.of(fault),
        }
    }
}

impl From<&'static str> for Code {
    fn from(code: &'static str) -> Self {
        Self::Fixed(code)
    }
}

impl From<Fault> for Code {
    fn from(fault: Fault) -> Self {
        Self::Runtime(fault)
    }
}

fn status_and_code(error: &Error) -> (StatusCode, Code) {
    use StatusCode as S;
    let (status, code) = match error {
        Error::Runtime(error) => return runtime(error),
        Error::Joined(error) => return status_and_code(error),
        Error::Broken(errors) => match errors.first() {
            Some(first) => return status_and_code(first),
            None => (S::BAD_REQUEST, code::INVALID_PARAMETER),
        },
        Error::NotFound(_) => return (S::NOT_FOUND, Fault::NotFound.into()),
        Error::WrongState { .. } | Error::Paused(_) => {
            return (S::CONFLICT, Fault::WrongState.into());
        }
        Error::Unreachable { .. } | Error::NotRunning { .. } => {
            return (S::INTERNAL_SERVER_ERROR, Fault::Endpoint.into());
        }
        Error::Invalid(_) => (S::UNPROCESSABLE_ENTITY, code::INVALID_PARAMETER),
        Error::Rule { .. } | Error::Entry { .. } | Error::Resources(_) => {
            (S::BAD_REQUEST, code::INVALID_PARAMETER)
        }
        Error::Quota(QuotaError::Exceeded { .. } | QuotaError::DiskFull { .. }) => {
            (S::FORBIDDEN, code::QUOTA_EXCEEDED)
        }
        Error::Snapshot(error) => error_codes::snapshot(error),
        Error::Pool(error) => error_codes::pool(error),
        Error::Template(error) => error_codes::template(error),
        Error::Quota(QuotaError::Unlimited { .. }) => (S::BAD_REQUEST, code::INVALID_PARAMETER),
        Error::Volume { fault, .. } => (S::BAD_REQUEST, error_codes::volume(*fault)),
        Error::Label(_) => (S::BAD_REQUEST, code::INVALID_METADATA_LABEL),
        Error::ReservedLabel(_) => (S::BAD_REQUEST, code::RESERVED_METADATA_LABEL),
        Error::Entrypoint(_) => (S::BAD_REQUEST, code::INVALID_ENTRYPOINT),
        Error::Unsupported { feature, .. } => unsupported(*feature),
        Error::ExpiryPassed => (S::BAD_REQUEST, code::INVALID_EXPIRATION),
        Error::NoSuchCommand(_) => (S::CONFLICT, code::CONFLICT),
        Error::NoNetworkPolicy(_) => (S::BAD_GATEWAY, code::BACKEND_CONNECTION_FAILED),
        Error::NoExpiry(_) | Error::Shortens { .. } => (S::CONFLICT, code::INVALID_EXPIRATION),
        Error::Port => (S::BAD_REQUEST, code::INVALID_PORT),
        // The one endpoint error that SDKs poll, on every runtime (contract: clients rule 20).
        Error::NoAddressYet(_) => (S::NOT_FOUND, code::ADDRESS_NOT_AVAILABLE),
        Error::RuntimeDown { .. } => (S::SERVICE_UNAVAILABLE, code::RUNTIME_UNAVAILABLE),
        Error::Store(StoreError::Unavailable { .. }) => {
            (S::SERVICE_UNAVAILABLE, code::STORE_UNAVAILABLE)
        }
        Error::Store(_) => (S::INTERNAL_SERVER_ERROR, code::UNKNOWN_ERROR),
        Error::ShuttingDown => (S::SERVICE_UNAVAILABLE, code::OVERLOADED),
    };
    (status, code.into())
}

/// What a request gets that asks for a feature which the runtime lacks. Routes of such a feature
/// answer 501 ([`super::lifecycle`]).
fn unsupported(feature: Feature) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match feature {
        // Without snapshots none can be found.
        Feature::Snapshots => (S::NOT_FOUND, code::SNAPSHOT_NOT_FOUND),
        Feature::Pools => (S::BAD_REQUEST, code::UNSUPPORTED_POOL_REF),
        Feature::Pause | Feature::SignedEndpoints | Feature::Diagnostics => {
            (S::BAD_REQUEST, code::API_NOT_SUPPORTED)
        }
        // Without templates nothing says what to run (contract: lifecycle §5.1).
        Feature::Templates => (S::BAD_REQUEST, code::INVALID_ENTRYPOINT),
        Feature::NetworkPolicy
        | Feature::Volumes
        | Feature::LifecycleHooks
        | Feature::SecureAccess
        | Feature::Windows => (S::BAD_REQUEST, code::INVALID_PARAMETER),
    }
}

fn runtime(error: &RuntimeError) -> (StatusCode, Code) {
    use StatusCode as S;
    let internal = |fault: Fault| (S::INTERNAL_SERVER_ERROR, fault.into());
    match error {
        RuntimeError::Unavailable { .. } => {
            (S::SERVICE_UNAVAILABLE, code::RUNTIME_UNAVAILABLE.into())
        }
        RuntimeError::Volume { failure, .. } => {
            let (status, code) = error_codes::volume_failure(*failure);
            (status, code.into())
        }
        RuntimeError::ImagePull { .. } => internal(Fault::ImagePull),
        RuntimeError::Refused { .. } | RuntimeError::NoNetwork(_) => {
            (S::BAD_REQUEST, code::INVALID_PARAMETER.into())
        }
        RuntimeError::NoPort { .. }
        | RuntimeError::Start { .. }
        | RuntimeError::ExecdSilent { .. } => internal(Fault::Start),
        RuntimeError::Execd { .. } => internal(Fault::ExecdDistribution),
        RuntimeError::Remove { .. } => internal(Fault::Delete),
        RuntimeError::NotRunning(_) => (S::CONFLICT, Fault::WrongState.into()),
        RuntimeError::NotPaused(_) => (S::CONFLICT, Fault::NotPaused.into()),
        RuntimeError::Pause { .. } => internal(Fault::Pause),
        RuntimeError::Resume { .. } => internal(Fault::Resume),
        RuntimeError::Unsupported { feature, .. } => {
            let (status, code) = unsupported(*feature);
            (status, code.into())
        }
        // The server knows the snapshot, or it would not have asked for it.
        RuntimeError::NoSnapshot(_) => (S::CONFLICT, code::SNAPSHOT_INVALID_RESTORE_CONFIG.into()),
        RuntimeError::Uncapturable { .. } => {
            (S::CONFLICT, code::SNAPSHOT_UNSUPPORTED_RUNTIME.into())
        }
        RuntimeError::SnapshotInUse { .. } => (S::CONFLICT, code::SNAPSHOT_DELETE_CONFLICT.into()),
        // Like one that was never made (contract: lifecycle §A3).
        RuntimeError::NoTemplate(_) => (S::NOT_FOUND, code::TEMPLATE_NOT_FOUND.into()),
        RuntimeError::TemplateInUse { .. } => (S::CONFLICT, code::TEMPLATE_CONFLICT.into()),
        // No request waits for a capture or a build, so none gets these.
        RuntimeError::Capture { .. }
        | RuntimeError::CaptureTimedOut { .. }
        | RuntimeError::Build { .. } => (S::INTERNAL_SERVER_ERROR, code::UNKNOWN_ERROR.into()),
        RuntimeError::NotFound(_) => (S::NOT_FOUND, Fault::NotFound.into()),
        RuntimeError::Other { .. } => internal(Fault::Query),
    }
}

/// Puts the runtime's own codes into error answers. Answers are made with the codes of runtimes
/// that run containers, because no error knows where it will be answered.
pub(super) fn use_codes(codes: &Codes, response: Response) -> Response {
    let Some(RuntimeFault { fault, body }) = response.extensions().get::<RuntimeFault>() else {
        return response;
    };
    let code = codes.of(*fault);
    if body.code == code {
        return response;
    }
    let mut body = body.clone();
    code.clone_into(&mut body.code);
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let (json, body) = Json(body).into_response().into_parts();
    parts.headers.extend(json.headers);
    Response::from_parts(parts, body)
}

/// The code of an error answer, in the runtime's own words.
pub(super) fn code_of<'a>(codes: &Codes, response: &'a Response) -> Option<&'a str> {
    let extensions = response.extensions();
    if let Some(RuntimeFault { fault, .. }) = extensions.get() {
        return Some(codes.of(*fault));
    }
    extensions.get().map(|ErrorCode(code)| code.as_str())
}

/// Status and code of the answer that an error gets.
pub(super) fn answer_to(error: &Error, codes: &Codes) -> (StatusCode, &'static str) {
    let (status, code) = status_and_code(error);
    (status, code.text(codes))
}

/// Extension of responses whose code depends on the runtime.
#[derive(Clone, Debug)]
struct RuntimeFault {
    fault: Fault,
    body: ErrorBody,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let runtime_fault = self.fault.map(|fault| RuntimeFault {
            fault,
            body: self.body.clone(),
        });
        let mut response = self.in_form(|error| Json(&error.body).into_response());
        if let Some(runtime_fault) = runtime_fault {
            response.extensions_mut().insert(runtime_fault);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use osb_runtime::VolumeFailure;

    use super::*;
    use crate::sandbox::VolumeFault;

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
            (
                Error::Unsupported {
                    feature: Feature::Pools,
                    runtime: docker,
                },
                400,
                "SANDBOX::UNSUPPORTED_POOL_REF",
            ),
            (
                Error::Broken(vec![
                    Error::Entrypoint("is required"),
                    Error::rule("a", "b"),
                ]),
                400,
                "DOCKER::INVALID_ENTRYPOINT",
            ),
            (
                Error::Unsupported {
                    feature: Feature::Templates,
                    runtime: docker,
                },
                400,
                "DOCKER::INVALID_ENTRYPOINT",
            ),
            (
                Error::Volume {
                    index: 0,
                    member: &["subPath"],
                    fault: VolumeFault::SubPath,
                    rule: "b",
                },
                400,
                "VOLUME::INVALID_SUB_PATH",
            ),
            (
                RuntimeError::Volume {
                    index: 0,
                    member: "subPath",
                    failure: VolumeFailure::SubPath,
                    reason: words(),
                }
                .into(),
                400,
                "VOLUME::INVALID_SUB_PATH",
            ),
            (
                RuntimeError::Volume {
                    index: 0,
                    member: "ossfs",
                    failure: VolumeFailure::OssfsMount,
                    reason: words(),
                }
                .into(),
                500,
                "VOLUME::OSSFS_MOUNT_FAILED",
            ),
            (Error::NotFound(id()), 404, "DOCKER::SANDBOX_NOT_FOUND"),
            (Error::ExpiryPassed, 400, "DOCKER::INVALID_EXPIRATION"),
            (Error::NoSuchCommand(id()), 409, "GENERAL::CONFLICT"),
            (
                Error::NoNetworkPolicy(id()),
                502,
                "BACKEND_CONNECTION_FAILED",
            ),
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
                Error::Store(StoreError::Unavailable {
                    op: "write",
                    problem: osb_store::Problem::Full,
                    source: None,
                }),
                503,
                "GENERAL::STORE_UNAVAILABLE",
            ),
            (
                RuntimeError::ImagePull {
                    image: words(),
                    fault: osb_runtime::PullFault::Other,
                    reason: words(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
            ),
            (
                RuntimeError::Start {
                    id: id(),
                    reason: words().into(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_START_FAILED",
            ),
            (
                RuntimeError::Refused {
                    runtime: docker,
                    reason: words().into(),
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
            (Error::Paused(id()), 409, "DOCKER::SANDBOX_NOT_RUNNING"),
            (
                RuntimeError::NotRunning(id()).into(),
                409,
                "DOCKER::SANDBOX_NOT_RUNNING",
            ),
            (
                RuntimeError::NotPaused(id()).into(),
                409,
                "DOCKER::SANDBOX_NOT_PAUSED",
            ),
            (
                RuntimeError::Pause {
                    id: id(),
                    reason: words(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_PAUSE_FAILED",
            ),
            (
                RuntimeError::Resume {
                    id: id(),
                    reason: words(),
                }
                .into(),
                500,
                "DOCKER::SANDBOX_RESUME_FAILED",
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

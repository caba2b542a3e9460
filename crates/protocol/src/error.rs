//! Error bodies and codes (contract: lifecycle §1.3, §13; execd §2.2).

use serde::{Deserialize, Serialize};

/// Body of every error answer: both members always present, so that each official SDK can parse it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// Stable code a program can act on, such as `DOCKER::SANDBOX_NOT_FOUND`.
    pub code: String,
    /// Text for people.
    pub message: String,
    /// Each field that failed: on 422, and on 400 for a request to create.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detail: Vec<FieldError>,
}

impl ErrorBody {
    /// A body without field errors.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            detail: Vec::new(),
        }
    }
}

/// One rule that a request broke, in the list form of the contract's 422 answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Machine name of the rule, such as `greater_than_equal`, `missing` or `string_type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where: `["body", "image", "uri"]`; list positions are numbers.
    pub loc: Vec<Loc>,
    /// The rule in words.
    pub msg: String,
}

impl FieldError {
    /// An error about a member of the request body.
    pub fn body(
        kind: &str,
        path: impl IntoIterator<Item = impl Into<Loc>>,
        msg: impl Into<String>,
    ) -> Self {
        Self::at("body", kind, path, msg)
    }

    /// An error about a query parameter.
    pub fn query(kind: &str, name: &str, msg: impl Into<String>) -> Self {
        Self::at("query", kind, [name], msg)
    }

    /// An error about a header.
    pub fn header(kind: &str, name: &str, msg: impl Into<String>) -> Self {
        Self::at("header", kind, [name], msg)
    }

    /// An error about a path parameter.
    pub fn path(kind: &str, name: &str, msg: impl Into<String>) -> Self {
        Self::at("path", kind, [name], msg)
    }

    fn at(
        place: &str,
        kind: &str,
        path: impl IntoIterator<Item = impl Into<Loc>>,
        msg: impl Into<String>,
    ) -> Self {
        let loc = std::iter::once(Loc::from(place)).chain(path.into_iter().map(Into::into));
        Self {
            kind: kind.to_owned(),
            loc: loc.collect(),
            msg: msg.into(),
        }
    }

    /// The place as one dotted name, without the leading `body`: `image.uri`, `entrypoint.0`.
    #[must_use]
    pub fn field(&self) -> String {
        let parts: Vec<String> = self.loc.iter().skip(1).map(ToString::to_string).collect();
        parts.join(".")
    }
}

/// One step of the way to a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Loc {
    /// Position in a list.
    Index(usize),
    /// Member of an object.
    Name(String),
}

impl std::fmt::Display for Loc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => index.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl From<&str> for Loc {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Loc {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<usize> for Loc {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Codes of the lifecycle API (contract: lifecycle §13).
pub mod code {
    #![expect(
        missing_docs,
        reason = "the contract's table explains each; the names say the rest"
    )]
    pub const MISSING_API_KEY: &str = "MISSING_API_KEY";
    pub const INVALID_API_KEY: &str = "INVALID_API_KEY";
    pub const TENANT_PROVIDER_UNAVAILABLE: &str = "TENANT_PROVIDER_UNAVAILABLE";
    pub const FORBIDDEN: &str = "GENERAL::FORBIDDEN";
    pub const CONFLICT: &str = "GENERAL::CONFLICT";
    pub const UNKNOWN_ERROR: &str = "GENERAL::UNKNOWN_ERROR";
    pub const NOT_FOUND: &str = "GENERAL::NOT_FOUND";
    pub const METHOD_NOT_ALLOWED: &str = "GENERAL::METHOD_NOT_ALLOWED";
    pub const OVERLOADED: &str = "GENERAL::OVERLOADED";
    pub const TOO_MANY_REQUESTS: &str = "GENERAL::TOO_MANY_REQUESTS";
    pub const REQUEST_TIMEOUT: &str = "GENERAL::REQUEST_TIMEOUT";
    pub const HOST_NOT_ALLOWED: &str = "GENERAL::HOST_NOT_ALLOWED";
    pub const ORIGIN_NOT_ALLOWED: &str = "GENERAL::ORIGIN_NOT_ALLOWED";
    pub const RUNTIME_UNAVAILABLE: &str = "GENERAL::RUNTIME_UNAVAILABLE";
    pub const STORE_UNAVAILABLE: &str = "GENERAL::STORE_UNAVAILABLE";
    pub const BODY_TOO_LARGE: &str = "GENERAL::BODY_TOO_LARGE";
    pub const INVALID_PARAMETER: &str = "SANDBOX::INVALID_PARAMETER";
    pub const QUOTA_EXCEEDED: &str = "SANDBOX::QUOTA_EXCEEDED";
    pub const INVALID_METADATA_LABEL: &str = "SANDBOX::INVALID_METADATA_LABEL";
    pub const RESERVED_METADATA_LABEL: &str = "INVALID_METADATA_LABEL";
    pub const INVALID_METADATA_FORMAT: &str = "INVALID_METADATA_FORMAT";
    pub const DUPLICATE_VOLUME_NAME: &str = "VOLUME::DUPLICATE_NAME";
    pub const INVALID_SUB_PATH: &str = "VOLUME::INVALID_SUB_PATH";
    pub const INVALID_MOUNT_PATH: &str = "VOLUME::INVALID_MOUNT_PATH";
    pub const INVALID_HOST_PATH: &str = "VOLUME::INVALID_HOST_PATH";
    pub const HOST_PATH_NOT_ALLOWED: &str = "VOLUME::HOST_PATH_NOT_ALLOWED";
    pub const HOST_PATH_CREATE_FAILED: &str = "VOLUME::HOST_PATH_CREATE_FAILED";
    pub const INVALID_PVC_NAME: &str = "VOLUME::INVALID_PVC_NAME";
    pub const PVC_NOT_FOUND: &str = "VOLUME::PVC_NOT_FOUND";
    pub const PVC_INSPECT_FAILED: &str = "VOLUME::PVC_INSPECT_FAILED";
    pub const PVC_SUBPATH_UNSUPPORTED_DRIVER: &str = "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER";
    pub const INVALID_OSSFS_BUCKET: &str = "VOLUME::INVALID_OSSFS_BUCKET";
    pub const INVALID_OSSFS_ENDPOINT: &str = "VOLUME::INVALID_OSSFS_ENDPOINT";
    pub const INVALID_OSSFS_OPTION: &str = "VOLUME::INVALID_OSSFS_OPTION";
    pub const INVALID_OSSFS_CREDENTIALS: &str = "VOLUME::INVALID_OSSFS_CREDENTIALS";
    pub const INVALID_OSSFS_MOUNT_ROOT: &str = "VOLUME::INVALID_OSSFS_MOUNT_ROOT";
    pub const OSSFS_MOUNT_FAILED: &str = "VOLUME::OSSFS_MOUNT_FAILED";
    pub const UNSUPPORTED_POOL_REF: &str = "SANDBOX::UNSUPPORTED_POOL_REF";
    pub const API_NOT_SUPPORTED: &str = "SANDBOX::API_NOT_SUPPORTED";
    pub const BACKEND_CONNECTION_FAILED: &str = "BACKEND_CONNECTION_FAILED";
    pub const BACKEND_RESPONSE_FAILED: &str = "BACKEND_RESPONSE_FAILED";
    pub const BACKEND_TIMEOUT: &str = "BACKEND_TIMEOUT";
    pub const SECURE_ACCESS: &str = "MISSING_OR_INVALID_SECURE_ACCESS";
    pub const INVALID_ENTRYPOINT: &str = "DOCKER::INVALID_ENTRYPOINT";
    pub const INVALID_PORT: &str = "DOCKER::INVALID_PORT";
    pub const INVALID_EXPIRATION: &str = "DOCKER::INVALID_EXPIRATION";
    pub const SANDBOX_NOT_FOUND: &str = "DOCKER::SANDBOX_NOT_FOUND";
    pub const SANDBOX_NOT_RUNNING: &str = "DOCKER::SANDBOX_NOT_RUNNING";
    pub const SANDBOX_NOT_PAUSED: &str = "DOCKER::SANDBOX_NOT_PAUSED";
    pub const PAUSE_FAILED: &str = "DOCKER::SANDBOX_PAUSE_FAILED";
    pub const RESUME_FAILED: &str = "DOCKER::SANDBOX_RESUME_FAILED";
    pub const SANDBOX_QUERY_FAILED: &str = "DOCKER::SANDBOX_QUERY_FAILED";
    pub const IMAGE_PULL_FAILED: &str = "DOCKER::SANDBOX_IMAGE_PULL_FAILED";
    pub const START_FAILED: &str = "DOCKER::SANDBOX_START_FAILED";
    pub const DELETE_FAILED: &str = "DOCKER::SANDBOX_DELETE_FAILED";
    pub const EXECD_DISTRIBUTION_FAILED: &str = "DOCKER::SANDBOX_EXECD_DISTRIBUTION_FAILED";
    pub const ADDRESS_NOT_AVAILABLE: &str = "KUBERNETES::POD_IP_NOT_AVAILABLE";
    pub const ENDPOINT_UNAVAILABLE: &str = "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE";
    pub const SNAPSHOT_NOT_FOUND: &str = "SNAPSHOT::NOT_FOUND";
    pub const SNAPSHOT_NOT_IMPLEMENTED: &str = "SNAPSHOT::NOT_IMPLEMENTED";
    pub const SNAPSHOT_INVALID_SOURCE_STATE: &str = "SNAPSHOT::INVALID_SOURCE_STATE";
    pub const SNAPSHOT_RUNTIME_CREATE_CONFLICT: &str = "SNAPSHOT::RUNTIME_CREATE_CONFLICT";
    pub const SNAPSHOT_INVALID_STATE: &str = "SNAPSHOT::INVALID_STATE";
    pub const SNAPSHOT_DELETE_CONFLICT: &str = "SNAPSHOT::DELETE_CONFLICT";
    pub const SNAPSHOT_NOT_READY: &str = "SNAPSHOT::NOT_READY";
    pub const SNAPSHOT_UNSUPPORTED_RUNTIME: &str = "SNAPSHOT::UNSUPPORTED_RUNTIME";
    pub const SNAPSHOT_INVALID_RESTORE_CONFIG: &str = "SNAPSHOT::INVALID_RESTORE_CONFIG";
    pub const POOL_NOT_FOUND: &str = "KUBERNETES::POOL_NOT_FOUND";
    pub const POOL_ALREADY_EXISTS: &str = "KUBERNETES::POOL_ALREADY_EXISTS";
    pub const POOL_EXHAUSTED: &str = "KUBERNETES::POOL_CAPACITY_EXHAUSTED";
    pub const POOL_NOT_SUPPORTED: &str = "KUBERNETES::POOL_NOT_SUPPORTED";
    pub const TEMPLATE_NOT_SUPPORTED: &str = "FSB::API_NOT_SUPPORTED";
    pub const TEMPLATE_NOT_FOUND: &str = "FSB::TEMPLATE_NOT_FOUND";
    pub const TEMPLATE_CONFLICT: &str = "FSB::TEMPLATE_CONFLICT";
    pub const TEMPLATE_API_ERROR: &str = "FSB::API_ERROR";
    pub const DIAGNOSTICS_NOT_IMPLEMENTED: &str = "DIAGNOSTICS_NOT_IMPLEMENTED";
    pub const DIAGNOSTICS_SCOPE_UNSUPPORTED: &str = "DIAGNOSTICS_SCOPE_UNSUPPORTED";
}

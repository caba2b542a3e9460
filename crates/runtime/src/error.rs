//! Errors of a back end.

use osb_protocol::{Feature, SandboxId};

use crate::PullFault;

/// A boxed source.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a call of a back end failed. The message of a variant may be shown to clients; its source may
/// not, and goes to the log.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The back end does not answer.
    #[error("the {runtime} runtime is unavailable: {reason}")]
    Unavailable {
        /// Name of the back end.
        runtime: &'static str,
        /// Description of the failure.
        reason: String,
    },
    /// The image cannot be pulled.
    #[error("image {image} cannot be pulled: {fault}{reason}")]
    ImagePull {
        /// Requested reference.
        image: String,
        /// Kind of failure.
        fault: PullFault,
        /// Message of the registry or the engine.
        reason: String,
    },
    /// The engine rejects the request.
    #[error("the {runtime} runtime refuses the sandbox: {reason}")]
    Refused {
        /// Name of the back end.
        runtime: &'static str,
        /// Message of the engine.
        reason: String,
    },
    /// A configured network does not exist.
    #[error("network {0} does not exist")]
    NoNetwork(String),
    /// No free port was found in the configured range.
    #[error("no free port in {min}-{max} on {host}")]
    NoPort {
        /// Address that ports are published on.
        host: String,
        /// First port of the range.
        min: u16,
        /// Last port of the range.
        max: u16,
    },
    /// execd cannot be provided to sandboxes.
    #[error("execd cannot be provided to sandboxes: {reason}")]
    Execd {
        /// Description of the failure.
        reason: String,
        /// Cause, for the log.
        #[source]
        source: Option<Cause>,
    },
    /// The container cannot be created or started.
    #[error("sandbox {id} cannot be started: {reason}")]
    Start {
        /// The sandbox.
        id: SandboxId,
        /// Message of the engine.
        reason: String,
    },
    /// The container cannot be removed.
    #[error("sandbox {id} cannot be removed: {reason}")]
    Remove {
        /// The sandbox.
        id: SandboxId,
        /// Message of the engine.
        reason: String,
    },
    /// The sandbox does not run, so it cannot be paused.
    #[error("sandbox {0} is not running, so it cannot be paused")]
    NotRunning(SandboxId),
    /// The sandbox is not paused, so it cannot be resumed.
    #[error("sandbox {0} is not paused, so it cannot be resumed")]
    NotPaused(SandboxId),
    /// The sandbox cannot be paused.
    #[error("sandbox {id} cannot be paused: {reason}")]
    Pause {
        /// The sandbox.
        id: SandboxId,
        /// Message of the engine, or the container that is missing.
        reason: String,
    },
    /// The sandbox cannot be resumed.
    #[error("sandbox {id} cannot be resumed: {reason}")]
    Resume {
        /// The sandbox.
        id: SandboxId,
        /// Message of the engine, or the container that is missing.
        reason: String,
    },
    /// The back end does not have the feature.
    #[error("{feature} are not available on the {runtime} runtime")]
    Unsupported {
        /// Requested feature.
        feature: Feature,
        /// Name of the back end.
        runtime: &'static str,
    },
    /// The snapshot does not exist.
    #[error("snapshot {0} not found")]
    NoSnapshot(String),
    /// The pool does not exist.
    #[error("pool {0} not found")]
    NoPool(String),
    /// No sandbox is ready in the pool.
    #[error("pool {0} has no sandbox ready")]
    PoolEmpty(String),
    /// The sandbox does not exist.
    #[error("sandbox {0} does not exist")]
    NotFound(SandboxId),
    /// Any other failure.
    #[error("the {runtime} runtime cannot {op}: {reason}")]
    Other {
        /// Name of the back end.
        runtime: &'static str,
        /// The operation, as a verb with its object.
        op: &'static str,
        /// Description of the failure.
        reason: String,
    },
}

impl RuntimeError {
    /// Whether the same call may succeed later without a change by the client or the operator.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. }
            | Self::NoPort { .. }
            | Self::Remove { .. }
            | Self::Pause { .. }
            | Self::Resume { .. }
            | Self::PoolEmpty(_)
            | Self::Other { .. } => true,
            Self::ImagePull { .. }
            | Self::Refused { .. }
            | Self::NoNetwork(_)
            | Self::Execd { .. }
            | Self::Start { .. }
            | Self::Unsupported { .. }
            | Self::NoSnapshot(_)
            | Self::NoPool(_)
            | Self::NotRunning(_)
            | Self::NotPaused(_)
            | Self::NotFound(_) => false,
        }
    }
}

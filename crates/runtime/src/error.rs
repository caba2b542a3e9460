//! What can go wrong with a back end, in words a domain can act on.

use osb_protocol::{Feature, SandboxId};

/// A boxed cause.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a back end did not do what it was asked. The text of a variant may be shown to clients; the
/// source may not, it goes to the log.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The back end does not answer.
    #[error("the {runtime} runtime is unavailable: {reason}")]
    Unavailable {
        /// Which back end.
        runtime: &'static str,
        /// What was seen.
        reason: String,
    },
    /// The image cannot be had.
    #[error("image {image} cannot be pulled: {reason}")]
    ImagePull {
        /// Requested reference.
        image: String,
        /// What the registry or the engine said.
        reason: String,
    },
    /// The engine refuses the request as it is.
    #[error("the {runtime} runtime refuses the sandbox: {reason}")]
    Refused {
        /// Which back end.
        runtime: &'static str,
        /// Its words.
        reason: String,
    },
    /// A configured network does not exist.
    #[error("network {0} does not exist")]
    NoNetwork(String),
    /// No free port was found.
    #[error("no free port in {min}-{max} on {host}")]
    NoPort {
        /// Where sandboxes are published.
        host: String,
        /// First port of the range.
        min: u16,
        /// Last port of the range.
        max: u16,
    },
    /// execd cannot be provided to sandboxes.
    #[error("execd cannot be provided to sandboxes: {reason}")]
    Execd {
        /// What was seen.
        reason: String,
        /// Why.
        #[source]
        source: Option<Cause>,
    },
    /// The container cannot be made or started.
    #[error("sandbox {id} cannot be started: {reason}")]
    Start {
        /// Which sandbox.
        id: SandboxId,
        /// The engine's words.
        reason: String,
    },
    /// The container cannot be removed.
    #[error("sandbox {id} cannot be removed: {reason}")]
    Remove {
        /// Which sandbox.
        id: SandboxId,
        /// The engine's words.
        reason: String,
    },
    /// The back end cannot do this at all.
    #[error("{feature} are not available on the {runtime} runtime")]
    Unsupported {
        /// What was asked for.
        feature: Feature,
        /// Which back end.
        runtime: &'static str,
    },
    /// The snapshot does not exist.
    #[error("snapshot {0} not found")]
    NoSnapshot(String),
    /// The pool does not exist.
    #[error("pool {0} not found")]
    NoPool(String),
    /// No sandbox waits in the pool.
    #[error("pool {0} has no sandbox ready")]
    PoolEmpty(String),
    /// The sandbox does not exist.
    #[error("sandbox {0} does not exist")]
    NotFound(SandboxId),
    /// Anything else.
    #[error("the {runtime} runtime cannot {op}: {reason}")]
    Other {
        /// Which back end.
        runtime: &'static str,
        /// What was tried.
        op: &'static str,
        /// What was seen.
        reason: String,
    },
}

impl RuntimeError {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. }
            | Self::NoPort { .. }
            | Self::Remove { .. }
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
            | Self::NotFound(_) => false,
        }
    }
}

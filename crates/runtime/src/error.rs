//! Errors of a back end.

use osb_protocol::{Feature, SandboxId};

use crate::{PullFault, Reason, SecureKind, VolumeFailure};

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
        reason: Reason,
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
        reason: Reason,
    },
    /// execd of a sandbox does not answer, or not yet.
    #[error("execd of sandbox {id} does not answer: {reason}")]
    ExecdSilent {
        /// The sandbox.
        id: SandboxId,
        /// Description of the failure.
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
    /// A volume of the create cannot be provided.
    #[error("volumes.{index}.{member}: {reason}")]
    Volume {
        /// Which volume of the request.
        index: usize,
        /// Which member of it, with dots.
        member: &'static str,
        /// Kind of failure.
        failure: VolumeFailure,
        /// Description, which names no credentials.
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
    /// The snapshot is not stored.
    #[error("snapshotId: the image of snapshot {0} is not on the host any more")]
    NoSnapshot(String),
    /// The snapshot cannot be taken.
    #[error("snapshot {snapshot} cannot be taken: {reason}")]
    Capture {
        /// The snapshot.
        snapshot: String,
        /// Message of the engine, or the state of the sandbox.
        reason: String,
    },
    /// The sandbox runs in a way that hides its file system from the back end.
    #[error(
        "sandbox {id} runs under {secure}, which keeps what the sandbox writes to itself: it has no \
         snapshots"
    )]
    Uncapturable {
        /// The sandbox.
        id: SandboxId,
        /// What it runs under.
        secure: SecureKind,
    },
    /// The snapshot was not taken within the engine's time limit.
    #[error(
        "snapshot {snapshot} cannot be taken: the engine did not finish within {seconds} seconds"
    )]
    CaptureTimedOut {
        /// The snapshot.
        snapshot: String,
        /// The limit.
        seconds: u64,
    },
    /// The snapshot cannot be removed, because sandboxes use it.
    #[error("snapshot {snapshot} is in use: {reason}")]
    SnapshotInUse {
        /// The snapshot.
        snapshot: String,
        /// Message of the engine.
        reason: String,
    },
    /// The image of a template is not there.
    #[error("templateId: the image of template {0} is not on the host any more")]
    NoTemplate(String),
    /// The image of a template cannot be built.
    #[error("template {template} cannot be built: {reason}")]
    Build {
        /// The template.
        template: String,
        /// Message of the engine.
        reason: String,
    },
    /// The image of a template cannot be removed, because sandboxes use it.
    #[error("template {template} is in use: {reason}")]
    TemplateInUse {
        /// The template.
        template: String,
        /// Message of the engine.
        reason: String,
    },
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
            Self::Volume { failure, .. } => failure.retryable(),
            Self::Unavailable { .. }
            | Self::NoPort { .. }
            | Self::ExecdSilent { .. }
            | Self::Remove { .. }
            | Self::Pause { .. }
            | Self::Resume { .. }
            | Self::Capture { .. }
            | Self::CaptureTimedOut { .. }
            | Self::SnapshotInUse { .. }
            | Self::TemplateInUse { .. }
            | Self::Other { .. } => true,
            Self::ImagePull { .. }
            | Self::Refused { .. }
            | Self::NoNetwork(_)
            | Self::Execd { .. }
            | Self::Start { .. }
            | Self::Unsupported { .. }
            | Self::NoSnapshot(_)
            | Self::NoTemplate(_)
            | Self::Build { .. }
            | Self::Uncapturable { .. }
            | Self::NotRunning(_)
            | Self::NotPaused(_)
            | Self::NotFound(_) => false,
        }
    }
}

// Here, because causes are part of some errors.
impl crate::Cause {
    /// Recognises the cause of a failed call.
    #[must_use]
    pub fn of(error: &RuntimeError) -> Option<Self> {
        match error {
            RuntimeError::NoNetwork(_) => Some(Self::NoNetwork),
            RuntimeError::NoPort { .. } => Some(Self::PortsExhausted),
            RuntimeError::Execd { reason, .. } => {
                Some(Self::of_message(reason).unwrap_or(Self::ExecdMissing))
            }
            RuntimeError::Unavailable { reason, .. } => {
                Some(Self::of_message(reason).unwrap_or(Self::EngineDown))
            }
            RuntimeError::ImagePull { fault, .. } => Self::of_pull(*fault),
            RuntimeError::ExecdSilent { .. } => Some(Self::ExecdSilent),
            RuntimeError::Refused { reason, .. } | RuntimeError::Start { reason, .. } => {
                reason.cause()
            }
            RuntimeError::Build { reason, .. } => Self::of_build(reason),
            RuntimeError::Remove { reason, .. }
            | RuntimeError::Pause { reason, .. }
            | RuntimeError::Resume { reason, .. }
            | RuntimeError::Capture { reason, .. }
            | RuntimeError::Other { reason, .. } => Self::of_message(reason),
            // Its text says what to do.
            RuntimeError::Volume { .. }
            | RuntimeError::NotRunning(_)
            | RuntimeError::NotPaused(_)
            | RuntimeError::Unsupported { .. }
            | RuntimeError::NoSnapshot(_)
            | RuntimeError::NoTemplate(_)
            | RuntimeError::TemplateInUse { .. }
            | RuntimeError::Uncapturable { .. }
            | RuntimeError::CaptureTimedOut { .. }
            | RuntimeError::SnapshotInUse { .. }
            | RuntimeError::NotFound(_) => None,
        }
    }
}

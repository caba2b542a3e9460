//! What can go wrong with a snapshot.

use osb_protocol::{SandboxId, lifecycle::SnapshotState};

use super::{disk_full::DiskFull, too_many::TooMany};

/// Why something was not done with a snapshot (contract: lifecycle §9, §13).
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// No snapshot by that id.
    #[error("snapshot {0} not found")]
    NotFound(String),
    /// The sandbox does not run, so it cannot be captured.
    #[error("sandbox {id} is {state}: a snapshot can only be taken while it is Running")]
    SourceState {
        /// Which sandbox.
        id: SandboxId,
        /// Its state.
        state: String,
    },
    /// Others of the same sandbox are being taken or wait.
    #[error("sandbox {id}: {captures} snapshots of it are being taken: wait until one is over")]
    SourceBusy {
        /// Which sandbox.
        id: SandboxId,
        /// How many.
        captures: usize,
    },
    /// A quota for disk is used up.
    #[error(transparent)]
    DiskFull(DiskFull),
    /// The tenant has as many as it may have.
    #[error(transparent)]
    TooMany(TooMany),
    /// It is being taken, so it cannot be deleted.
    #[error("snapshot {0} is being taken: it can be deleted after that")]
    BeingTaken(String),
    /// The runtime does not remove it, because sandboxes use it.
    #[error(
        "snapshot {id} is in use: {reason}. It stays Deleting, and is removed when the sandboxes that \
         were created from it are gone"
    )]
    InUse {
        /// Which snapshot.
        id: String,
        /// What the runtime said.
        reason: String,
    },
    /// Too many changes at the same time.
    #[error("snapshot {0} is being changed by others")]
    Contended(String),
    /// A create names a snapshot that does not exist.
    #[error("snapshotId: snapshot {0} not found")]
    NoSource(String),
    /// A create names a snapshot that is not ready.
    #[error("snapshotId: snapshot {id} is {state}, not Ready")]
    NotReady {
        /// Which snapshot.
        id: String,
        /// Its state.
        state: SnapshotState,
    },
    /// A create names a snapshot whose file system is not stored.
    #[error("snapshotId: snapshot {0} has no image that could be started")]
    NoImage(String),
}

impl SnapshotError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::SourceBusy { .. }
            | Self::BeingTaken(_)
            | Self::InUse { .. }
            | Self::Contended(_) => true,
            Self::NotReady { state, .. } => *state == SnapshotState::Creating,
            Self::NotFound(_)
            | Self::SourceState { .. }
            | Self::DiskFull(_)
            | Self::TooMany(_)
            | Self::NoSource(_)
            | Self::NoImage(_) => false,
        }
    }

    /// Whether it is about the field `snapshotId` of a create.
    #[must_use]
    pub fn is_about_source(&self) -> bool {
        matches!(
            self,
            Self::NoSource(_) | Self::NotReady { .. } | Self::NoImage(_)
        )
    }
}

//! Snapshots as the console sees them.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::{SandboxId, lifecycle::Snapshot};

use crate::{
    error::ConsoleError,
    view::{OfferedSnapshots, SnapshotDetail, SnapshotList, SnapshotsQuery},
};

/// What the pages about snapshots ask the server for.
#[async_trait]
pub trait SnapshotBackend: Send + Sync {
    /// One page of the snapshots that match a filter.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when they cannot be read, or the runtime has none.
    async fn snapshots(&self, query: &SnapshotsQuery) -> Result<SnapshotList, ConsoleError>;

    /// One snapshot with its lineage; `None` if there is none with this id.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when it cannot be read.
    async fn snapshot(&self, id: &str) -> Result<Option<SnapshotDetail>, ConsoleError>;

    /// The snapshots that a sandbox can be created from. None on a runtime without snapshots.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when they cannot be read.
    async fn offered(&self) -> Result<OfferedSnapshots, ConsoleError>;

    /// Accepts a snapshot of a sandbox, whose page shows the progress.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] for the sandbox, [`ConsoleError::Invalid`] and
    /// [`ConsoleError::Refused`].
    async fn take(&self, of: &SandboxId, name: Option<String>) -> Result<Snapshot, ConsoleError>;

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`], which names the sandboxes that were created from it if that is why.
    async fn delete(&self, id: &str) -> Result<(), ConsoleError>;
}

/// The snapshots for this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn snapshot_backend() -> Result<Arc<dyn SnapshotBackend>, ConsoleError> {
    use_context::<Arc<dyn SnapshotBackend>>().ok_or(ConsoleError::SignedOut)
}

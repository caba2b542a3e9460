//! The server functions of snapshots. The session, the role and the origin of the request were checked
//! before they run.

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::Snapshot};

use crate::{
    error::ConsoleError,
    view::{Answer, OfferedSnapshots, SnapshotDetail, SnapshotList, SnapshotsQuery},
};

/// One page of the list.
#[server(prefix = "/console/fn", endpoint = "snapshots/list")]
pub async fn list(query: SnapshotsQuery) -> Result<SnapshotList, ConsoleError> {
    crate::backend::snapshot_backend()?.snapshots(&query).await
}

/// One snapshot with its lineage. That there is none is an answer and no error: browsers log errors.
#[server(prefix = "/console/fn", endpoint = "snapshots/get")]
pub async fn read(id: String) -> Result<Option<SnapshotDetail>, ConsoleError> {
    crate::backend::snapshot_backend()?.snapshot(&id).await
}

/// The snapshots that a sandbox can be created from.
#[server(prefix = "/console/fn", endpoint = "snapshots/offered")]
pub async fn offered() -> Result<OfferedSnapshots, ConsoleError> {
    crate::backend::snapshot_backend()?.offered().await
}

/// Takes a snapshot of a sandbox; an empty name is none.
#[server(prefix = "/console/fn", endpoint = "snapshots/take")]
pub async fn take(
    id: SandboxId,
    #[server(default)] name: String,
) -> Result<Answer<Snapshot>, ConsoleError> {
    let name = crate::view::snapshot_name(&name);
    Answer::of(crate::backend::snapshot_backend()?.take(&id, name).await)
}

/// Deletes a snapshot.
#[server(prefix = "/console/fn", endpoint = "snapshots/delete")]
pub async fn delete(id: String) -> Result<Answer<()>, ConsoleError> {
    Answer::of(crate::backend::snapshot_backend()?.delete(&id).await)
}

//! The server functions of the list. The session and the origin of the request were checked before
//! they run.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::ListQuery;
use crate::{
    error::ConsoleError,
    view::{BulkResult, SandboxList},
};

/// One page of the list.
#[server(prefix = "/console/fn", endpoint = "sandboxes/list")]
pub async fn list(query: ListQuery) -> Result<SandboxList, ConsoleError> {
    super::listing::of(&*crate::backend::backend()?, &query).await
}

/// Extends the lives of sandboxes to that many seconds from now; longer ones stay.
#[server(prefix = "/console/fn", endpoint = "sandboxes/extend-all")]
pub async fn extend_all(
    ids: Vec<SandboxId>,
    seconds: i64,
) -> Result<Vec<BulkResult>, ConsoleError> {
    let until = crate::view::in_seconds(seconds)?;
    super::listing::bulk(crate::view::BulkAct::Extend(until), ids).await
}

/// Pauses sandboxes.
#[server(prefix = "/console/fn", endpoint = "sandboxes/pause-all")]
pub async fn pause_all(ids: Vec<SandboxId>) -> Result<Vec<BulkResult>, ConsoleError> {
    super::listing::bulk(crate::view::BulkAct::Pause, ids).await
}

/// Resumes sandboxes.
#[server(prefix = "/console/fn", endpoint = "sandboxes/resume-all")]
pub async fn resume_all(ids: Vec<SandboxId>) -> Result<Vec<BulkResult>, ConsoleError> {
    super::listing::bulk(crate::view::BulkAct::Resume, ids).await
}

/// Deletes sandboxes.
#[server(prefix = "/console/fn", endpoint = "sandboxes/delete-all")]
pub async fn delete_all(ids: Vec<SandboxId>) -> Result<Vec<BulkResult>, ConsoleError> {
    super::listing::bulk(crate::view::BulkAct::Delete, ids).await
}

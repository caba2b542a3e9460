//! Files and directories (contract: execd §10, A3).
//!
//! Everything here blocks, so it runs on the threads for that ([`blocking`]); large contents travel
//! between them and the connection in pieces, so that a file of any size passes in constant memory.

mod disposition;
mod download;
mod entries;
mod glob;
mod info;
mod lines;
mod multipart;
mod permission;
mod range;
mod relocate;
mod replace;
mod routes;
mod target;
mod upload;

pub(crate) use routes::routes;

use crate::error::{ApiError, ApiResult};

/// Runs work that blocks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|_| Err(ApiError::runtime("internal error")))
}

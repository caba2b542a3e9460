//! `/sandboxes/{id}/pause` and `…/resume`, on runtimes that can (contract: lifecycle §5.7). No
//! request body is read.

use http::StatusCode;
use osb_protocol::ErrorBody;

use super::super::{
    caller::Caller,
    error::ApiError,
    extract::{InPath, sandbox_id},
};

/// Pause a sandbox.
///
/// Freezes all its processes, and answers when that is done. They keep their memory, files and
/// connections. The sandbox expires as if it ran; renewals and metadata changes work. Runtimes
/// without the feature answer 501.
#[utoipa::path(
    post, path = "/sandboxes/{id}/pause", tag = "sandboxes", operation_id = "pauseSandbox",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 202, description = "It is paused"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 409, description = "It does not run", body = ErrorBody),
        (status = 500, description = "The runtime cannot pause it, and it runs on", body = ErrorBody),
        (status = 501, description = "The runtime has no pause", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn pause(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<StatusCode, ApiError> {
    service.pause(&sandbox_id(id)).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Resume a paused sandbox.
///
/// Answers when its processes run again.
#[utoipa::path(
    post, path = "/sandboxes/{id}/resume", tag = "sandboxes", operation_id = "resumeSandbox",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 202, description = "It runs"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 409, description = "It is not paused", body = ErrorBody),
        (status = 500, description = "The runtime cannot resume it, and it stays paused", body = ErrorBody),
        (status = 501, description = "The runtime has no pause", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn resume(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<StatusCode, ApiError> {
    service.resume(&sandbox_id(id)).await?;
    Ok(StatusCode::ACCEPTED)
}

//! `/sandboxes/{id}/commands`: what ran in a sandbox. An addition to the contract.

use axum::Json;
use http::StatusCode;
use osb_protocol::{ErrorBody, error::code, lifecycle::SandboxCommandList};

use super::super::{
    caller::Caller,
    error::ApiError,
    extract::{InPath, Query, sandbox_id},
};
use crate::sandbox::commands::COMMANDS_MAX;

/// The last commands of a sandbox, newest first.
///
/// Without output and environment; also of a sandbox that is gone, for seven days unless the operator
/// configured another time. The sandbox itself reports them, so programs in it may have forged them.
#[utoipa::path(
    get, path = "/sandboxes/{id}/commands", tag = "diagnostics",
    operation_id = "listSandboxCommands",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("limit" = Option<u32>, Query, description = "100 when absent", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "The commands", body = SandboxCommandList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "Nothing is known of such a sandbox", body = ErrorBody),
        (status = 422, description = "The limit is out of range", body = ErrorBody),
        (status = 501, description = "The operator turned it off", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn list(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    query: Query,
) -> Result<Json<SandboxCommandList>, ApiError> {
    if !service.has_commands() {
        let message = "the commands of sandboxes are not recorded on this server";
        let status = StatusCode::NOT_IMPLEMENTED;
        return Err(ApiError::new(status, code::API_NOT_SUPPORTED, message));
    }
    let limit = query.number("limit", 100, 1..=COMMANDS_MAX as usize);
    let limit = limit.map_err(|error| ApiError::invalid(vec![error]))?;
    let limit = u32::try_from(limit).unwrap_or(COMMANDS_MAX);
    Ok(Json(service.commands(&sandbox_id(id), limit).await?))
}

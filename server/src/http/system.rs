//! Health, readiness and version: open to everybody (contract: lifecycle §3, §A1).

use axum::{Json, extract::State};
use osb_protocol::{
    ErrorBody,
    lifecycle::{Health, Version},
};

use super::{AppState, error::ApiError};

/// Whether the process serves requests. Never asks the runtime.
#[utoipa::path(
    get, path = "/health", tag = "system", operation_id = "health", security(()),
    responses((status = 200, description = "It does", body = Health)),
)]
pub(super) async fn health() -> Json<Health> {
    Json(Health {
        status: "healthy".to_owned(),
        detail: None,
    })
}

/// Whether sandboxes can be made.
///
/// The runtime answers, everything it has is known, and the store takes writes.
#[utoipa::path(
    get, path = "/ready", tag = "system", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "They can", body = Health),
        (status = 503, description = "Not now; the message says why", body = ErrorBody),
    ),
)]
pub(super) async fn ready(State(app): State<AppState>) -> Result<Json<Health>, ApiError> {
    Ok(Json(Health {
        status: "ready".to_owned(),
        detail: app.unscoped.ready().await?,
    }))
}

/// Release of the running server.
#[utoipa::path(
    get, path = "/version", tag = "system", operation_id = "version", security(()),
    responses((status = 200, description = "The release", body = Version)),
)]
pub(super) async fn version() -> Json<Version> {
    Json(Version {
        version: osb_service::build_info::VERSION.to_owned(),
    })
}

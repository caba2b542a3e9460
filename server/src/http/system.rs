//! Health, readiness and version: open to everybody (contract: lifecycle §3, §A1).

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::HeaderMap;
use osb_protocol::{
    ErrorBody,
    lifecycle::{Health, Version},
};

use super::{AppState, error::ApiError};
use crate::identity::server_proof;

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

// A challenge in a header is answered with a proof: commands beside the server recognise it by that.
/// Release of the running server.
#[utoipa::path(
    get, path = "/version", tag = "system", operation_id = "version", security(()),
    responses((status = 200, description = "The release", body = Version)),
)]
pub(super) async fn version(State(app): State<AppState>, headers: HeaderMap) -> Response {
    let version = Json(Version {
        version: osb_service::build_info::VERSION.to_owned(),
    });
    let challenge = headers.get(server_proof::CHALLENGE);
    let proof = challenge.and_then(|it| server_proof::answer(&app.instance_id, it.as_bytes()));
    match proof {
        Some(proof) => ([(server_proof::PROOF, proof)], version).into_response(),
        None => version.into_response(),
    }
}

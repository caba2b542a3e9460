//! `/sandboxes/{id}/endpoints/{port}` (contract: lifecycle §6).

use axum::{
    Json,
    extract::{OriginalUri, State},
};
use http::{HeaderMap, Uri, header::HOST};
use osb_protocol::{ErrorBody, Feature, FieldError, identity::Role, lifecycle::Endpoint};

use super::super::{
    AppState,
    caller::Caller,
    error::ApiError,
    extract::{InPath, Query, is_integer, port, sandbox_id},
};
use crate::sandbox::{EndpointQuery, Error};

/// Where a port of a sandbox is reached.
///
/// The endpoint has no scheme and may have a path; its headers belong on every request to it. The role
/// `read_only` gets none of them.
#[utoipa::path(
    get, path = "/sandboxes/{id}/endpoints/{port}", tag = "endpoints",
    operation_id = "getSandboxEndpoint",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("port" = u16, Path, description = "Port inside the sandbox"),
        ("use_server_proxy" = Option<bool>, Query, description = "Route through this server"),
        ("expires" = Option<i64>, Query, description = "Signed endpoint (Kubernetes gateway only)"),
    ),
    responses(
        (status = 200, description = "The endpoint", body = Endpoint),
        (status = 400, description = "The port is out of range, or signing is not available", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox, or it has no address yet", body = ErrorBody),
        (status = 422, description = "A parameter cannot be read", body = ErrorBody),
        (status = 500, description = "The sandbox cannot be reached on this port", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn get(
    State(app): State<AppState>,
    caller: Caller,
    OriginalUri(uri): OriginalUri,
    InPath((id, port_text)): InPath<(String, String)>,
    query: Query,
    headers: HeaderMap,
) -> Result<Json<Endpoint>, ApiError> {
    let port = port(&port_text)?;
    let through_server = query
        .switch("use_server_proxy")
        .map_err(|error| ApiError::invalid(vec![error]))?;
    if let Some(expires) = query.last("expires") {
        if !is_integer(expires) {
            let error = FieldError::query("int_parsing", "expires", "must be Unix seconds");
            return Err(ApiError::invalid(vec![error]));
        }
        if through_server {
            let rule = "cannot be combined with use_server_proxy";
            return Err(Error::rule("expires", rule).into());
        }
        return Err(Error::Unsupported {
            feature: Feature::SignedEndpoints,
            runtime: caller.service.runtime_kind(),
        }
        .into());
    }
    let query = EndpointQuery {
        port,
        proxy_base: base(&app, &uri, &headers),
        through_proxy: through_server,
    };
    let mut endpoint = caller.service.endpoint(&sandbox_id(id), &query).await?;
    if caller.principal.role < Role::Operator {
        // They open execd, which runs commands.
        endpoint.headers.clear();
    }
    Ok(Json(endpoint))
}

/// The configured public address, or the host that the client used with the prefix it used.
fn base(app: &AppState, uri: &Uri, headers: &HeaderMap) -> String {
    let bare = |text: &str| {
        let text = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"));
        text.map(str::to_owned)
    };
    if let Some(eip) = &app.eip {
        return bare(eip).unwrap_or_else(|| eip.clone());
    }
    // HTTP/2 names the host in the URI.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(http::uri::Authority::as_str));
    let host = host.unwrap_or("localhost");
    let prefix = if uri.path().starts_with("/v1/") {
        "/v1"
    } else {
        ""
    };
    format!("{}{prefix}", bare(host).unwrap_or_else(|| host.to_owned()))
}

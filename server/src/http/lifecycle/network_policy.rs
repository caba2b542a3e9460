//! `/sandboxes/{id}/networkpolicy`, on runtimes that can (contract: lifecycle §A4). The body is
//! checked here, and the sandbox's sidecar answers.

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use osb_protocol::{
    ErrorBody, FieldError,
    lifecycle::{NetworkPolicy, NetworkPolicyStatus, NetworkRule},
    network_policy::{Policy, PolicyError, parse_rules, parse_targets},
};

use super::{
    super::{
        AppState,
        caller::Caller,
        error::ApiError,
        extract::{InPath, json_text, sandbox_id},
        proxy::{SidecarPath, to_sidecar},
    },
    sidecar_refusals::SidecarRefusal,
};
use crate::sandbox::{Error, validate};

/// Show the network policy of a sandbox.
///
/// The policy in force, as it was given and changed since. A sandbox that was created without
/// `networkPolicy` has none, unless the server has a default, and answers 502.
#[utoipa::path(
    get, path = "/sandboxes/{id}/networkpolicy", tag = "sandboxes",
    operation_id = "getSandboxNetworkPolicy",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 200, description = "The policy", body = NetworkPolicyStatus),
        SidecarRefusal,
        (status = 500, description = "It cannot be reached", body = ErrorBody),
        (status = 501, description = "The runtime has no network policies", body = ErrorBody),
    ),
)]
pub(super) async fn get(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    request: Request,
) -> Result<Response, ApiError> {
    to_policy(&app, &caller, id, request).await
}

/// Replace the network policy of a sandbox.
///
/// Applies to connections that are open, too. `{}` refuses every destination.
#[utoipa::path(
    put, path = "/sandboxes/{id}/networkpolicy", tag = "sandboxes",
    operation_id = "replaceSandboxNetworkPolicy",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body = NetworkPolicy,
    responses(
        (status = 200, description = "It is in force", body = NetworkPolicyStatus),
        SidecarRefusal,
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 413, description = "The policy has too many rules, or the body is larger than 1 MiB", body = ErrorBody),
        (status = 422, description = "The body is no policy", body = ErrorBody),
        (status = 500, description = "It cannot be reached, or its packet filter cannot be changed", body = ErrorBody),
        (status = 501, description = "The runtime has no network policies", body = ErrorBody),
    ),
)]
pub(super) async fn replace(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let request = checked(request, |text| Policy::parse(text).map(drop)).await?;
    to_policy(&app, &caller, id, request).await
}

/// Add rules to the network policy of a sandbox.
///
/// A rule replaces the one with the same target, in whatever spelling. The default action stays.
#[utoipa::path(
    patch, path = "/sandboxes/{id}/networkpolicy", tag = "sandboxes",
    operation_id = "patchSandboxNetworkPolicy",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body(content = Vec<NetworkRule>, content_type = "application/json"),
    responses(
        (status = 200, description = "The rules are in force", body = NetworkPolicyStatus),
        SidecarRefusal,
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 413, description = "The policy would have too many rules, or the body is larger than 1 MiB", body = ErrorBody),
        (status = 422, description = "The body is no list of rules, or has none", body = ErrorBody),
        (status = 500, description = "It cannot be reached, or its packet filter cannot be changed", body = ErrorBody),
        (status = 501, description = "The runtime has no network policies", body = ErrorBody),
    ),
)]
pub(super) async fn merge(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let request = checked(request, |text| parse_rules(text).map(drop)).await?;
    to_policy(&app, &caller, id, request).await
}

/// Remove rules from the network policy of a sandbox.
///
/// The body has the targets of the rules, in any spelling: `Host.test.` is `host.test`, `10.1.2.3/8` is
/// `10.0.0.0/8`. The answer counts the rules in `removed`, and lists the targets that no rule had in
/// `unmatched`. The default action stays.
#[utoipa::path(
    delete, path = "/sandboxes/{id}/networkpolicy", tag = "sandboxes",
    operation_id = "deleteSandboxNetworkPolicyRules",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body(content = Vec<String>, content_type = "application/json"),
    responses(
        (status = 200, description = "The rules are gone", body = NetworkPolicyStatus),
        SidecarRefusal,
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 413, description = "The body is larger than 1 MiB", body = ErrorBody),
        (status = 422, description = "The body is no list of targets, or has none", body = ErrorBody),
        (status = 500, description = "It cannot be reached, or its packet filter cannot be changed", body = ErrorBody),
        (status = 501, description = "The runtime has no network policies", body = ErrorBody),
    ),
)]
pub(super) async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let request = checked(request, |text| parse_targets(text).map(drop)).await?;
    to_policy(&app, &caller, id, request).await
}

/// Sends a request to the policy of a sandbox.
async fn to_policy(
    app: &AppState,
    caller: &Caller,
    id: String,
    request: Request,
) -> Result<Response, ApiError> {
    to_sidecar(app, caller, &sandbox_id(id), SidecarPath::Policy, request).await
}

/// A request whose body can be parsed; the bytes stay what they are.
async fn checked(
    request: Request,
    parse: impl FnOnce(&[u8]) -> Result<(), PolicyError>,
) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    let text = json_text(&parts.headers, body).await?;
    match parse(&text) {
        Ok(()) => Ok(Request::from_parts(parts, Body::from(text))),
        Err(error) => Err(ApiError::invalid(fields(&error))),
    }
}

/// The members of a body that are wrong.
fn fields(error: &PolicyError) -> Vec<FieldError> {
    let wrong = validate::wrong_members(error).into_iter();
    let fields = wrong.flat_map(|(place, rule)| match place.is_empty() {
        true => vec![FieldError::body("value_error", [""; 0], rule)],
        false => Error::rule(place, rule).fields(),
    });
    fields.collect()
}

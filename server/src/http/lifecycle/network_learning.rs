//! `/sandboxes/{id}/networkpolicy/decisions` and `…/proposal`: what the sidecar of a sandbox decided,
//! and the smallest policy for it. Additions to the contract.

use axum::{
    Json,
    body::to_bytes,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, Uri};
use osb_protocol::{
    ErrorBody, FieldError,
    error::code,
    lifecycle::{NetworkDecisions, NetworkPolicyProposal},
    network_policy::propose,
};

use super::{
    super::{
        AppState,
        caller::Caller,
        error::ApiError,
        extract::{InPath, Query, sandbox_id},
        proxy::{SidecarPath, to_sidecar},
    },
    sidecar_refusals::SidecarRefusal,
};

/// Longest answer of a sidecar that is read, in bytes: more than its full lists have.
const ANSWER_MAX: usize = 16 << 20;

/// Show what was decided about the network of a sandbox.
///
/// The names that it asked for last, and the destinations of its packets within the last hour, each
/// allowed or refused. With `since`, only the names that were asked for after an earlier answer.
#[utoipa::path(
    get, path = "/sandboxes/{id}/networkpolicy/decisions", tag = "sandboxes",
    operation_id = "getSandboxNetworkDecisions",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("since" = Option<u64>, Query, description = "`next` of an earlier answer; 0 when absent"),
    ),
    responses(
        (status = 200, description = "The decisions", body = NetworkDecisions),
        SidecarRefusal,
        (status = 422, description = "`since` is no number", body = ErrorBody),
        (status = 500, description = "It cannot be reached, or its packet filter cannot be read", body = ErrorBody),
        (status = 501, description = "The runtime has no network policies, or the sidecar keeps no decisions", body = ErrorBody),
    ),
)]
pub(super) async fn decisions(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    query: Query,
    request: Request,
) -> Result<Response, ApiError> {
    let since = query.number("since", 0, 0..=usize::MAX).map_err(wrong)?;
    ask(&app, &caller, id, since, request).await
}

/// Propose a network policy for a sandbox.
///
/// The smallest policy that allows what the sandbox asked for and got, with the reason of each rule. It
/// changes nothing: send the policy with PUT to apply it. Let a sandbox with `defaultAction` `allow`
/// run its work first, so that everything that it needs is known.
#[utoipa::path(
    get, path = "/sandboxes/{id}/networkpolicy/proposal", tag = "sandboxes",
    operation_id = "proposeSandboxNetworkPolicy",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("denied" = Option<bool>, Query, description = "Whether what was refused is allowed as well; false when absent"),
    ),
    responses(
        (status = 200, description = "The policy", body = NetworkPolicyProposal),
        SidecarRefusal,
        (status = 422, description = "`denied` is neither true nor false", body = ErrorBody),
        (status = 500, description = "It cannot be reached, or its packet filter cannot be read", body = ErrorBody),
        (status = 501, description = "The runtime has no network policies, or the sidecar keeps no decisions", body = ErrorBody),
    ),
)]
pub(super) async fn proposal(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    query: Query,
    mut request: Request,
) -> Result<Response, ApiError> {
    let with_denied = query.switch("denied").map_err(wrong)?;
    // The body is needed for HEAD, too.
    *request.method_mut() = Method::GET;
    let answer = ask(&app, &caller, id, 0, request).await?;
    if answer.status() != StatusCode::OK {
        return Ok(answer);
    }
    let unreadable = || {
        let message = "the answer of the sandbox's sidecar cannot be read";
        let status = StatusCode::BAD_GATEWAY;
        ApiError::new(status, code::BACKEND_RESPONSE_FAILED, message)
    };
    let body = to_bytes(answer.into_body(), ANSWER_MAX).await;
    let body = body.map_err(|error| unreadable().because(&error))?;
    let decisions: NetworkDecisions =
        serde_json::from_slice(&body).map_err(|error| unreadable().because(&error))?;
    Ok(Json(propose(&decisions, with_denied)).into_response())
}

fn wrong(error: FieldError) -> ApiError {
    ApiError::invalid(vec![error])
}

/// Asks the sidecar of a sandbox for its decisions.
async fn ask(
    app: &AppState,
    caller: &Caller,
    id: String,
    since: usize,
    mut request: Request,
) -> Result<Response, ApiError> {
    // Only what was understood is passed on.
    let query = format!("/?since={since}");
    *request.uri_mut() = Uri::try_from(query).expect("a number makes a valid query");
    let id = sandbox_id(id);
    let answer = to_sidecar(app, caller, &id, SidecarPath::Decisions, request).await?;
    if answer.status() != StatusCode::NOT_FOUND {
        return Ok(answer);
    }
    let message = "the sidecar of this sandbox is older than this server, and keeps no decisions";
    let status = StatusCode::NOT_IMPLEMENTED;
    Err(ApiError::new(status, code::API_NOT_SUPPORTED, message))
}

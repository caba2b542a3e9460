//! HTTP API (contract: egress §5). Errors are plain text, as clients of the contract show them.

mod answer;
mod claim;
mod connections;
mod decisions;
mod policy;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderName, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use osb_service::Supervisor;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

pub use connections::serve;

use self::answer::Refusal;
use crate::{
    decisions::Decisions, enforcer::Enforcer, firewall::Firewall, limits, places::Place,
    telemetry::Instruments,
};

/// Header with the token.
const TOKEN: HeaderName = HeaderName::from_static("opensandbox-egress-auth");

/// What the handlers use. Clones share it.
#[derive(Clone, Debug)]
pub struct Api {
    /// The policy in force.
    pub enforcer: Arc<Enforcer>,
    /// Memory of decisions.
    pub decisions: Arc<Decisions>,
    /// Metrics.
    pub instruments: Instruments,
    /// Token that requests must have. Without one, the API is open.
    pub token: Option<Arc<SecretString>>,
    /// Id of the sandbox; empty if unknown.
    pub sandbox_id: Arc<str>,
    /// Rules that a policy may have.
    pub max_rules: Option<usize>,
    /// Runs changes, which go on without their client.
    pub tasks: Supervisor,
}

/// All routes.
pub fn router(api: Api) -> Router {
    let guarded = Router::new()
        .route(
            "/policy",
            get(policy::show)
                .post(policy::replace)
                .put(policy::replace)
                .patch(policy::merge)
                .delete(policy::remove),
        )
        .route("/claim/{sandbox}", get(claim::show).post(claim::claim))
        .route("/decisions", get(decisions::list))
        .layer(from_fn_with_state(api.clone(), guard));
    Router::new()
        .route("/healthz", any(health))
        .merge(guarded)
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "404 page not found") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        })
        .layer(DefaultBodyLimit::max(limits::BODY))
        .with_state(api)
}

/// Says "enforcing" while the rules can be changed. They stand in any case: the API starts only after
/// they were applied.
async fn health(State(api): State<Api>) -> Result<&'static str, Refusal> {
    match api.enforcer.firewall().is_none_or(Firewall::is_working) {
        true => Ok("ok"),
        false => {
            let text = "the packet filter cannot be changed";
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text))
        }
    }
}

/// Lets requests with the token through. Their connections keep their places meanwhile.
async fn guard(State(api): State<Api>, request: Request, next: Next) -> Response {
    if let Some(token) = &api.token {
        let given = request.headers().get(TOKEN);
        let given = given.map(|value| value.as_bytes()).unwrap_or_default();
        let is_equal: bool = token.expose_secret().as_bytes().ct_eq(given).into();
        if !is_equal {
            return Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized").into_response();
        }
    }
    let place = request.extensions().get::<Arc<Place>>();
    let _busy = place.map(Place::busy);
    next.run(request).await
}

#[cfg(test)]
mod tests;

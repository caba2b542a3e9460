//! Routes of the runtime initialisation.

use axum::{
    Json, Router,
    extract::{FromRef, Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use osb_protocol::execd::runtime_init::{Initialized, InitializedStatus, Readiness};

use tokio::time::timeout;

use super::{Bound, Order, RuntimeInit, order::room};
use crate::{
    base::Base,
    error::{ApiError, ApiResult},
    http::not_found,
    json, limits,
};

/// Both routes. They exist only if the daemon waits for an order.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Base: FromRef<S>,
    RuntimeInit: FromRef<S>,
{
    Router::new()
        .route("/ready", get(ready))
        .route("/internal/init", post(init))
}

async fn ready(State(runtime): State<RuntimeInit>) -> Response {
    if !runtime.is_used() {
        return not_found().await;
    }
    match runtime.bound() {
        Some(bound) => Json(Readiness {
            initialized: true,
            sandbox_id: Some(bound.sandbox.clone()),
            generation: Some(bound.generation),
            error: None,
        })
        .into_response(),
        None => {
            let readiness = Readiness {
                error: runtime.failure(),
                ..Readiness::default()
            };
            (StatusCode::SERVICE_UNAVAILABLE, Json(readiness)).into_response()
        }
    }
}

async fn init(
    State(base): State<Base>,
    State(runtime): State<RuntimeInit>,
    request: Request,
) -> ApiResult<Response> {
    if !runtime.is_used() {
        return Ok(not_found().await);
    }
    let again = || {
        let message = runtime
            .failure()
            .unwrap_or_else(|| "execd was initialized already, or is being initialized".to_owned());
        ApiError::AlreadyInitialized(message)
    };
    // A late request is rejected without reading its body, unless it may be a repeated claim.
    if runtime.is_used_up() {
        return Err(again());
    }
    let turn = runtime.turn().await;
    if runtime.is_used_up() {
        return Err(again());
    }
    let body = json::bytes_up_to(request.into_body(), limits::ORDER);
    let slow = |_| ApiError::invalid("the body did not come in time");
    let body = timeout(limits::ORDER_READ, body).await.map_err(slow)??;
    let order = Order::read(&body)?;
    if runtime.is_claimed() {
        let is_same = order.claim.is_some() && order.claim.as_deref() == runtime.claim_id();
        if !is_same {
            return Err(again());
        }
        drop(turn);
        let bound = runtime.outcome().await.map_err(ApiError::runtime)?;
        return Ok(initialized(bound, None));
    }
    if runtime.is_marked_for_another(&order) {
        let message = "the sandbox was claimed before its container was restarted";
        return Err(ApiError::AlreadyInitialized(message.to_owned()));
    }
    order.check_room(&base.environment.own(), room())?;
    let bound = order.bound.clone();
    let reply = runtime.claim(order).ok_or_else(again)?;
    drop(turn);
    let stopping = || Err("execd is stopping".to_owned());
    let warning = reply
        .await
        .unwrap_or_else(|_| stopping())
        .map_err(ApiError::runtime)?;
    Ok(initialized(bound, warning))
}

fn initialized(bound: Bound, warning: Option<String>) -> Response {
    Json(Initialized {
        status: InitializedStatus::Initialized,
        sandbox_id: bound.sandbox,
        generation: bound.generation,
        warning,
    })
    .into_response()
}

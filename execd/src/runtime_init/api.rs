//! The routes.

use axum::{
    Json, Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use osb_protocol::execd::{
    code,
    runtime_init::{Initialized, InitializedStatus, Readiness},
};

use super::{Bound, Order};
use crate::{
    app::App,
    error::{ApiError, ApiResult},
    json, server,
};

/// Both. They exist only where there is something to wait for.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/ready", get(ready))
        .route("/internal/init", post(init))
}

async fn ready(State(app): State<App>) -> Response {
    if !app.runtime_init.is_used() {
        return server::not_found().await;
    }
    match app.runtime_init.bound() {
        Some(bound) => Json(Readiness {
            initialized: true,
            sandbox_id: Some(bound.sandbox.clone()),
            generation: Some(bound.generation),
        })
        .into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, Json(Readiness::default())).into_response(),
    }
}

async fn init(State(app): State<App>, request: Request) -> ApiResult<Response> {
    if !app.runtime_init.is_used() {
        return Ok(server::not_found().await);
    }
    let order = Order::read(&json::bytes(request.into_body()).await?)?;
    let Bound {
        sandbox,
        generation,
        ..
    } = order.bound.clone();
    let again = || {
        let message = "execd was initialized already, or is being initialized";
        ApiError::new(StatusCode::CONFLICT, code::ALREADY_INITIALIZED, message)
    };
    let reply = app.runtime_init.claim(order).ok_or_else(again)?;
    let stopping = || Err("execd is stopping".to_owned());
    let warning = reply
        .await
        .unwrap_or_else(|_| stopping())
        .map_err(ApiError::runtime)?;
    Ok(Json(Initialized {
        status: InitializedStatus::Initialized,
        sandbox_id: sandbox,
        generation,
        warning,
    })
    .into_response())
}

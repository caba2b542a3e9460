//! HTTP routes (contract: execd §3).

use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{Next, from_fn, from_fn_with_state},
    response::Response,
    routing::{get, post},
};
use osb_service::request_body;

use super::{
    Token,
    guard::{Rules, guard},
};
use crate::{
    app::App, command::api as command, error::ApiError, file, file_worker, history,
    http::not_found, isolated, metrics, ports, proxy, pty, runtime_init, session, tunnel,
};

/// Router with all routes behind the guard.
pub fn router(app: App, token: Token) -> Router {
    let rules = Rules {
        token,
        runtime: app.runtime_init.clone(),
        telemetry: app.base.telemetry.clone(),
    };
    Router::new()
        .route("/ping", get(ping))
        .route("/command", post(command::start).delete(command::stop))
        .route("/code", post(no_code_contexts).delete(command::stop))
        .route("/code/context", post(no_code_contexts))
        .route(
            "/code/contexts",
            get(no_code_contexts).delete(no_code_contexts),
        )
        .route(
            "/code/contexts/{contextId}",
            get(no_code_contexts).delete(no_code_contexts),
        )
        .route("/command/status/{id}", get(command::status))
        .route("/command/{id}/logs", get(command::logs))
        .route("/command/{id}/events", get(command::events))
        .merge(file::routes())
        .merge(file_worker::routes())
        .merge(history::routes())
        .merge(ports::routes())
        .merge(isolated::routes())
        .merge(metrics::routes())
        .merge(proxy::routes())
        .merge(pty::routes())
        .merge(runtime_init::routes())
        .merge(session::routes())
        .merge(tunnel::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(from_fn_with_state(rules, guard))
        .layer(from_fn(read_or_close))
        .with_state(app)
}

/// Closes the connection after a body that no handler read, since no request can follow it.
async fn read_or_close(request: Request, next: Next) -> Response {
    request_body::read_or_close(request, Body::new, |request| next.run(request)).await
}

/// Handles `GET /ping`: 200 without a body.
async fn ping() {}

/// Handles the routes of code contexts (contract: execd §7), which do not exist yet: clients parse
/// errors as JSON, and a 404 would mean an unknown context.
async fn no_code_contexts() -> ApiError {
    ApiError::NotImplemented(
        "code contexts are not available in this release; run code with POST /command or in a session",
    )
}

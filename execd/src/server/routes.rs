//! HTTP routes (contract: execd §3).

use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{Next, from_fn, from_fn_with_state},
    response::Response,
    routing::{delete, get, post},
};
use osb_service::request_body;

use super::{
    Token,
    guard::{Rules, guard},
};
use crate::{
    app::App, command::api as command, file, file_worker, history, http::not_found, isolated,
    metrics, ports, proxy, pty, runtime_init, session, tunnel,
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
        .route("/code", delete(command::stop))
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

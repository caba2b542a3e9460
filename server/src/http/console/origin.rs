//! Refuses WebSockets of other origins.
//!
//! Browsers send cookies with a WebSocket handshake from any page, and the handshake is a GET that
//! CSRF protection lets pass. They always send `Origin`, which scripts cannot forge; a
//! program that sends none is no browser, and has the REST API.

use axum::{
    extract::Request,
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::super::origin::{self, Origin};

/// Refuses upgrades that another origin requested.
pub(super) async fn same_origin_upgrades(request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::UPGRADE) && origin::of(&request) != Origin::Own {
        return (
            StatusCode::FORBIDDEN,
            "this WebSocket is for the console's own pages",
        )
            .into_response();
    }
    next.run(request).await
}

//! Bodies of the console's forms and server functions: small, and read before anything is done.

use std::time::Duration;

use axum::{
    body::Body,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body::Body as _;

use super::super::extract;

/// Largest body, in bytes: the create form with a file of environment variables in it.
const MAX: usize = 1 << 20;
/// Longest time that one may take.
const TIME: Duration = Duration::from_secs(30);

/// Reads the body of a request, within bounds, before the request is served.
pub(super) async fn read_whole(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match extract::read(body, MAX, TIME).await {
        Ok(body) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Err(refusal) => refusal.into_response(),
    }
}

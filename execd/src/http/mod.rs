//! What the handlers of several modules need of HTTP.

mod error;
mod query;

use axum::{
    Extension,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

#[cfg(test)]
pub(crate) use error::status_and_code;
pub use query::Query;

/// In the extensions of an answer: no route wanted the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unrouted;

/// The contract knows no 405: a wrong method is an unknown route.
pub(crate) async fn not_found() -> Response {
    let answer = (StatusCode::NOT_FOUND, "404 page not found");
    (Extension(Unrouted), answer).into_response()
}

/// Headers of every stream of events (contract: execd §4.1).
pub(crate) fn stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, "text/event-stream");
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONNECTION, "keep-alive");
    set(header::HeaderName::from_static("x-accel-buffering"), "no");
    headers
}

//! HTTP helpers shared by several modules.

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

/// Response extension: no route matched the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unrouted;

/// Answers requests without a route. The contract has no 405: a wrong method is an unknown route.
pub(crate) async fn not_found() -> Response {
    let answer = (StatusCode::NOT_FOUND, "404 page not found");
    (Extension(Unrouted), answer).into_response()
}

/// Adds the charset to the content type of a JSON response (contract: execd §2.2).
pub(crate) fn name_json_charset(headers: &mut HeaderMap) {
    const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
    if let Some(kind) = headers.get_mut(header::CONTENT_TYPE)
        && kind == "application/json"
    {
        *kind = JSON;
    }
}

/// Headers of every event stream (contract: execd §4.1).
pub(crate) fn stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, "text/event-stream");
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONNECTION, "keep-alive");
    set(header::HeaderName::from_static("x-accel-buffering"), "no");
    headers
}

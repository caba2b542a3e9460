//! Cross-origin access to the REST API: open, because it is guarded by a header that no browser
//! sends by itself (contract: lifecycle §1.2). A server without an API key has no such guard and
//! refuses requests that pages of other origins make. The console is under neither layer.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
        ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
        ORIGIN, VARY,
    },
};
use osb_protocol::error::code;

use super::{
    error::ApiError,
    origin::{self, Origin},
};

const METHODS: HeaderValue =
    HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const EXPOSED: HeaderValue = HeaderValue::from_static("OPEN-SANDBOX-ORIGIN, X-Request-ID");
const BY_ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// Answers preflights before anything else looks at them, and marks the other answers.
pub(super) async fn open(request: Request, next: Next) -> Response {
    let Some(origin) = request.headers().get(ORIGIN).cloned() else {
        return next.run(request).await;
    };
    if let Some(answer) = preflight(&request, &origin) {
        return answer;
    }
    let mut response = next.run(request).await;
    // What a proxied backend says about itself stands.
    if !response.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        allow(response.headers_mut(), origin);
        response
            .headers_mut()
            .insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

/// Refuses what a page of another origin asks for, its preflights included.
pub(super) async fn own(request: Request, next: Next) -> Response {
    if origin::of(&request) != Origin::Foreign {
        return next.run(request).await;
    }
    let message = "this server runs without an API key and serves no pages of other origins";
    let status = StatusCode::FORBIDDEN;
    ApiError::new(status, code::ORIGIN_NOT_ALLOWED, message).into_response()
}

/// The answer, if the request is a preflight.
fn preflight(request: &Request, origin: &HeaderValue) -> Option<Response> {
    let asks = |name: HeaderName| request.headers().get(name);
    if request.method() != Method::OPTIONS || asks(ACCESS_CONTROL_REQUEST_METHOD).is_none() {
        return None;
    }
    let mut response = StatusCode::OK.into_response();
    let headers = response.headers_mut();
    allow(headers, origin.clone());
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(wanted) = asks(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    Some(response)
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
    headers.append(VARY, BY_ORIGIN);
}

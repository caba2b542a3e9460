//! Middleware of every route: request ids, authentication, panics, content types, logs and metrics
//! (contract: execd §1.4, §2.1, §2.2).

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    Json,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use osb_log::redact;
use osb_protocol::{
    execd::code,
    headers::{EXECD_ACCESS_TOKEN, REQUEST_ID},
};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use subtle::ConstantTimeEq;
use tracing::{debug, error, info};

use crate::{
    error::ApiError,
    http::{name_json_charset, not_found},
    limits,
    runtime_init::RuntimeInit,
    telemetry::Telemetry,
};

/// Token that requests must present, if one is set.
#[derive(Clone)]
pub struct Token(Option<Arc<SecretString>>);

impl Token {
    /// Requires this token; `None` requires none.
    #[must_use]
    pub fn new(token: Option<SecretString>) -> Self {
        Self(token.map(Arc::new))
    }

    fn admits(&self, headers: &HeaderMap, runtime: &RuntimeInit) -> bool {
        // The token of the order takes precedence over the one from the start.
        match runtime.token() {
            Some(hash) => {
                let given = headers.get(EXECD_ACCESS_TOKEN);
                given.is_some_and(|given| hash.admits(given.as_bytes()))
            }
            None => self.admits_order(headers),
        }
    }

    /// Whether these headers may present an order. A token from an order does not count.
    fn admits_order(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.0 else {
            return true;
        };
        let token = token.expose_secret().as_bytes();
        let given = headers.get(EXECD_ACCESS_TOKEN);
        given.is_some_and(|given| given.as_bytes().ct_eq(token).into())
    }
}

/// State of the guard.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) token: Token,
    pub(super) runtime: RuntimeInit,
    pub(super) telemetry: Telemetry,
}

/// Runs the route, if the request is authorised.
pub(super) async fn guard(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let Rules {
        token,
        runtime,
        telemetry,
    } = rules;
    let id = request_id(request.headers());
    let method = request.method().clone();
    let uri = request.uri().clone();
    let timing = telemetry.request(&request);
    let path = uri.path();
    let open = is_open(&method, path, &runtime);
    let is_order = is_order(&method, path, &runtime);
    let admitted = if is_order {
        token.admits_order(request.headers())
    } else {
        open || token.admits(request.headers(), &runtime)
    };
    let is_proxied = path.starts_with("/proxy/");
    let mut is_forwarded = false;
    let mut response = if !open && !is_order && runtime.is_closed() {
        not_initialized(&runtime)
    } else if !admitted {
        unauthorized()
    } else if method == Method::HEAD && !is_proxied {
        not_found().await
    } else if !is_proxied && percent_decode_str(path).decode_utf8().is_err() {
        // The routes would answer in plain text. Proxied paths may contain any bytes.
        ApiError::invalid("the path of the address is not UTF-8").into_response()
    } else {
        is_forwarded = is_proxied;
        let ran = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        // The panic hook has logged the location.
        ran.unwrap_or_else(|_| ApiError::runtime("internal error").into_response())
    };
    // Requests that clients repeat until the daemon is ready, and later as health checks.
    let is_probe = path == "/ping" || path == "/ready" || runtime.is_closed();
    log(is_probe, &method, &uri, response.status(), &id, began);
    response.headers_mut().entry(REQUEST_ID).or_insert(id);
    if !is_forwarded {
        name_json_charset(response.headers_mut());
    }
    match timing {
        Some(timing) => timing.follow(response),
        None => response,
    }
}

/// Logs a request when its response begins.
fn log(
    is_probe: bool,
    method: &Method,
    uri: &Uri,
    status: StatusCode,
    id: &HeaderValue,
    began: Instant,
) {
    let is_proxied = uri.path().starts_with("/proxy/");
    let address = if is_proxied {
        redact::foreign_address(uri)
    } else {
        redact::address(uri)
    };
    let id = id.to_str().unwrap_or_default();
    // Three decimals suffice for people.
    let took = (began.elapsed().as_secs_f64() * 1e6).round() / 1000.0;
    let code = status.as_u16();
    if is_probe {
        debug!(status = code, took_ms = took, id, "{method} {address}");
    } else if status.is_server_error() && !is_proxied {
        error!(status = code, took_ms = took, id, "{method} {address}");
    } else {
        info!(status = code, took_ms = took, id, "{method} {address}");
    }
}

/// Whether a request needs no token. Clients give up permanently when `/ping` answers 401
/// (contract: execd §3.1). Clients that wait for the daemon's order have no token yet (contract:
/// execd A9.5).
fn is_open(method: &Method, path: &str, runtime: &RuntimeInit) -> bool {
    match path {
        "/ping" => method == Method::GET,
        "/ready" => method == Method::GET && runtime.is_used(),
        _ => false,
    }
}

/// Whether a request is the order. `/internal/init` delivers the token, so it needs none unless
/// execd started with one (contract: execd A9.5).
fn is_order(method: &Method, path: &str, runtime: &RuntimeInit) -> bool {
    path == "/internal/init" && method == Method::POST && runtime.is_used()
}

/// The client's request id if it is valid, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sane = |id: &&HeaderValue| {
        let id = id.as_bytes();
        !id.is_empty() && id.len() <= limits::REQUEST_ID && id.iter().all(u8::is_ascii_graphic)
    };
    headers
        .get(REQUEST_ID)
        .filter(sane)
        .cloned()
        .unwrap_or_else(|| {
            let id = uuid::Uuid::new_v4().simple().to_string();
            HeaderValue::try_from(id).expect("hex digits are a header value")
        })
}

fn unauthorized() -> Response {
    let message = "Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN";
    refusal(StatusCode::UNAUTHORIZED, code::UNAUTHORIZED, message)
}

fn not_initialized(runtime: &RuntimeInit) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let refuse = |message: &str| refusal(status, code::SERVICE_UNAVAILABLE, message);
    match runtime.failure() {
        Some(why) => refuse(&why),
        None => refuse("execd is not initialized yet: POST /internal/init must be called first"),
    }
}

/// Response to an unauthorised request. The reference answers with `error` alone; some official
/// clients need the other two members.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    let body = json!({ "error": message, "code": code, "message": message });
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_is_admitted() {
        let with = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(EXECD_ACCESS_TOKEN, HeaderValue::from_bytes(value).unwrap());
            headers
        };
        let never = RuntimeInit::default();
        let token = Token::new(Some("secret".into()));
        let admits = |token: &Token, headers: &HeaderMap| token.admits(headers, &never);
        assert!(admits(&token, &with(b"secret")));
        for wrong in [&b"secre"[..], b"secret ", b"", b"\xff"] {
            assert!(!admits(&token, &with(wrong)));
        }
        assert!(!admits(&token, &HeaderMap::new()));
        assert!(admits(&Token::new(None), &HeaderMap::new()));
    }

    #[test]
    fn odd_request_ids_are_replaced() {
        let with = |value: &str| {
            HeaderMap::from_iter([(REQUEST_ID.parse().unwrap(), value.parse().unwrap())])
        };
        assert_eq!(request_id(&with("abc-1")), "abc-1");
        assert_ne!(request_id(&with("a b")), "a b");
        assert_eq!(request_id(&with(&"x".repeat(500))).len(), 32);
    }
}

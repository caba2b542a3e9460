//! Around every route: request ids, the token, panics (contract: execd §2.1, §2.2).

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Json,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use osb_protocol::{
    execd::code,
    headers::{EXECD_ACCESS_TOKEN, REQUEST_ID},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use subtle::ConstantTimeEq;
use tracing::{debug, error};

use super::routes;
use crate::{error::ApiError, limits};

/// The token that requests must bring, if one was set.
#[derive(Clone)]
pub struct Token(Option<Arc<SecretString>>);

impl Token {
    /// Demands this token; `None` demands nothing.
    #[must_use]
    pub fn new(token: Option<SecretString>) -> Self {
        Self(token.map(Arc::new))
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.0 else {
            return true;
        };
        let given = headers.get(EXECD_ACCESS_TOKEN);
        let token = token.expose_secret().as_bytes();
        given.is_some_and(|given| given.as_bytes().ct_eq(token).into())
    }
}

/// Runs the route, if the request may reach it.
pub(super) async fn guard(State(token): State<Token>, request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = if !is_ping(&method, &path) && !token.admits(request.headers()) {
        unauthorized()
    } else if method == Method::HEAD && !path.starts_with("/proxy/") {
        routes::not_found().await
    } else {
        let ran = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        // The panic hook has logged where it happened.
        ran.unwrap_or_else(|_| ApiError::runtime("internal error").into_response())
    };
    let status = response.status();
    if status.is_server_error() {
        error!(%method, path, %status, id = ?id, "request failed");
    } else {
        debug!(%method, path, %status, id = ?id, "request");
    }
    response.headers_mut().entry(REQUEST_ID).or_insert(id);
    response
}

/// Clients give up for good when `/ping` answers 401, so it never does (contract: execd §3.1).
fn is_ping(method: &Method, path: &str) -> bool {
    method == Method::GET && path == "/ping"
}

/// The client's id when it is a sane one, else a new one.
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

/// The reference answers with `error` alone; some official clients need the other two.
fn unauthorized() -> Response {
    let message = "Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN";
    let body = json!({ "error": message, "code": code::UNAUTHORIZED, "message": message });
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
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
        let token = Token::new(Some("secret".into()));
        assert!(token.admits(&with(b"secret")));
        for wrong in [&b"secre"[..], b"secret ", b"", b"\xff"] {
            assert!(!token.admits(&with(wrong)));
        }
        assert!(!token.admits(&HeaderMap::new()));
        assert!(Token::new(None).admits(&HeaderMap::new()));
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

//! The API key of a request (contract: lifecycle §2): who sends it, and whether the route is for them.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{Extensions, HeaderMap, StatusCode};
use osb_protocol::error::code;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tracing::warn;

use super::{
    access, audited,
    client::{self, Client},
    error::ApiError,
    extract,
    throttle::{KeyFailure, Throttle},
};
use crate::{
    audit::{self, AuditTrail},
    identity::{Authenticator, Denied, Principal},
};

/// Wrong keys that a client may send in a row: a program with an old key tries for some minutes.
const WRONG_KEYS: u32 = 100;

/// What a request's key amounts to.
pub(super) type Verdict = Result<Arc<Principal>, Denied>;

/// The error answer to a request without a usable key.
pub(super) fn refusal(denied: Denied) -> ApiError {
    let refuse = |code, message| ApiError::new(StatusCode::UNAUTHORIZED, code, message);
    match denied {
        Denied::Missing => refuse(
            code::MISSING_API_KEY,
            "the header OPEN-SANDBOX-API-KEY is missing: every call needs the server's API key",
        ),
        Denied::Wrong => refuse(
            code::INVALID_API_KEY,
            "the API key in the header OPEN-SANDBOX-API-KEY is not this server's",
        ),
        Denied::Unavailable => {
            let message = "the service that knows the tenants' API keys does not answer; try again";
            let code = code::TENANT_PROVIDER_UNAVAILABLE;
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
        }
        Denied::Throttled => {
            let message = "too many wrong API keys from this address; wait some seconds";
            let status = StatusCode::TOO_MANY_REQUESTS;
            ApiError::new(status, code::TOO_MANY_REQUESTS, message)
        }
    }
}

/// Compares in a time that does not depend on where the secrets differ.
pub(super) fn equal(given: &[u8], secret: &SecretString) -> bool {
    given.ct_eq(secret.expose_secret().as_bytes()).into()
}

/// Who sends a request with these headers. A client that sent many wrong keys cannot make the server
/// ask another service about more of them.
pub(super) async fn authenticate(
    keys: &Authenticator,
    throttle: &Throttle,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Verdict {
    let may_ask = || {
        let client = client::of(extensions);
        throttle.admits_key(client.group(), WRONG_KEYS, Instant::now())
    };
    keys.authenticate(headers, may_ask).await
}

/// Counts a refusal of a wrong key; many of one client become [`Denied::Throttled`].
pub(super) fn count(throttle: &Throttle, client: &Client, denied: Denied) -> Denied {
    if denied != Denied::Wrong {
        return denied;
    }
    match throttle.record_failure(client.group(), WRONG_KEYS, Instant::now()) {
        KeyFailure::Counted => {}
        KeyFailure::Last => warn!(address = %client.address, "many wrong API keys were sent"),
        KeyFailure::TooMany => return Denied::Throttled,
    }
    denied
}

/// Returns a request whose principal may call its route, with the principal in its extensions, or the
/// response to any other. Many wrong keys of one client are answered 429.
pub(super) async fn require(
    keys: &Authenticator,
    throttle: &Throttle,
    trail: &AuditTrail,
    mut request: Request,
) -> Result<Request, Response> {
    let (headers, extensions) = (request.headers(), request.extensions());
    let denied = match authenticate(keys, throttle, headers, extensions).await {
        Ok(principal) => {
            if let Err(forbidden) = access::check(&principal, &request) {
                let refusal = (StatusCode::FORBIDDEN, code::FORBIDDEN);
                audited::deny(trail, &request, audit::actor(&principal), refusal);
                return Err(forbidden.refuse(request).await);
            }
            request.extensions_mut().insert(principal);
            return Ok(request);
        }
        Err(denied) => denied,
    };
    let denied = count(throttle, &client::of(request.extensions()), denied);
    record_denial(trail, &request, denied);
    extract::drain(request.into_body()).await;
    Err(refusal(denied).into_response())
}

/// Records a request that is refused for its key.
pub(super) fn record_denial(trail: &AuditTrail, request: &Request, denied: Denied) {
    if denied != Denied::Unavailable {
        let refusal = refusal(denied);
        let reason = (refusal.status(), refusal.code());
        audited::deny(trail, request, audit::unknown(""), reason);
    }
}

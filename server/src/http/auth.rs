//! The API key (contract: lifecycle §2).

use std::time::Instant;

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use osb_protocol::{error::code, headers};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tracing::warn;

use super::{
    client,
    console::Keys,
    error::ApiError,
    extract,
    throttle::{KeyFailure, Throttle},
};

/// Wrong keys that a client may send in a row: a program with an old key tries for some minutes.
const WRONG_KEYS: u32 = 100;

/// The keys that open the API; none means that it is open to everybody.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys(Option<SecretString>);

/// What a request's key amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The right key, or none is needed.
    Admitted,
    /// None was sent.
    Missing,
    /// A wrong one was sent.
    Wrong,
}

impl ApiKeys {
    /// One key for everything.
    #[must_use]
    pub fn new(key: Option<SecretString>) -> Self {
        Self(key)
    }

    /// Whether requests need a key.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the headers of a request.
    #[must_use]
    pub fn verify(&self, headers: &HeaderMap) -> Verdict {
        let Some(key) = &self.0 else {
            return Verdict::Admitted;
        };
        match headers
            .get(headers::API_KEY)
            .map(http::HeaderValue::as_bytes)
        {
            None | Some(b"") => Verdict::Missing,
            Some(given) if equal(given, key) => Verdict::Admitted,
            Some(_) => Verdict::Wrong,
        }
    }
}

/// Compares in a time that does not depend on where the secrets differ.
pub(super) fn equal(given: &[u8], key: &SecretString) -> bool {
    given.ct_eq(key.expose_secret().as_bytes()).into()
}

impl Keys for ApiKeys {
    fn required(&self) -> bool {
        self.is_required()
    }

    fn check(&self, key: &str) -> bool {
        self.0
            .as_ref()
            .is_some_and(|known| equal(key.as_bytes(), known))
    }

    fn digest(&self, salt: &[u8; 16]) -> [u8; 32] {
        let key = self.0.as_ref().map(|key| key.expose_secret().as_bytes());
        Sha256::new()
            .chain_update(salt)
            .chain_update(key.unwrap_or_default())
            .finalize()
            .into()
    }
}

impl Verdict {
    /// The error answer, unless admitted.
    pub(super) fn refusal(self) -> Option<ApiError> {
        let refuse = |code, message| Some(ApiError::new(StatusCode::UNAUTHORIZED, code, message));
        match self {
            Self::Admitted => None,
            Self::Missing => refuse(
                code::MISSING_API_KEY,
                "the header OPEN-SANDBOX-API-KEY is missing: every call needs the server's API key",
            ),
            Self::Wrong => refuse(
                code::INVALID_API_KEY,
                "the API key in the header OPEN-SANDBOX-API-KEY is not this server's",
            ),
        }
    }
}

/// Returns a request that has the key, or the response to one that has not. Many wrong keys of one
/// client are answered 429.
pub(super) async fn require(
    keys: &ApiKeys,
    throttle: &Throttle,
    request: Request,
) -> Result<Request, Response> {
    let verdict = keys.verify(request.headers());
    let Some(mut refusal) = verdict.refusal() else {
        return Ok(request);
    };
    if verdict == Verdict::Wrong {
        let client = client::of(request.extensions());
        match throttle.record_failure(client.group(), WRONG_KEYS, Instant::now()) {
            KeyFailure::Counted => {}
            KeyFailure::Last => warn!(address = %client.address, "many wrong API keys were sent"),
            KeyFailure::TooMany => {
                let message = "too many wrong API keys from this address; wait some seconds";
                let status = StatusCode::TOO_MANY_REQUESTS;
                refusal = ApiError::new(status, code::TOO_MANY_REQUESTS, message);
            }
        }
    }
    extract::drain(request.into_body()).await;
    Err(refusal.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_key_is_admitted() {
        let keys = ApiKeys::new(Some(SecretString::from("k1 ")));
        let verify = |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(headers::API_KEY, value.parse().unwrap());
            }
            keys.verify(&headers)
        };
        assert_eq!(verify(None), Verdict::Missing);
        assert_eq!(verify(Some("")), Verdict::Missing);
        assert_eq!(verify(Some("k1")), Verdict::Wrong);
        assert_eq!(verify(Some("k1 ")), Verdict::Admitted);
        assert_eq!(
            ApiKeys::default().verify(&HeaderMap::new()),
            Verdict::Admitted
        );
        assert!(keys.check("k1 ") && !keys.check("") && !ApiKeys::default().check(""));
        let digest = keys.digest(&[1; 16]);
        assert_eq!(digest, keys.digest(&[1; 16]));
        assert_ne!(digest, keys.digest(&[2; 16]), "as the salt differs");
        assert_ne!(digest, ApiKeys::default().digest(&[1; 16]));
    }
}

//! The HTTP service that knows the tenants' keys: one request for each question.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use osb_protocol::headers;
use secrecy::ExposeSecret;
use serde::Deserialize;
use tracing::warn;

use super::super::{super::rules, HttpOptions, TenantError};
use crate::address;

/// How long an answer without a `ttl` counts.
const TTL: Duration = Duration::from_secs(30);
/// Longest time that any answer counts.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Largest answer, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Asks the service.
#[derive(Debug)]
pub(super) struct Provider {
    http: reqwest::Client,
    endpoint: String,
    timeout: Duration,
    auth: Option<(HeaderName, HeaderValue)>,
}

/// What the service says of a key.
#[derive(Debug)]
pub(super) enum Answer {
    /// It belongs to this tenant.
    Tenant {
        /// Name of the tenant.
        name: String,
        /// How long this counts.
        ttl: Duration,
    },
    /// The service does not know it.
    Unknown,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ProviderFailure {
    /// The service cannot be reached, or is silent: it would not answer other questions either.
    Away(String),
    /// It answered something else. Another key may fare better.
    BadAnswer(String),
}

#[derive(Deserialize)]
struct Body {
    namespace: String,
    ttl: Option<f64>,
}

impl Provider {
    pub(super) fn new(options: HttpOptions) -> Result<Self, TenantError> {
        let shown = address::shown(&options.endpoint);
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| TenantError::Client {
            endpoint: shown.clone(),
            source,
        };
        let auth = match &options.auth {
            None => None,
            Some((name, value)) => {
                let name: HeaderName = name.parse().map_err(|it| refused(Box::new(it)))?;
                let value = HeaderValue::from_str(value.expose_secret());
                let mut value = value.map_err(|it| refused(Box::new(it)))?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        if !options.endpoint.starts_with("https://") {
            warn!(
                endpoint = shown,
                "API keys are sent to the tenant provider without TLS"
            );
        }
        let http = osb_client::default_http().map_err(|error| refused(Box::new(error)))?;
        Ok(Self {
            http,
            endpoint: options.endpoint,
            timeout: options.timeout,
            auth,
        })
    }

    /// Longest time of one question.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks whose key this is.
    pub(super) async fn ask(&self, key: &[u8]) -> Result<Answer, ProviderFailure> {
        let away = |error: reqwest::Error| ProviderFailure::Away(error.without_url().to_string());
        let bad = |reason: String| Err(ProviderFailure::BadAnswer(reason));
        let Ok(mut key) = HeaderValue::from_bytes(key) else {
            return Ok(Answer::Unknown);
        };
        key.set_sensitive(true);
        let mut request = self.http.get(&self.endpoint).header(headers::API_KEY, key);
        if let Some((name, value)) = &self.auth {
            request = request.header(name, value);
        }
        let response = request.timeout(self.timeout).send().await.map_err(away)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Ok(Answer::Unknown),
            other => return bad(format!("it answered {other}")),
        }
        let mut response = response;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_MAX {
                return bad(format!("its answer has more than {ANSWER_MAX} bytes"));
            }
        }
        let Ok(body) = serde_json::from_slice::<Body>(&body) else {
            return bad("its answer is not JSON with a namespace".to_owned());
        };
        let name = match rules::tenant_name(&body.namespace) {
            Ok(name) => name,
            Err(error) => return bad(format!("its namespace {}", error.msg)),
        };
        let ttl = match body.ttl.map(Duration::try_from_secs_f64) {
            None => TTL,
            Some(Ok(ttl)) => ttl.min(TTL_MAX),
            Some(Err(_)) => return bad("its ttl is not a number of seconds".to_owned()),
        };
        Ok(Answer::Tenant { name, ttl })
    }
}

impl std::fmt::Display for ProviderFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(reason) | Self::BadAnswer(reason) => f.write_str(reason),
        }
    }
}

//! One attempt to deliver a message.

use std::{
    error::Error as StdError,
    sync::{Arc, OnceLock},
    time::Duration,
};

use osb_protocol::WireTime;
use osb_service::{ErrorChain, build_info::VERSION};
use reqwest::{
    Certificate, Client, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
    redirect,
};
use rustls::crypto::CryptoProvider;
use tracing::debug;
use url::Url;

use super::{
    address::{AddressRules, GuardedResolver, HostLookup, RefusedAddress},
    schedule::retry_after,
    secret::SigningKey,
};

/// Headers of Standard Webhooks.
const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
/// Most bytes of an answer that are read, so that its connection can be used again.
const ANSWER_MAX: usize = 16 << 10;
/// How long a connection without a request stays open.
const IDLE: Duration = Duration::from_secs(30);
/// Longest description of a failure, in bytes.
const ERROR_MAX: usize = 300;

/// What an attempt led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Status of the answer, if there was one.
    pub(super) answer: Option<u16>,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The receiver has it.
    Delivered,
    /// The receiver wants nothing any more: 410.
    Gone,
    /// It did not work, and may work later.
    Failed {
        error: String,
        /// What the receiver asks for.
        retry_after: Option<Duration>,
    },
}

/// Sends messages.
#[derive(Debug)]
pub(super) struct Sender {
    /// Made for the first message: reading the certificate authorities of the machine takes longer
    /// than the rest of a server's start.
    http: OnceLock<Client>,
    rules: AddressRules,
    /// Trusted besides those of the machine.
    authorities: Vec<Certificate>,
    timeout: Duration,
}

impl Sender {
    pub(super) fn new(
        rules: AddressRules,
        authorities: Vec<Certificate>,
        timeout: Duration,
    ) -> Self {
        Self {
            http: OnceLock::new(),
            rules,
            authorities,
            timeout,
        }
    }

    /// A client that follows no redirect, uses no proxy and connects to permitted addresses only.
    fn client(&self) -> Result<Client, reqwest::Error> {
        if let Some(http) = self.http.get() {
            return Ok(http.clone());
        }
        if CryptoProvider::get_default().is_none() {
            // Loses only against another thread that installs one at this moment.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let resolver = Arc::new(GuardedResolver {
            rules: self.rules.clone(),
            lookup: Arc::new(HostLookup),
        });
        let builder = || {
            Client::builder()
                .user_agent(format!("OpenSandbox-Webhooks/{VERSION}"))
                .redirect(redirect::Policy::none())
                .no_proxy()
                .dns_resolver(Arc::clone(&resolver))
                .timeout(self.timeout)
                .pool_max_idle_per_host(1)
                .pool_idle_timeout(IDLE)
                .tcp_nodelay(true)
        };
        let further = || self.authorities.iter().cloned();
        // A machine without certificate authorities can still talk plain HTTP.
        let http = builder().tls_certs_merge(further()).build();
        let http = http.or_else(|error| {
            debug!(error = %ErrorChain(&error), "no TLS roots");
            builder().tls_certs_only(further()).build()
        })?;
        Ok(self.http.get_or_init(|| http).clone())
    }

    /// Sends a message, signed at this moment.
    pub(super) async fn send(
        &self,
        url: &Url,
        key: &SigningKey,
        id: &str,
        body: String,
        now: WireTime,
    ) -> Attempt {
        if let Err(refused) = self.rules.check_host(url) {
            return Attempt::failed(None, refused.to_string());
        }
        let timestamp = now.unix_ms().div_euclid(1000);
        let http = match self.client() {
            Ok(http) => http,
            Err(error) => return Attempt::failed(None, self.describe(error)),
        };
        let request = http
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ID, id)
            .header(TIMESTAMP, timestamp)
            .header(SIGNATURE, key.sign(id, timestamp, &body))
            .body(body);
        match request.send().await {
            Ok(response) => read(response, now).await,
            Err(error) => Attempt::failed(None, self.describe(error)),
        }
    }

    /// The failure in words, without the URL, which may contain a secret.
    fn describe(&self, error: reqwest::Error) -> String {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(at) = cause {
            if let Some(refused) = at.downcast_ref::<RefusedAddress>() {
                return refused.to_string();
            }
            cause = at.source();
        }
        if error.is_timeout() {
            return format!("no answer within {} s", self.timeout.as_secs_f64());
        }
        let mut text = ErrorChain(&error.without_url()).to_string();
        text.truncate(text.floor_char_boundary(ERROR_MAX));
        text
    }
}

impl Attempt {
    fn failed(answer: Option<u16>, error: String) -> Self {
        Self {
            answer,
            outcome: Outcome::Failed {
                error,
                retry_after: None,
            },
        }
    }
}

async fn read(mut response: Response, now: WireTime) -> Attempt {
    let status = response.status();
    let asked = response
        .headers()
        .get(RETRY_AFTER)
        .filter(|_| {
            [
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::SERVICE_UNAVAILABLE,
            ]
            .contains(&status)
        })
        .and_then(|value| retry_after(value.to_str().ok()?, now));
    // Its content means nothing; the status has arrived, whatever becomes of the rest.
    let mut left = ANSWER_MAX;
    while let Ok(Some(chunk)) = response.chunk().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    let outcome = match status {
        status if status.is_success() => Outcome::Delivered,
        StatusCode::GONE => Outcome::Gone,
        status if status.is_redirection() => Outcome::Failed {
            error: format!(
                "the answer was {}: redirects are not followed",
                status.as_u16()
            ),
            retry_after: None,
        },
        status => Outcome::Failed {
            error: format!("the answer was {}", status.as_u16()),
            retry_after: asked,
        },
    };
    Attempt {
        answer: Some(status.as_u16()),
        outcome,
    }
}

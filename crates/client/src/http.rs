//! Requests under one base URL, and the reading of their answers.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use osb_protocol::{headers::REQUEST_ID, lifecycle::Endpoint};
use reqwest::{
    Client, ClientBuilder, Method, RequestBuilder, Response,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use url::Url;

use crate::{ApiError, Error};

/// Limit of a whole exchange, unless the caller sets another.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of an error body that are read.
const ERROR_BODY_MAX: usize = 64 * 1024;

/// Most bytes that are read of an answer that is not used.
const UNUSED_MAX: usize = 64 << 10;
/// Longest answer that any number of calls may read at the same time, in bytes.
const SHORT: usize = 1 << 20;
/// Permits for long answers.
static LONG_ANSWERS: Semaphore = Semaphore::const_new(4);
/// Longest time that the rest of a long answer may take: others wait for the permit.
const LONG_TIME: Duration = Duration::from_secs(5);

const USER_AGENT: &str = concat!("OpenSandbox-Rust-SDK/", env!("CARGO_PKG_VERSION"));

/// The HTTP client used where none is brought: no redirects, no proxies from the environment, and
/// a crypto provider installed for the process if it has none.
///
/// # Errors
/// When the TLS configuration is refused.
pub fn default_http() -> Result<Client, Error> {
    // A machine without certificate authorities can still talk plain HTTP.
    builder().build().map_err(Error::from).or_else(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "no TLS roots");
        plain_http()
    })
}

/// An HTTP client for plain HTTP only, which is what a server speaks to its sandboxes. It trusts no
/// certificate authority: reading the machine's takes longer than the rest of a program's start.
///
/// # Errors
/// When the TLS configuration is refused.
pub fn plain_http() -> Result<Client, Error> {
    Ok(builder().tls_certs_only([]).build()?)
}

fn builder() -> ClientBuilder {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Loses only against another thread that installs one at this moment.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .tcp_nodelay(true)
        // Terminals upgrade to WebSocket, which HTTP/2 connections cannot.
        .http1_only()
}

/// One service: its address and the headers of every request.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) http: Client,
    base: Url,
    headers: HeaderMap,
}

impl Service {
    pub(crate) fn new(http: Client, base: Url) -> Result<Self, Error> {
        if base.cannot_be_a_base() || !matches!(base.scheme(), "http" | "https") {
            return Err(Error::argument(
                "the address",
                "it must be an http or https URL",
            ));
        }
        Ok(Self {
            http,
            base,
            headers: HeaderMap::new(),
        })
    }

    /// The service at an endpoint of the lifecycle API, with its headers.
    pub(crate) fn at(http: Client, scheme: &str, endpoint: &Endpoint) -> Result<Self, Error> {
        let base = Url::parse(&format!("{scheme}://{}", endpoint.endpoint))
            .map_err(|error| Error::argument("the endpoint", error))?;
        let mut service = Self::new(http, base)?;
        for (name, value) in &endpoint.headers {
            service.set_header(name, value)?;
        }
        Ok(service)
    }

    /// Sends `value` with every request; it is never logged.
    pub(crate) fn set_header(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let name: HeaderName = name
            .parse()
            .map_err(|error| Error::argument("a header name", error))?;
        let mut value: HeaderValue = value
            .parse()
            .map_err(|error| Error::argument("a header value", error))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// A request to `path`, whose segments are escaped; bounded by [`REQUEST_TIMEOUT`].
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.endless(method, path).timeout(REQUEST_TIMEOUT)
    }

    /// A request without a time limit: a stream.
    pub(crate) fn endless(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .expect("checked to be a base when the service was made")
            .pop_if_empty()
            .extend(path);
        self.http.request(method, url).headers(self.headers.clone())
    }
}

/// Sends a request and turns error answers into errors.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, Error> {
    let response = request.send().await?;
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(api_error(response).await.into())
    }
}

/// Reads an error answer.
pub(crate) async fn api_error(mut response: Response) -> ApiError {
    let status = response.status();
    let request_id = response
        .headers()
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned);
    let mut body = BytesMut::new();
    // Of an incomplete body, the part that arrived is used.
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() >= ERROR_BODY_MAX {
            break;
        }
    }
    ApiError::read(status, request_id, &body)
}

/// Sends a request whose answer is JSON.
pub(crate) async fn json<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, Error> {
    let body: Bytes = send(request).await?.bytes().await?;
    serde_json::from_slice(&body).map_err(Error::Body)
}

/// The same for an answer of at most `most` bytes, from a program that may not be what it should be.
/// Only a few long ones are read at a time.
pub(crate) async fn json_within<T: DeserializeOwned + Send + 'static>(
    request: RequestBuilder,
    most: usize,
) -> Result<T, Error> {
    let mut response = send(request).await?;
    let mut body = BytesMut::new();
    if read(&mut response, &mut body, SHORT.min(most)).await? {
        return serde_json::from_slice(&body).map_err(Error::Body);
    }
    if body.len() > most {
        return Err(Error::TooLong(most));
    }
    let permit = LONG_ANSWERS.acquire().await;
    let rest = read(&mut response, &mut body, most);
    let Ok(ended) = tokio::time::timeout(LONG_TIME, rest).await else {
        return Err(Error::Unexpected("it does not end"));
    };
    if !ended? {
        return Err(Error::TooLong(most));
    }
    // Parsing a long answer would block the runtime's thread.
    let parsed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        serde_json::from_slice(&body)
    });
    let parsed = parsed
        .await
        .map_err(|_| Error::Unexpected("it cannot be read"))?;
    parsed.map_err(Error::Body)
}

/// Reads an answer until it ends or has more than `most` bytes. Returns whether it has ended.
async fn read(
    response: &mut Response,
    body: &mut BytesMut,
    most: usize,
) -> Result<bool, reqwest::Error> {
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends a request whose answer has no content.
pub(crate) async fn done(request: RequestBuilder) -> Result<(), Error> {
    let mut response = send(request).await?;
    let mut read = 0;
    // Read to the end, so that the connection can be used again; one that goes on is closed.
    while read <= UNUSED_MAX
        && let Some(chunk) = response.chunk().await?
    {
        read += chunk.len();
    }
    Ok(())
}

//! One sandbox from inside: its execd (contract: execd).

mod command;
mod files;
mod history;
mod ports;
mod pty;

use osb_protocol::{execd::metrics::Metrics, lifecycle::Endpoint};
use reqwest::{Client, Method, RequestBuilder};
use serde::de::DeserializeOwned;

use crate::{
    Error,
    http::{self, Service},
};

pub use command::{Events, Logs, OUTPUT_MAX, Output};
pub use files::{Download, Find, Portion, Upload};
pub use pty::{Attach, ExecdSocket, PtyFrame, PtyInput, PtyOutput, SocketMessage};

/// Longest answer that is read, in bytes: a list of some 100,000 files.
const ANSWER_MAX: usize = 32 << 20;

/// The execd of one sandbox. Clones share connections.
#[derive(Clone, Debug)]
pub struct ExecdClient {
    service: Service,
}

impl ExecdClient {
    /// A client of the execd at `endpoint`, as the lifecycle API returns it: with its headers, and
    /// without a scheme, which is `http` or `https` as for the server.
    ///
    /// # Errors
    /// [`Error::Argument`] when the endpoint cannot be used.
    pub fn new(scheme: &str, endpoint: &Endpoint) -> Result<Self, Error> {
        Self::with_http(http::default_http()?, scheme, endpoint)
    }

    /// The same with an HTTP client of your own. It should neither follow redirects nor limit
    /// whole exchanges; terminals need it to speak HTTP/1.1.
    ///
    /// # Errors
    /// See [`ExecdClient::new`].
    pub fn with_http(http: Client, scheme: &str, endpoint: &Endpoint) -> Result<Self, Error> {
        let service = Service::at(http, scheme, endpoint)?;
        Ok(Self { service })
    }

    /// Whether execd answers: the sandbox is ready (contract: execd §3.1).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ping(&self) -> Result<(), Error> {
        http::done(self.service.request(Method::GET, &["ping"])).await
    }

    /// What the sandbox uses and may use.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn metrics(&self) -> Result<Metrics, Error> {
        answer(self.service.request(Method::GET, &["metrics"])).await
    }
}

/// Reads an answer of execd: the sandbox may have put another program in its place.
async fn answer<T: DeserializeOwned + Send + 'static>(call: RequestBuilder) -> Result<T, Error> {
    http::json_within(call, ANSWER_MAX).await
}

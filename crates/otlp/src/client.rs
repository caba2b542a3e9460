//! HTTP client that sends exports to the collector.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use osb_service::Supervisor;
use tokio::{net::TcpStream, runtime::Handle, time::timeout};
use tracing::{info, warn};

use crate::{
    OtlpError,
    destination::{Destination, Signal},
    limits,
};

/// HTTP client. Without TLS it opens a connection for each export, once a minute.
#[derive(Debug)]
pub(crate) struct Client {
    timeout: Duration,
    /// For a collector behind TLS.
    #[cfg(feature = "tls")]
    tls: Option<reqwest::Client>,
    tasks: Supervisor,
    runtime: Handle,
    signal: Signal,
    trouble: Mutex<FailureLog>,
}

/// Reason why an export was not sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the address of the collector has no host")]
    Host,
    #[error("cannot reach the collector")]
    Connect(#[source] std::io::Error),
    #[error("the collector does not answer as a web server would")]
    Http(#[source] hyper::Error),
    #[error("the collector's answer cannot be read")]
    Answer(#[source] HttpError),
    #[error("the collector did not answer in time")]
    Late,
    #[cfg(feature = "tls")]
    #[error("the collector cannot be asked over TLS")]
    Tls(#[source] reqwest::Error),
    #[cfg(feature = "tls")]
    #[error("the collector's answer is larger than {} bytes", limits::ANSWER)]
    TooLarge,
}

impl Client {
    /// Creates a client for a destination. Must be called within the runtime that it uses.
    ///
    /// # Errors
    /// When the certificates to trust cannot be read.
    pub(crate) fn new(
        signal: Signal,
        to: &Destination,
        tasks: Supervisor,
    ) -> Result<Self, OtlpError> {
        Ok(Self {
            timeout: to.timeout,
            #[cfg(feature = "tls")]
            tls: tls::client(to)?,
            tasks,
            runtime: Handle::current(),
            signal,
            trouble: Mutex::default(),
        })
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The exporter calls from a thread outside the runtime, but sockets need the runtime.
        let sent = {
            let _within = self.runtime.enter();
            #[cfg(feature = "tls")]
            let tls = self.tls.clone();
            let send = async move {
                #[cfg(feature = "tls")]
                if let Some(client) = tls {
                    return tls::send(&client, request).await;
                }
                send(request).await
            };
            self.tasks
                .spawn("telemetry export", timeout(self.timeout, send))
        };
        let result = match sent.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(SendError::Late),
            // The daemon is stopping, which is logged elsewhere.
            Err(broken) => return Err(broken.into()),
        };
        let mut trouble = self.trouble.lock().expect("no holder of this lock panics");
        trouble.note(self.signal, &result, Instant::now());
        Ok(result?)
    }
}

async fn send(mut request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
    let authority = request.uri().authority().ok_or(SendError::Host)?.clone();
    let host = authority.host().trim_matches(['[', ']']);
    let port = authority.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(SendError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(SendError::Http)?;
    let named = HeaderValue::try_from(authority.as_str()).map_err(|_| SendError::Host)?;
    request.headers_mut().insert(header::HOST, named);
    if let Some(path) = request.uri().path_and_query() {
        *request.uri_mut() = Uri::from(path.clone());
    }
    let mut answer = std::pin::pin!(async {
        let response = sender.send_request(request.map(Full::new));
        let (head, body) = response.await.map_err(SendError::Http)?.into_parts();
        let body = Limited::new(body, limits::ANSWER).collect();
        let body = body.await.map_err(SendError::Answer)?.to_bytes();
        Ok(Response::from_parts(head, body))
    });
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The body contains the reason of a failure.
        _ended = connection => answer.await,
    }
}

/// Exports over TLS.
#[cfg(feature = "tls")]
mod tls {
    use bytes::{Bytes, BytesMut};
    use http::{Request, Response, uri::Scheme};

    use super::SendError;
    use crate::{OtlpError, destination::Destination, limits};

    /// Makes a client for a destination behind TLS; `None` if it is not.
    pub(super) fn client(to: &Destination) -> Result<Option<reqwest::Client>, OtlpError> {
        if to.address.scheme() != Some(&Scheme::HTTPS) {
            return Ok(None);
        }
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(0)
            .no_proxy();
        if let Some(path) = &to.certificate {
            let pem = std::fs::read(path).map_err(OtlpError::Certificate)?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(OtlpError::Tls)?;
            builder = builder.tls_certs_merge(roots);
        }
        builder.build().map(Some).map_err(OtlpError::Tls)
    }

    pub(super) async fn send(
        client: &reqwest::Client,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, SendError> {
        let request = reqwest::Request::try_from(request).map_err(SendError::Tls)?;
        let mut response = client.execute(request).await.map_err(SendError::Tls)?;
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(SendError::Tls)? {
            if body.len() + chunk.len() > limits::ANSWER {
                return Err(SendError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let mut answer = Response::new(body.freeze());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = response.headers().clone();
        Ok(answer)
    }
}

/// Log of failed exports: reports failures at intervals, and the first success after one.
#[derive(Debug, Default)]
struct FailureLog {
    /// Failed attempts since the last report.
    failures: u64,
    reported: Option<Instant>,
    /// Whether a failure was reported and nothing has been sent since.
    lasting: bool,
}

impl FailureLog {
    fn note(&mut self, signal: Signal, result: &Result<Response<Bytes>, SendError>, now: Instant) {
        let refused = |response: &Response<Bytes>| !response.status().is_success();
        match result {
            Ok(response) if refused(response) => {
                self.failed(signal, None, Some(response.status()), now);
            }
            Ok(_) => self.succeeded(signal),
            Err(error) => self.failed(signal, Some(error), None, now),
        }
    }

    fn failed(
        &mut self,
        signal: Signal,
        error: Option<&SendError>,
        status: Option<StatusCode>,
        now: Instant,
    ) {
        self.failures += 1;
        let recent = |reported: Instant| now.duration_since(reported) < limits::TROUBLE;
        if self.reported.is_some_and(recent) {
            return;
        }
        warn!(
            error = error.map(|error| error as &dyn std::error::Error),
            status = status.map(|status| status.as_u16()),
            failures = self.failures,
            "{} cannot be sent",
            signal.name()
        );
        self.reported = Some(now);
        self.lasting = true;
        self.failures = 0;
    }

    fn succeeded(&mut self, signal: Signal) {
        if std::mem::take(&mut self.lasting) {
            info!("{} are sent again", signal.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_are_logged_sparsely() {
        let mut trouble = FailureLog::default();
        let begin = Instant::now();
        let refused = || {
            let response = Response::builder().status(503).body(Bytes::new());
            Ok(response.unwrap())
        };
        trouble.note(Signal::Metrics, &refused(), begin);
        assert!(
            trouble.lasting && trouble.failures == 0,
            "it is reported at once"
        );
        trouble.note(Signal::Metrics, &Err(SendError::Late), begin);
        trouble.note(Signal::Metrics, &refused(), begin + limits::TROUBLE / 2);
        assert_eq!(trouble.failures, 2, "they are counted meanwhile");
        trouble.note(Signal::Metrics, &Ok(Response::default()), begin);
        assert!(!trouble.lasting);
        trouble.note(Signal::Metrics, &refused(), begin);
        assert!(
            !trouble.lasting,
            "coming and going is not reported each time"
        );
        trouble.note(Signal::Metrics, &refused(), begin + limits::TROUBLE);
        assert!(
            trouble.lasting && trouble.failures == 0,
            "it is reported again"
        );
    }
}

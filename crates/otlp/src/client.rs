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

use crate::{destination::Signal, limits};

/// HTTP client without TLS. It opens a connection for each export, once a minute.
#[derive(Debug)]
pub(crate) struct Client {
    timeout: Duration,
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
}

impl Client {
    /// Creates a client with a time limit for each attempt. Must be called within the runtime that
    /// it uses.
    pub(crate) fn new(signal: Signal, timeout: Duration, tasks: Supervisor) -> Self {
        #[cfg(target_env = "gnu")]
        names::resolve_without_plugins();
        Self {
            timeout,
            tasks,
            runtime: Handle::current(),
            signal,
            trouble: Mutex::default(),
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The exporter calls from a thread outside the runtime, but sockets need the runtime.
        let sent = {
            let _within = self.runtime.enter();
            let sent = timeout(self.timeout, send(request));
            self.tasks.spawn("telemetry export", sent)
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

/// Resolver for host names of collectors.
#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "a function of the C library that no crate wraps"
)]
mod names {
    use std::ffi::{c_char, c_int};

    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    /// Resolves names with `/etc/hosts` and DNS only, whatever the image's `nsswitch.conf` says.
    /// The C library linked into this program supports both by itself. For other sources it would
    /// load plugins of the image's own C library, which differs and may crash.
    pub(super) fn resolve_without_plugins() {
        let (database, services) = (c"hosts", c"files dns");
        // SAFETY: both strings are static and end with a NUL.
        let set = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        debug_assert_eq!(set, 0, "it knows the database and the services");
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

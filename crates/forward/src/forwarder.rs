//! The forwarder: one request in, one response out.

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    uri::Authority,
};
use http_body::Body as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use osb_service::Supervisor;
use tokio::time::Instant;

use crate::{
    Awaited, Detour, ForwardError, HeaderRules, Lease, Limits, Target,
    body::ResponseBody,
    headers,
    lease::withdrawn,
    patience::next_look,
    pool::{Connection, Pool, Reached, SendFailure},
    request_body::{Progress, RequestBody},
    tunnel::Upgrade,
};

/// Most attempts over connections that earlier requests left, each of which the backend may just be
/// closing. The last one uses a new connection.
const REUSES: usize = 3;
/// Port that a `Host` header leaves out.
const HTTP_PORT: u16 = 80;

/// Forwards requests over a pool of connections. Clones share the pool.
#[derive(Clone, Debug)]
pub struct Forwarder {
    pool: Pool,
    tasks: Supervisor,
}

impl Forwarder {
    /// Creates a forwarder without connections. Its tunnels are tasks of `tasks` and end when that
    /// stops; plain exchanges last as long as their client stays connected.
    #[must_use]
    pub fn new(limits: Limits, tasks: &Supervisor) -> Self {
        Self {
            pool: Pool::new(limits, tasks),
            tasks: tasks.clone(),
        }
    }

    /// Sends a request to `to` and returns the response as soon as its head arrives. Dropping the
    /// future, or later the body, aborts the exchange with the backend.
    ///
    /// An upgrade that the backend accepts continues in a task; the returned `101` must be sent to
    /// the client by the hyper connection that received the request.
    ///
    /// # Errors
    /// See [`ForwardError`]. After the head the body carries a [`BodyError`](crate::BodyError).
    pub async fn forward(
        &self,
        request: Request<Body>,
        to: Target,
        rules: &HeaderRules,
    ) -> Result<Response<Body>, ForwardError> {
        self.forward_or(request, to, rules, || None).await
    }

    /// As [`Self::forward`], but where nothing listens at `to`, the request takes the detour, if there
    /// is one. That is decided before anything of the request is sent.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub async fn forward_or(
        &self,
        mut request: Request<Body>,
        to: Target,
        rules: &HeaderRules,
        detour: impl FnOnce() -> Option<Detour>,
    ) -> Result<Response<Body>, ForwardError> {
        if request.method() == Method::CONNECT {
            return Err(ForwardError::BadRequest("CONNECT opens no tunnel here"));
        }
        let lease = request.extensions().get::<Lease>().cloned();
        let upgrade = Upgrade::take(&mut request);
        let answered = async {
            let may_reuse = is_repeatable(&request);
            let reached = self.pool.reach(&to.authority, may_reuse, detour).await;
            let (reached, detour) = reached.map_err(ForwardError::from_connect)?;
            let (to, rules) = match &detour {
                Some(detour) => (detour.to.clone(), &detour.rules),
                None => (to, rules),
            };
            let backend = to.authority.clone();
            let outbound = outbound(request, to, rules, upgrade.as_ref());
            let progress = outbound.body().progress();
            let exchange = Exchange {
                pool: &self.pool,
                backend: &backend,
                progress: progress.as_deref(),
                lease: lease.as_ref(),
            };
            let (response, connection) = exchange.head(outbound, reached).await?;
            Ok::<_, ForwardError>((response, connection, progress, detour))
        };
        let (mut response, mut connection, progress, detour) = tokio::select! {
            biased;
            answered = answered => answered?,
            () = withdrawn(lease.as_ref()) => return Err(ForwardError::Withdrawn),
        };
        let rules = match &detour {
            Some(detour) => detour.rules(&response)?,
            None => rules,
        };

        // The HTTP version of the backend's connection may differ from that of the client's.
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response, connection, rules, upgrade);
        }
        if !headers::has_plain_transfer(response.headers()) {
            return Err(ForwardError::TransferCoding);
        }
        rules.apply_to_response(response.headers_mut());
        if progress.as_deref().is_some_and(Progress::sending) {
            connection.detach(&self.tasks);
        }
        let pool = self.pool.clone();
        Ok(response
            .map(|body| Body::new(ResponseBody::new(body, connection, pool, progress, lease))))
    }

    fn switch(
        &self,
        mut response: Response<Incoming>,
        connection: Connection,
        rules: &HeaderRules,
        upgrade: Option<Upgrade>,
    ) -> Result<Response<Body>, ForwardError> {
        let upgrade = upgrade.ok_or(ForwardError::UnaskedUpgrade)?;
        let backend: OnUpgrade = hyper::upgrade::on(&mut response);
        let protocol = headers::upgrade(response.headers());
        rules.apply_to_response(response.headers_mut());
        headers::set_upgrade(
            response.headers_mut(),
            protocol.unwrap_or_else(|| upgrade.protocol.clone()),
        );
        let limit = self.pool.limits().tunnel_idle;
        upgrade.connect(connection, backend, limit, &self.tasks);
        Ok(response.map(|_| Body::empty()))
    }
}

/// One request on its way to a backend.
struct Exchange<'a> {
    pool: &'a Pool,
    backend: &'a Authority,
    progress: Option<&'a Progress>,
    lease: Option<&'a Lease>,
}

impl Exchange<'_> {
    /// Sends a request and waits for the response head while either of them makes progress.
    ///
    /// A connection that an earlier request left may break at any time, because the backend closes it,
    /// and nothing shows whether the backend has read the request by then. So only a request that may
    /// be repeated uses one; any other gets a new connection.
    async fn head(
        &self,
        mut request: Request<RequestBody>,
        reached: Reached,
    ) -> Result<(Response<Incoming>, Connection), ForwardError> {
        let (mut kept, new) = match reached {
            Reached::Kept(connection) => (Some(connection), None),
            Reached::New(connection) => (None, Some(connection)),
        };
        for _ in 0..REUSES {
            let Some(mut connection) = kept.take() else {
                break;
            };
            let copy = copy_of(&request);
            let mut broken = match self.send(&mut connection, request).await {
                Ok(response) => return Ok((response, connection)),
                Err(SendFailure::Silent) => return Err(self.silent()),
                Err(SendFailure::Broken(broken)) => broken,
            };
            if let Some(unsent) = broken.take_message() {
                request = unsent;
                kept = self.pool.take(self.backend);
                continue;
            }
            let error = broken.into_error();
            if !is_disconnect(&error) {
                return Err(self.broken(error));
            }
            request = copy;
        }
        let mut connection = match new {
            Some(connection) => connection,
            None => {
                let connected = self.pool.connect(self.backend).await;
                connected.map_err(ForwardError::from_connect)?
            }
        };
        match self.send(&mut connection, request).await {
            Ok(response) => Ok((response, connection)),
            Err(SendFailure::Silent) => Err(self.silent()),
            Err(SendFailure::Broken(broken)) => Err(self.broken(broken.into_error())),
        }
    }

    async fn send(
        &self,
        connection: &mut Connection,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let idle = self.pool.limits().idle;
        let deadline = idle.map(|idle| Instant::now() + idle);
        let look = || {
            let sent = self.progress.map(Progress::last_moved);
            next_look(sent, idle?, self.lease)
        };
        connection.send(request, deadline, look).await
    }

    fn broken(&self, error: hyper::Error) -> ForwardError {
        let body_failed = self.progress.is_some_and(Progress::failed);
        ForwardError::from_exchange(error, body_failed)
    }

    fn silent(&self) -> ForwardError {
        let sending = self.progress.is_some_and(Progress::sending);
        ForwardError::Timeout(match sending {
            true => Awaited::RequestBody,
            false => Awaited::ResponseHead,
        })
    }
}

/// Whether a request changes nothing however often it arrives (RFC 9110 §9.2.1), and has no body, which
/// could be sent only once.
fn is_repeatable(request: &Request<Body>) -> bool {
    let is_safe = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    is_safe && request.body().is_end_stream()
}

/// Returns a copy of a request without a body.
fn copy_of(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::new(Body::empty()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Whether the backend disconnected before it answered, rather than sent something.
fn is_disconnect(error: &hyper::Error) -> bool {
    let is_io = || {
        let source = std::error::Error::source(error);
        source.is_some_and(|source| source.is::<std::io::Error>())
    };
    error.is_incomplete_message() || error.is_canceled() || is_io()
}

/// The `Host` of a backend.
fn host_of(backend: &Authority) -> HeaderValue {
    let text = match backend.port_u16() {
        Some(HTTP_PORT) => backend.host(),
        _ => backend.as_str(),
    };
    HeaderValue::from_str(text).expect("an authority is visible ASCII")
}

/// Builds the request for the backend.
fn outbound(
    request: Request<Body>,
    to: Target,
    rules: &HeaderRules,
    upgrade: Option<&Upgrade>,
) -> Request<RequestBody> {
    let (parts, body) = request.into_parts();
    let mut outbound = Request::new(RequestBody::new(body));
    *outbound.method_mut() = parts.method;
    *outbound.uri_mut() = Uri::from(to.path_and_query);
    *outbound.headers_mut() = parts.headers;
    if parts.version == Version::HTTP_2 {
        headers::join_cookies(outbound.headers_mut());
    }
    rules.apply_to_request(outbound.headers_mut(), &parts.uri);
    if !outbound.headers().contains_key(HOST) {
        let host = host_of(&to.authority);
        outbound.headers_mut().insert(HOST, host);
    }
    if let Some(upgrade) = upgrade {
        headers::set_upgrade(outbound.headers_mut(), upgrade.protocol.clone());
    }
    let unsized_body =
        !outbound.body().is_end_stream() && outbound.body().size_hint().exact().is_none();
    if unsized_body && !outbound.headers().contains_key(CONTENT_LENGTH) {
        // hyper would leave the body of a GET or HEAD out if nothing announced it.
        let chunked = HeaderValue::from_static("chunked");
        outbound.headers_mut().insert(TRANSFER_ENCODING, chunked);
    }
    outbound
}

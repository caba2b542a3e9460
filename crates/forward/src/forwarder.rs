//! The forwarder: one request in, one response out.

use std::{pin::pin, time::Duration};

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use osb_service::Supervisor;
use tokio::time::Instant;

use crate::{
    Awaited, ForwardError, HeaderRules, Lease, Limits, Target,
    body::{Progress, RequestBody, ResponseBody},
    headers,
    tunnel::Upgrade,
};

/// Silence after which the kernel sends keep-alive probes, which end tunnels to vanished backends.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// Forwards requests over a pool of connections. Clones share the pool.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client<HttpConnector, RequestBody>,
    limits: Limits,
    tasks: Supervisor,
}

impl Forwarder {
    /// Creates a forwarder without connections. Its tunnels are tasks of `tasks` and end when that
    /// stops; plain exchanges last as long as their client stays connected.
    #[must_use]
    pub fn new(limits: Limits, tasks: &Supervisor) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect));
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.keep)
            .pool_max_idle_per_host(limits.keep_per_backend)
            // Repeats only what hyper hands back untouched because the pooled connection was
            // gone before a byte was written, so no backend sees a request twice.
            .retry_canceled_requests(true)
            .http1_max_headers(limits.headers)
            // What browsers accept from old backends. Both are written anew for the client: a name
            // without blanks, a folded value on one line.
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .build(connector);
        Self {
            client,
            limits,
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
        mut request: Request<Body>,
        to: Target,
        rules: &HeaderRules,
    ) -> Result<Response<Body>, ForwardError> {
        if request.method() == Method::CONNECT {
            return Err(ForwardError::BadRequest("CONNECT opens no tunnel here"));
        }
        let lease = request.extensions().get::<Lease>().cloned();
        let upgrade = Upgrade::take(&mut request);
        let outbound = outbound(request, to, rules, upgrade.as_ref());
        let progress = outbound.body().progress();
        let mut response = self.head(outbound, progress.as_deref()).await?;

        // The HTTP version of the backend's connection may differ from that of the client's.
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response, rules, upgrade);
        }
        if !headers::has_plain_transfer(response.headers()) {
            return Err(ForwardError::TransferCoding);
        }
        rules.apply_to_response(response.headers_mut());
        Ok(response
            .map(|body| Body::new(ResponseBody::new(body, self.limits.idle, progress, lease))))
    }

    /// Waits for the response head while the request or the response makes progress.
    async fn head(
        &self,
        outbound: Request<RequestBody>,
        progress: Option<&Progress>,
    ) -> Result<Response<Incoming>, ForwardError> {
        let mut answer = self.client.request(outbound);
        let failed = |error| {
            let body_failed = progress.is_some_and(Progress::failed);
            ForwardError::from_client(error, body_failed)
        };
        let Some(idle) = self.limits.idle else {
            return answer.await.map_err(failed);
        };
        // Connecting has a limit of its own, which must not turn into this one.
        let mut deadline = pin!(tokio::time::sleep(self.limits.connect + idle));
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer.map_err(failed),
                () = &mut deadline => {}
            }
            match progress.map(|sent| sent.last_moved() + idle) {
                Some(next) if next > Instant::now() => deadline.as_mut().reset(next),
                _ => break,
            }
        }
        Err(ForwardError::Timeout(
            if progress.is_some_and(Progress::sending) {
                Awaited::RequestBody
            } else {
                Awaited::ResponseHead
            },
        ))
    }

    fn switch(
        &self,
        mut response: Response<Incoming>,
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
        upgrade.connect(backend, self.limits.tunnel_idle, &self.tasks);
        Ok(response.map(|_| Body::empty()))
    }
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
    *outbound.uri_mut() = to.into_uri();
    *outbound.headers_mut() = parts.headers;
    if parts.version == Version::HTTP_2 {
        headers::join_cookies(outbound.headers_mut());
    }
    rules.apply_to_request(outbound.headers_mut(), &parts.uri);
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

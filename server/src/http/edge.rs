//! What every request passes before its route is looked for: request id, client, host, panic guard,
//! the runtime's codes, and the log of accesses.
//!
//! It is one service rather than a layer for each of them: a layer copies all that is below it and
//! boxes its future, for every request.

use std::{
    any::Any,
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    Router,
    extract::Request,
    response::{IntoResponse, Response},
};
use futures::{FutureExt, future::BoxFuture};
use http::StatusCode;
use osb_protocol::error::code;
use osb_runtime::Codes;
use tower::{Service, ServiceExt};

use super::{
    access_log::{Access, AccessLog},
    client::{self, TrustedProxies},
    error::{self, ApiError},
    host::{self, AllowedHosts},
    request_id::RequestTag,
};

/// What is known of the world around this server.
#[derive(Clone, Debug)]
pub struct EdgeRules {
    /// Proxies in front of this server.
    pub proxies: TrustedProxies,
    /// Names of this server.
    pub hosts: AllowedHosts,
    /// Where accesses are logged, if they are.
    pub access_log: Option<AccessLog>,
}

/// The whole HTTP surface. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    rules: Arc<EdgeRules>,
    codes: &'static Codes,
    routes: Router,
}

impl Edge {
    pub(super) fn new(rules: EdgeRules, codes: &'static Codes, routes: Router) -> Self {
        Self {
            rules: Arc::new(rules),
            codes,
            routes,
        }
    }

    async fn answer(self, mut request: Request) -> Response {
        let tag = RequestTag::of(&mut request);
        client::identify(&self.rules.proxies, &mut request);
        let log = self.rules.access_log.as_ref();
        let log = log.map(|log| {
            (
                log,
                client::of(request.extensions()).address,
                Instant::now(),
            )
        });
        let mut response = match host::refusal(&self.rules.hosts, &request) {
            Some(refusal) => refusal.into_response(),
            None => {
                let answered = AssertUnwindSafe(self.routes.oneshot(request));
                match answered.catch_unwind().await {
                    Ok(Ok(response)) => error::use_codes(self.codes, response),
                    Err(panic) => panicked(&*panic),
                }
            }
        };
        if let Some((log, client, began)) = log {
            log.note(&Access {
                request_id: tag.id(),
                client,
                method: tag.method().as_str(),
                path: tag.path(),
                status: response.status(),
                took: began.elapsed(),
            });
        }
        tag.put_on(&mut response);
        response
    }
}

impl Service<Request> for Edge {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.clone().answer(request).map(Ok))
    }
}

/// The answer to a request whose handler panicked.
fn panicked(_: &(dyn Any + Send)) -> Response {
    // The panic hook has logged where; clients get the contract's form.
    let message = "an internal error occurred; the server's log has it under this request id";
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        code::UNKNOWN_ERROR,
        message,
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::{body::Body, extract::ConnectInfo, routing::get};
    use osb_runtime::Vocabulary;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_with_a_request_id() {
        async fn panics() {
            panic!("a test");
        }
        let rules = EdgeRules {
            proxies: TrustedProxies::default(),
            hosts: AllowedHosts::any(),
            access_log: None,
        };
        let routes = Router::new().route("/", get(panics));
        let edge = Edge::new(rules, &Vocabulary::CONTAINERS.codes, routes);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let request = http::Request::get("/")
            .header("host", "a")
            .header("x-request-id", "mine")
            .extension(ConnectInfo(peer))
            .body(Body::empty())
            .unwrap();
        let Ok(response) = edge.oneshot(request).await;
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["x-request-id"], "mine");
        let body = axum::body::to_bytes(response.into_body(), 4096).await;
        let body: serde_json::Value = serde_json::from_slice(&body.unwrap()).unwrap();
        assert_eq!(body["code"], "GENERAL::UNKNOWN_ERROR");
    }
}

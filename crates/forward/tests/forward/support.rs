//! A proxy in front of a backend that the test implements byte by byte.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderName, StatusCode};
use osb_forward::{
    Detour, ForwardError, Forwarder, HeaderRules, Lease, Limits, Target, after_segments,
};
use osb_service::Supervisor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Generous deadline, which only keeps a failure from hanging the run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A port of this machine on which nothing listens.
const SILENT: &str = "127.0.0.1:1";

/// A proxy that serves `/p/...` from the backend, which is `listener`.
pub(crate) struct Fixture {
    pub(crate) proxy: SocketAddr,
    pub(crate) backend: TcpListener,
    pub(crate) tasks: Supervisor,
}

struct Front {
    forwarder: Forwarder,
    rules: HeaderRules,
    backend: SocketAddr,
    /// Rules and refusal of a detour to the backend: nothing listens where requests go first.
    detour: Option<(HeaderRules, HeaderName)>,
    lease: Option<Lease>,
}

impl Fixture {
    pub(crate) async fn new(rules: HeaderRules) -> Self {
        Self::with_limits(rules, Limits::default()).await
    }

    pub(crate) async fn with_limits(rules: HeaderRules, limits: Limits) -> Self {
        Self::with_lease(rules, limits, None).await
    }

    pub(crate) async fn with_lease(
        rules: HeaderRules,
        limits: Limits,
        lease: Option<Lease>,
    ) -> Self {
        Self::serve(rules, limits, None, lease).await
    }

    /// A proxy that reaches the backend by a detour only, with these rules and this refusal.
    pub(crate) async fn with_detour(
        first: HeaderRules,
        rules: HeaderRules,
        refusal: HeaderName,
    ) -> Self {
        Self::serve(first, Limits::default(), Some((rules, refusal)), None).await
    }

    async fn serve(
        rules: HeaderRules,
        limits: Limits,
        detour: Option<(HeaderRules, HeaderName)>,
        lease: Option<Lease>,
    ) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tasks = Supervisor::new();
        let front = Arc::new(Front {
            forwarder: Forwarder::new(limits, &tasks),
            rules,
            backend: backend.local_addr().unwrap(),
            detour,
            lease,
        });
        let proxy = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(front);
        tasks.spawn_abortable("proxy", async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            proxy,
            backend,
            tasks,
        }
    }

    /// A connection to the proxy that has sent `request`.
    pub(crate) async fn send(&self, request: &str) -> Wire {
        let mut client = Wire(TcpStream::connect(self.proxy).await.unwrap());
        client.write(request).await;
        client
    }

    /// The next connection that the proxy opens to the backend.
    pub(crate) async fn accept(&self) -> Wire {
        let (stream, _) = timeout(PATIENCE, self.backend.accept())
            .await
            .expect("the proxy connects")
            .unwrap();
        Wire(stream)
    }
}

async fn answer(State(front): State<Arc<Front>>, mut request: Request) -> Response {
    if let Some(lease) = &front.lease {
        request.extensions_mut().insert(lease.clone());
    }
    let target = Target {
        authority: front.backend.to_string().parse().unwrap(),
        path_and_query: after_segments(request.uri(), 1),
    };
    let answered = match &front.detour {
        None => front.forwarder.forward(request, target, &front.rules).await,
        Some((rules, refusal)) => {
            let first = Target {
                authority: SILENT.parse().unwrap(),
                path_and_query: target.path_and_query.clone(),
            };
            let detour = || {
                Some(Detour {
                    to: target,
                    rules: rules.clone(),
                    refusal: Some(refusal.clone()),
                })
            };
            let forwarder = &front.forwarder;
            forwarder
                .forward_or(request, first, &front.rules, detour)
                .await
        }
    };
    match answered {
        Ok(response) => response,
        Err(error) => (status(&error), error.to_string()).into_response(),
    }
}

fn status(error: &ForwardError) -> StatusCode {
    match error {
        ForwardError::BadRequest(_) | ForwardError::RequestBody(_) => StatusCode::BAD_REQUEST,
        ForwardError::Withdrawn => StatusCode::UNAUTHORIZED,
        ForwardError::Exhausted(_) => StatusCode::INTERNAL_SERVER_ERROR,
        ForwardError::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
        ForwardError::Connect(_)
        | ForwardError::Response(_)
        | ForwardError::TransferCoding
        | ForwardError::UnaskedUpgrade => StatusCode::BAD_GATEWAY,
    }
}

/// One side of a connection, read and written as bytes.
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    pub(crate) async fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads up to and including `end`.
    pub(crate) async fn read_to(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        let read = async {
            while !text.ends_with(end.as_bytes()) {
                match self.0.read_u8().await {
                    Ok(byte) => text.push(byte),
                    Err(_) => break,
                }
            }
        };
        let in_time = timeout(PATIENCE, read).await.is_ok();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(in_time && text.ends_with(end), "no {end:?} after {text:?}");
        text
    }

    /// Reads a message head.
    pub(crate) async fn head(&mut self) -> String {
        self.read_to("\r\n\r\n").await
    }

    /// Reads until the other side disconnects.
    pub(crate) async fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.rest_bytes().await).into_owned()
    }

    /// The same as bytes.
    pub(crate) async fn rest_bytes(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset counts as a disconnect.
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut rest))
            .await
            .expect("the other side hangs up");
        rest
    }
}

/// The lines of a head that begin with `name:`, in order.
pub(crate) fn lines<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("{name}: ");
    head.lines()
        .filter_map(|line| line.strip_prefix(&start))
        .collect()
}

//! The console over HTTP: session, protection, pages and forms, on the simulated runtime.

mod access;
mod accounts;
mod addresses;
mod audit;
mod create;
mod events;
mod labels;
mod list;
mod network;
mod origins;
mod overview;
mod pages;
mod pools;
mod sessions;
mod settings;
mod snapshots;
mod templates;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode, header, request},
};
use futures::StreamExt;
use http_body_util::BodyExt;
use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{Address, Observed, Origin, Phase, Ports, Source, Status, sim::SimRuntime};
use osb_service::Supervisor;
use osb_store::{Location, Store};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::spawn_blocking,
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};
use tower::ServiceExt;

use super::{ConsoleState, backend::Domains, routes};
use crate::{
    descriptors::Room,
    http::Capacities,
    identity::{Accounts, Authenticator},
    sandbox::{ForeignFiles, Hosts, Limits, Service},
};

const KEY: &str = "right";

const HOST: &str = "console.test:8080";

/// Keeps a hang from stalling the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// A create form without mistakes.
pub(super) const FORM: &str =
    "image=debian%3A12&entrypoint=sleep+9&ttl=10m&cpu=1&memory=256Mi&env=&metadata=";

/// Longer than any test: WebSockets check their sessions only on a logout.
const NEVER: Duration = Duration::from_secs(3_600);

/// A WebSocket of a page.
pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Waits until the server closes it; the code it closes with.
pub(super) async fn closed(socket: Socket) -> Option<u16> {
    closed_with_reason(socket).await.map(|(code, _)| code)
}

/// Waits until the server closes it; the code and the reason it closes with.
pub(super) async fn closed_with_reason(mut socket: Socket) -> Option<(u16, String)> {
    let to_the_end = async {
        let mut end = None;
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Close(Some(close)) = message {
                end = Some((close.code.into(), close.reason.to_string()));
            }
        }
        end
    };
    timeout(PATIENCE, to_the_end)
        .await
        .expect("a closed WebSocket")
}

/// A sandbox that runs, with its execd at this port of the loopback interface.
pub(super) fn running(id: &str, execd: u16) -> Observed {
    let now = WireTime::from_unix_ms(osb_app::browser::now_ms()).unwrap();
    let address = Address {
        ports: Ports {
            execd: Some(execd),
            http: None,
        },
        ..Address::default()
    };
    Observed {
        origin: Origin::new(id, Source::Image("debian:12".into()), now),
        status: Status {
            address,
            ..Status::new(Phase::Running, now)
        },
    }
}

pub(super) struct Console {
    pub(super) router: Router,
    pub(super) service: Service,
    pub(super) tasks: Supervisor,
    pub(super) cookie: String,
    pub(super) state: ConsoleState,
    store: Arc<dyn Store>,
    _dir: tempfile::TempDir,
}

impl Console {
    async fn start() -> Self {
        Self::start_over(SimRuntime::new()).await
    }

    pub(super) async fn start_over(runtime: impl Into<Arc<SimRuntime>>) -> Self {
        Self::start_with(runtime, Limits::default()).await
    }

    /// The same with what the operator allows.
    async fn start_with(runtime: impl Into<Arc<SimRuntime>>, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(dir.path().join("state.db"));
        let store = osb_store::open(&location).await.unwrap();
        let tasks = Supervisor::new();
        let hosts = Hosts {
            external: "127.0.0.1".to_owned(),
            internal: "127.0.0.1".to_owned(),
        };
        let limits = Limits {
            ready_wait: Duration::ZERO,
            ..limits
        };
        let service = Service::start(
            runtime.into(),
            store.clone(),
            tasks.clone(),
            limits,
            hosts,
            ForeignFiles::default(),
        )
        .await
        .unwrap();
        let mut health = service.registry().watch_health();
        let up = health.wait_for(|health| *health == crate::sandbox::RuntimeHealth::Up);
        up.await.unwrap();
        let state = state(&service, &store, KEY, &tasks).await;
        Self {
            router: routes(&state, store.clone(), false),
            service,
            tasks,
            cookie: String::new(),
            state,
            store,
            _dir: dir,
        }
    }

    /// What a restart with another key in the configuration makes of it.
    pub(super) async fn set_key(&mut self, key: &str) {
        self.state = state(&self.service, &self.store, key, &self.tasks).await;
        self.router = routes(&self.state, self.store.clone(), false);
    }

    /// Lets WebSockets look at their sessions by themselves.
    pub(super) fn watch_sessions(&mut self, every: Duration) {
        self.state.watch = every;
        self.router = routes(&self.state, self.store.clone(), false);
    }

    /// Starts a console with an open session.
    pub(super) async fn open() -> Self {
        Self::open_over(SimRuntime::new()).await
    }

    /// The same over a runtime with sandboxes.
    pub(super) async fn open_over(runtime: impl Into<Arc<SimRuntime>>) -> Self {
        let mut console = Self::start_over(runtime).await;
        console.cookie = console.log_in().await;
        console
    }

    /// Logs in; what the new session's cookie is. An older session of the same browser is over.
    pub(super) async fn log_in(&self) -> String {
        let answer = self.post("/console/login", &format!("key={KEY}")).await;
        assert_eq!(answer.location(), "/console/sandboxes");
        answer.cookie().split(';').next().unwrap().to_owned()
    }

    async fn send(&self, request: request::Builder, body: &str) -> Answer {
        let request = request
            .header(header::HOST, HOST)
            .header(header::COOKIE, &self.cookie)
            .body(Body::from(body.to_owned()))
            .unwrap();
        let (head, body) = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        // A page may be finished, and what it was made of dropped, by another thread.
        let rest = move || Handle::current().block_on(body.collect());
        let body = spawn_blocking(rest).await.unwrap().unwrap().to_bytes();
        Answer {
            head: Response::from_parts(head, ()),
            body: String::from_utf8_lossy(&body).into(),
        }
    }

    /// Calls a server function.
    async fn call_function(&self, function: &str, form: &str) -> Answer {
        let request = Request::post(format!("/console/fn/{function}"))
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request, form).await
    }

    /// The answer of a server function.
    async fn json_of(&self, function: &str, form: &str) -> Value {
        let answer = self.call_function(function, form).await;
        let (status, body) = (answer.status(), &answer.body);
        assert_eq!(status, StatusCode::OK, "{function}: {body}");
        serde_json::from_str(body).unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).header(header::ACCEPT, "text/html"), "")
            .await
    }

    pub(super) async fn post(&self, path: &str, form: &str) -> Answer {
        let request = Request::post(path)
            .header(header::ACCEPT, "text/html")
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request, form).await
    }

    /// Opens a WebSocket as a page does.
    pub(super) async fn socket(&self, path: &str) -> Socket {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serve(listener, self.router.clone());
        let mut request = format!("ws://{address}{path}")
            .into_client_request()
            .unwrap();
        let headers = request.headers_mut();
        headers.insert("origin", format!("http://{address}").parse().unwrap());
        headers.insert("cookie", self.cookie.parse().unwrap());
        connect_async(request).await.unwrap().0
    }

    /// Serves routes over TCP for as long as the console's tasks run.
    pub(super) fn serve(&self, listener: TcpListener, router: Router) {
        self.tasks.spawn_abortable("test server", async move {
            axum::serve(listener, router).await.unwrap();
        });
    }

    pub(super) async fn sandbox(&self, label: &str) -> SandboxId {
        let body = json!({
            "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 600,
            "resourceLimits": { "cpu": "1" }, "metadata": { "team": label },
        });
        let (record, unanswered) = self.service.create_for_answer(body).await.unwrap();
        unanswered.answered();
        record.sandbox.id.clone()
    }
}

async fn state(
    service: &Service,
    store: &Arc<dyn Store>,
    key: &str,
    tasks: &Supervisor,
) -> ConsoleState {
    let keys = Arc::new(authenticator(store, Some(key)).await);
    let state = ConsoleState::new(
        Domains {
            service: service.clone(),
            store: Arc::clone(store),
            keys,
            webhooks: None,
            installation: None,
        },
        tasks.clone(),
        room(tasks),
        Arc::default(),
    )
    .unwrap();
    ConsoleState {
        watch: NEVER,
        ..state
    }
}

/// Keys over a store.
async fn authenticator(store: &Arc<dyn Store>, key: Option<&str>) -> Authenticator {
    let accounts = Accounts::open(Arc::clone(store)).await.unwrap();
    Authenticator::new(key.map(Into::into), accounts, None)
}

/// Room for more than any test asks at once.
fn room(tasks: &Supervisor) -> Capacities {
    let limits = crate::http::Limits {
        concurrency: 0,
        keyless_per_client: 0,
        per_sandbox: 0,
    };
    Capacities::new(limits, &Room::of_descriptors(20_000), tasks)
}

pub(super) struct Answer {
    head: Response<()>,
    body: String,
}

impl Answer {
    fn status(&self) -> StatusCode {
        self.head.status()
    }

    fn header(&self, name: &str) -> &str {
        self.head
            .headers()
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn location(&self) -> &str {
        self.header("location")
    }

    fn cookie(&self) -> &str {
        self.header("set-cookie")
    }
}

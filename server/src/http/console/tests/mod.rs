//! The console over HTTP: session, protection, pages and forms, on the simulated runtime.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, Response, StatusCode, header, request},
};
use futures::StreamExt;
use http_body_util::BodyExt;
use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{
    Address, Observed, Origin, Phase, Ports, Source, Status,
    sim::{Faults, SimRuntime},
};
use osb_service::Supervisor;
use osb_store::{Location, Store};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};
use tower::ServiceExt;

use super::{ConsoleState, pages, routes};
use crate::{
    descriptors::Room,
    http::{Capacities, auth::ApiKeys},
    sandbox::{Hosts, Limits, Service},
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
    state: ConsoleState,
    store: Arc<dyn Store>,
    _dir: tempfile::TempDir,
}

impl Console {
    async fn start() -> Self {
        Self::start_over(SimRuntime::new()).await
    }

    async fn start_over(runtime: SimRuntime) -> Self {
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
            ..Limits::default()
        };
        let service = Service::start(
            Arc::new(runtime),
            store.clone(),
            tasks.clone(),
            limits,
            hosts,
        )
        .await
        .unwrap();
        let mut health = service.registry().watch_health();
        let up = health.wait_for(|health| *health == crate::sandbox::RuntimeHealth::Up);
        up.await.unwrap();
        let state = state(&service, KEY, &tasks);
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
    pub(super) fn set_key(&mut self, key: &str) {
        self.state = state(&self.service, key, &self.tasks);
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
    pub(super) async fn open_over(runtime: SimRuntime) -> Self {
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
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            head: Response::from_parts(head, ()),
            body: String::from_utf8_lossy(&body).into(),
        }
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

fn state(service: &Service, key: &str, tasks: &Supervisor) -> ConsoleState {
    let keys = Arc::new(ApiKeys::new(Some(key.to_owned().into())));
    let state = ConsoleState::new(
        service.clone(),
        keys,
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

#[tokio::test]
async fn without_a_session_only_the_login_is_shown() {
    let console = Console::start().await;
    let page = console.get("/console/sandboxes?q=a").await;
    assert_eq!(
        page.location(),
        "/console/login?next=%2Fconsole%2Fsandboxes%3Fq%3Da"
    );
    let call = console.post("/console/fn/sandboxes/list", "").await;
    assert_eq!(call.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(call.body, r#"{"error":"signed_out"}"#);
    let login = console.get("/console/login").await;
    assert_eq!(login.status(), StatusCode::OK);
    assert!(login.body.contains("API key"), "{}", login.body);
    assert!(login.cookie().is_empty());
}

/// Ways to write the addresses of the list and of a page that the routes take for something else,
/// and a renderer that puts addresses into their plain form may not.
fn spellings(id: &str) -> Vec<String> {
    let list = [
        "/console/./sandboxes",
        "/console/sandboxes/",
        "/console/sandboxes//",
        "/console//sandboxes",
        "/console/%2e/sandboxes",
        "/console/%2E/sandboxes",
        "/console/x/../sandboxes",
        "/console/x/%2e%2e/sandboxes",
        "/console/x/.%2E/sandboxes",
        "/console/login/../sandboxes",
        "/console/login/%2e%2e/sandboxes",
        "/console/login/",
        "/console/%73andboxes",
        "/console/\\sandboxes",
        "/console/./sandboxes?next=/console/login",
        "/console/./create",
        "/console/create/",
        "/console/nowhere",
    ];
    let page = [
        format!("/console/sandboxes/{id}/"),
        format!("/console/sandboxes/./{id}"),
        format!("/console/./sandboxes/{id}"),
        format!("/console/sandboxes/x/../{id}"),
        format!("/console/sandboxes/%2e/{id}/terminal"),
        format!("/console/sandboxes/{id}//"),
        format!("/console/sandboxes/{id}/terminal/"),
    ];
    list.map(str::to_owned).into_iter().chain(page).collect()
}

/// The page of the login needs them, so they are not behind it. Whether a file is there depends on
/// what was built.
#[tokio::test]
async fn static_files_need_no_login() {
    let console = Console::start().await;
    let super::AssetRoot(root) = super::assets::root();
    for file in ["console.css", "no/such.file"] {
        let answer = console.get(&format!("{root}/{file}")).await;
        let there = answer.status() == StatusCode::OK && file == "console.css";
        assert!(
            there || answer.status() == StatusCode::NOT_FOUND,
            "{file}: {}",
            answer.status()
        );
    }
}

#[tokio::test]
async fn no_spelling_of_an_address_gets_around_the_login() {
    let console = Console::start().await;
    let id = console.sandbox("secret").await;
    // These are routes, of sandboxes with odd names.
    let routed = ["/console/sandboxes/.", "/console/sandboxes/.."].map(str::to_owned);
    for path in spellings(id.as_str()).into_iter().chain(routed) {
        let answer = console.get(&path).await;
        assert!(
            answer.location().starts_with("/console/login?next="),
            "{path}: {} {}",
            answer.status(),
            answer.body
        );
        assert!(
            !answer.body.contains(id.as_str()),
            "{path}: {}",
            answer.body
        );
    }
}

/// Should a route ever be outside of the session by mistake, its page still has nothing to show.
#[tokio::test]
async fn a_page_that_was_not_let_in_has_no_way_to_the_domain() {
    let console = Console::start().await;
    let id = console.sandbox("secret").await;
    let keys = Arc::new(ApiKeys::default());
    let state = ConsoleState::new(
        console.service.clone(),
        keys,
        console.tasks.clone(),
        room(&console.tasks),
        Arc::default(),
    )
    .unwrap();
    for path in [
        "/console/sandboxes".to_owned(),
        format!("/console/sandboxes/{id}"),
    ] {
        let request = Request::get(&path).body(Body::empty()).unwrap();
        let answer = pages::render(State(state.clone()), request).await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("You are signed out"), "{path}: {body}");
        assert!(!body.contains("debian:12"), "{path}: {body}");
    }
}

#[tokio::test]
async fn what_is_no_page_shows_nothing_of_the_domain_even_with_a_session() {
    let console = Console::open().await;
    let id = console.sandbox("secret").await;
    for path in spellings(id.as_str()) {
        let answer = console.get(&path).await;
        // A slash too many at the end is forgiven, by way of a redirect to a page.
        let location = answer.location();
        let expected = match location {
            "" => answer.status() == StatusCode::NOT_FOUND,
            to => answer.status() == StatusCode::SEE_OTHER && to.starts_with("/console"),
        };
        assert!(expected, "{path}: {} {location}", answer.status());
        assert!(
            !answer.body.contains(id.as_str()),
            "{path}: {}",
            answer.body
        );
    }
    let tidy = console.get("/console/sandboxes/?q=a").await;
    assert_eq!(tidy.location(), "/console/sandboxes?q=a");
}

#[tokio::test]
async fn a_wrong_key_opens_nothing_and_is_slowed_down() {
    let console = Console::start().await;
    let wrong = console
        .post("/console/login", "key=wrong&next=%2Fconsole%2Fcreate")
        .await;
    assert_eq!(
        wrong.location(),
        "/console/login?failed=key&next=%2Fconsole%2Fcreate"
    );
    assert!(wrong.cookie().is_empty());
    let page = console.get(wrong.location()).await;
    assert!(
        page.body.contains("not a key of this server"),
        "{}",
        page.body
    );
    for _ in 0..9 {
        let wrong = console.post("/console/login", "key=wrong").await;
        assert!(wrong.location().contains("failed=key"));
    }
    let slow = console.post("/console/login", "key=wrong").await;
    assert!(slow.location().contains("failed=slow"));
    // Another client at this address cannot keep the operator out.
    let right = console.post("/console/login", &format!("key={KEY}")).await;
    assert_eq!(right.location(), "/console/sandboxes");
}

#[tokio::test]
async fn the_session_cookie_is_narrow_and_ends_with_the_session() {
    let console = Console::start().await;
    let cookie = console
        .post("/console/login", &format!("key={KEY}"))
        .await
        .cookie()
        .to_owned();
    for part in ["osb_console=", "HttpOnly", "SameSite=Lax", "Path=/console"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    let console = Console {
        cookie: cookie.split(';').next().unwrap().into(),
        ..console
    };
    assert_eq!(
        console.get("/console/sandboxes").await.status(),
        StatusCode::OK
    );
    console.post("/console/logout", "").await;
    assert!(
        console
            .get("/console/sandboxes")
            .await
            .location()
            .contains("login")
    );
}

#[tokio::test]
async fn only_a_logout_with_a_session_wakes_the_tabs() {
    let mut console = Console::open().await;
    let logouts = console.state.logouts.subscribe();
    let cookie = std::mem::take(&mut console.cookie);
    let unknown = "osb_console=AAAAAAAAAAAAAAAAAAAAAA".to_owned();
    for stranger in [String::new(), unknown] {
        console.cookie = stranger;
        let answer = console.post("/console/logout", "").await;
        assert_eq!(answer.location(), "/console/login");
        assert!(!logouts.has_changed().unwrap(), "{}", console.cookie);
    }
    console.cookie = cookie;
    console.post("/console/logout", "").await;
    assert!(logouts.has_changed().unwrap());
}

#[tokio::test]
async fn a_new_key_ends_the_sessions_of_the_old_one() {
    let mut console = Console::open().await;
    console.set_key(KEY);
    let page = console.get("/console/sandboxes").await;
    assert_eq!(page.status(), StatusCode::OK, "after a mere restart");
    console.set_key("another");
    let page = console.get("/console/sandboxes").await;
    assert!(
        page.location().starts_with("/console/login?"),
        "{}",
        page.body
    );
}

#[tokio::test]
async fn other_origins_can_neither_write_nor_listen() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let path = format!("/console/sandboxes/{id}/delete");
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "http://evil.test"),
        ("origin", "null"),
    ] {
        let answer = console
            .send(Request::post(&path).header(name, value), "")
            .await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{name}: {value}");
    }
    assert!(console.service.get(&id).is_ok());
    for origin in ["http://evil.test", "null", "http://console.test:9"] {
        let request = Request::get("/console/live")
            .header("upgrade", "websocket")
            .header("connection", "upgrade")
            .header("origin", origin);
        assert_eq!(
            console.send(request, "").await.status(),
            StatusCode::FORBIDDEN,
            "{origin}"
        );
    }
}

#[tokio::test]
async fn every_page_forbids_foreign_code() {
    let console = Console::open().await;
    let page = console.get("/console/sandboxes").await;
    let policy = page.header("content-security-policy");
    let nonce = policy
        .split("'nonce-")
        .nth(1)
        .and_then(|it| it.split('\'').next())
        .unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(!policy.contains("script-src 'unsafe"), "{policy}");
    let scripts: Vec<_> = page.body.match_indices("<script").collect();
    assert!(!scripts.is_empty());
    for (at, _) in scripts {
        let tag = &page.body[at..at + page.body[at..].find('>').unwrap()];
        assert!(tag.contains(nonce), "{tag}");
    }
    assert!(!page.body.contains(" style=\""), "{}", page.body);
    assert_eq!(page.header("cache-control"), "no-store");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("access-control-allow-origin"), "");
    let again = console.get("/console/sandboxes").await;
    assert_ne!(again.header("content-security-policy"), policy);
}

#[tokio::test]
async fn pages_read_without_script_and_escape_what_users_wrote() {
    let console = Console::open().await;
    let empty = console.get("/console/sandboxes").await;
    assert!(empty.body.contains("No sandboxes yet"), "{}", empty.body);
    let id = console.sandbox("search").await;
    let list = console.get("/console/sandboxes").await;
    for part in [id.short(), "debian:12", "team=search", "1 in total"] {
        assert!(list.body.contains(part), "{part} in {}", list.body);
    }
    let none = console
        .get("/console/sandboxes?q=%3Cscript%3Ealert(1)%3C/script%3E")
        .await;
    assert!(none.body.contains("No matches"));
    assert!(!none.body.contains("<script>alert(1)"), "{}", none.body);
    let detail = console.get(&format!("/console/sandboxes/{id}")).await;
    for part in [
        id.as_str(),
        "Stages",
        "accepted",
        "sleep 9",
        "Renew",
        "Delete sandbox",
    ] {
        assert!(detail.body.contains(part), "{part} in {}", detail.body);
    }
    let missing = console.get("/console/sandboxes/nope").await;
    assert!(missing.body.contains("No such sandbox"));
    assert_eq!(
        console.get("/console/nowhere").await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn the_create_form_comes_back_with_what_is_wrong() {
    let console = Console::open().await;
    let form = "image=&entrypoint=sh+-c+%27x&ttl=5s&cpu=fast&memory=1Gi&env=A%3D%3Ci%3E&metadata=";
    let answer = console.post("/console/create", form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer.body.contains("quote that is not closed"),
        "{}",
        answer.body
    );
    assert!(
        answer.body.contains("lives for at least 1 minute"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("A=&lt;i>"), "{}", answer.body);
    assert!(answer.body.contains(r#"value="5s""#), "{}", answer.body);
    assert!(
        answer.body.matches(r#"aria-invalid="true""#).count() >= 3,
        "{}",
        answer.body
    );
    assert!(console.service.registry().snapshot().0.is_empty());
}

#[tokio::test]
async fn forms_act_and_leave_their_news_on_the_next_page() {
    let console = Console::open().await;
    let made = console.post("/console/create", FORM).await;
    let page = made.location().to_owned();
    assert!(
        page.starts_with("/console/sandboxes/"),
        "{page} {}",
        made.body
    );
    let short = SandboxId::from(page.rsplit('/').next().unwrap())
        .short()
        .to_owned();
    let news = format!("{short} is being created");
    assert!(console.get(&page).await.body.contains(&news));
    assert!(!console.get(&page).await.body.contains(&news), "shown once");

    let before = console.service.registry().snapshot().0[0]
        .sandbox
        .expires_at;
    let renewed = console
        .post(&format!("{page}/renew"), "seconds=86400")
        .await;
    assert_eq!(renewed.location(), page);
    assert!(
        console.service.registry().snapshot().0[0]
            .sandbox
            .expires_at
            > before
    );

    let deleted = console.post(&format!("{page}/delete"), "").await;
    assert_eq!(deleted.location(), "/console/sandboxes");
    let list = console.get("/console/sandboxes").await;
    assert!(list.body.contains("is being deleted"), "{}", list.body);
}

#[tokio::test]
async fn a_create_is_answered_on_acceptance() {
    const RELOAD: &str = r#"<meta http-equiv="refresh" content="2">"#;
    let runtime = SimRuntime::new();
    let gate = Arc::new(Notify::new());
    runtime.set_faults(Faults {
        start_gate: Some(gate.clone()),
        ..Faults::default()
    });
    let console = Console::open_over(runtime).await;
    let made = timeout(PATIENCE, console.post("/console/create", FORM)).await;
    let made = made.expect("answered while the container is starting");
    let path = made.location();
    assert!(path.starts_with("/console/sandboxes/"), "{}", made.body);
    let page = console.get(path).await.body;
    assert!(page.contains("Pending"), "{page}");
    assert!(page.contains(RELOAD), "{page}");
    gate.notify_one();
    let running = async {
        loop {
            let page = console.get(path).await.body;
            if page.contains("The sandbox is running.") {
                return page;
            }
            tokio::task::yield_now().await;
        }
    };
    let page = timeout(PATIENCE, running).await.unwrap();
    assert!(!page.contains(RELOAD), "{page}");
}

#[tokio::test]
async fn server_functions_answer_hydrated_pages() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let call = |path: &'static str, body: String| {
        let request = Request::post(format!("/console/fn/sandboxes/{path}"))
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let console = &console;
        async move { console.send(request, &body).await }
    };
    let list = call(
        "list",
        "query[q]=debian&query[state]=&query[page]=1".to_owned(),
    )
    .await;
    assert_eq!(list.status(), StatusCode::OK, "{}", list.body);
    assert!(list.body.contains(id.as_str()), "{}", list.body);
    let check = call("check", "form[image]=x&form[ttl]=1s".to_owned()).await;
    assert!(check.body.contains("timeout"), "{}", check.body);
    let port = call("port", format!("id={id}&port=8000")).await;
    assert_eq!(port.status(), StatusCode::OK, "{}", port.body);
    assert!(port.body.contains("nowhere"), "{}", port.body);
    let gone = call("get", "id=nope".to_owned()).await;
    assert_eq!(gone.body, r#"{"error":"not_found"}"#);
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let unread = call("get", "no=id".to_owned()).await;
    assert_eq!(unread.status(), StatusCode::BAD_REQUEST, "{}", unread.body);
    assert!(unread.body.contains("missing field"), "{}", unread.body);
    for unknown in ["nope", "nope/nope", "list/"] {
        let gone = call(unknown, String::new()).await;
        assert_eq!(
            gone.status(),
            StatusCode::NOT_FOUND,
            "{unknown}: {}",
            gone.body
        );
        assert_eq!(gone.body, r#"{"error":"not_found"}"#, "{unknown}");
    }
}

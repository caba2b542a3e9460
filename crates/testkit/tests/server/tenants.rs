//! Tenants: where they come from, and what of a sandbox stays its tenant's. `access` has every route.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use osb_protocol::{
    SandboxId,
    identity::{NewApiKey, Role},
};
use osb_runtime::{
    Observed,
    sim::{Faults, Options, SimRuntime},
};
use osb_server::identity::Accounts;
use osb_service::Supervisor;
use osb_store::{MetricStretch, ReportedCommand};
use osb_testkit::{
    CannedProgram, TestServer, connect_from, patience, running_at, store_in, wait_until,
};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

const TEAMS: &str = "[[tenants]]\nname = 'team-a'\nnamespace = 'ns'\napi_keys = ['key-a', 'key-a2']\n\
    [[tenants]]\nname = 'team-b'\nnamespace = 'ns'\napi_keys = ['key-b']\n";
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 61));
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn of_tenant(id: &str, tenant: Option<&str>) -> Observed {
    let mut sandbox = running_at(id, INSIDE, Some("token"));
    sandbox.origin.tenant = tenant.map(Arc::from);
    sandbox
}

fn sandboxes() -> [Observed; 3] {
    [
        of_tenant("of-a", Some("team-a")),
        of_tenant("of-b", Some("team-b")),
        of_tenant("unlabelled", None),
    ]
}

async fn with_file() -> (TestServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let server = TestServer::with_tenants(sandboxes(), folder.path()).await;
    (server.unwrap(), folder)
}

async fn ids(server: &TestServer, key: &str) -> Vec<String> {
    let (status, body) = answer(server.request_as(key, Method::GET, "/v1/sandboxes")).await;
    assert_eq!(status, 200, "{body}");
    let items = body["items"].as_array().unwrap().iter();
    let mut ids: Vec<String> = items
        .map(|it| it["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    assert_eq!(body["pagination"]["totalItems"], json!(ids.len()), "{body}");
    ids
}

/// What the server describes and records of a sandbox. The stream of samples has no end.
fn records(id: &str) -> [String; 8] {
    [
        "diagnostics/logs",
        "diagnostics/logs?scope=all",
        "diagnostics/events",
        "diagnostics/events?scope=all",
        "diagnostics/inspect",
        "diagnostics/summary",
        "metrics",
        "commands",
    ]
    .map(|path| format!("/v1/sandboxes/{id}/{path}"))
}

/// Writes what was recorded of a sandbox, as its server does each minute.
async fn record(folder: &Path, id: &SandboxId) {
    let location = store_in(folder).await.unwrap();
    let store = osb_store::open_shared(&location).await.unwrap().unwrap();
    let stretch = MetricStretch {
        id: id.clone(),
        step: 10,
        place: 0,
        start: 600,
        written_at: 700,
        points: vec![0; 64],
    };
    store.put_metrics(&[stretch]).await.unwrap();
    let command = ReportedCommand {
        started_at: 0,
        number: 1,
        kind: "foreground".to_owned(),
        command: "make".to_owned(),
        cwd: None,
        uid: None,
        finished_at: None,
        exit_code: None,
        error: None,
        reported_at: 0,
    };
    store.put_commands(id, &[command], 10).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn records_of_a_sandbox_are_its_tenants_also_after_its_end() {
    let sim = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }));
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
    let server = server.unwrap();
    let look = || async { server.service.available().is_ok() };
    wait_until("the runtime", look, |up| *up).await;
    let key = async |tenant: Option<&str>| {
        let new = json!({"name": "k", "role": "operator", "tenant": tenant});
        let request = server.request(Method::POST, "/v1/api-keys").json(&new);
        let (_, issued) = answer(request).await;
        issued["secret"].as_str().unwrap().to_owned()
    };
    let (own, other, all) = (
        key(Some("team-a")).await,
        key(Some("team-b")).await,
        key(None).await,
    );
    let create = async || {
        let request = server.request_as(&own, Method::POST, "/v1/sandboxes");
        answer(request.json(&TestServer::good_create())).await
    };
    let get = |key: &str, path: &str| answer(server.request_as(key, Method::GET, path));
    let is_hidden = async |id: &SandboxId| {
        let watch = format!("/v1/sandboxes/{id}/metrics/watch");
        for path in records(id.as_str()).into_iter().chain([watch]) {
            let (status, body) = get(&other, &path).await;
            let message = format!("sandbox {id} not found");
            let seen = (status.as_u16(), &body["code"], &body["message"]);
            let wanted = json!("DOCKER::SANDBOX_NOT_FOUND");
            assert_eq!(seen, (404, &wanted, &json!(message)), "{path}");
        }
    };

    let (status, made) = create().await;
    assert_eq!(status, 202, "{made}");
    let alive = SandboxId::from(made["id"].as_str().unwrap());
    is_hidden(&alive).await;
    for key in [&own, &all] {
        for path in records(alive.as_str()) {
            let (status, body) = get(key, &path).await;
            assert_eq!(status, 200, "{path}: {body}");
        }
    }

    record(folder.path(), &alive).await;
    let path = format!("/v1/sandboxes/{alive}");
    let delete = server.request_as(&own, Method::DELETE, &path);
    let (status, _) = answer(delete.header("prefer", "wait")).await;
    assert_eq!(status, 204);
    is_hidden(&alive).await;
    for key in [&own, &all] {
        let (status, body) = get(key, &format!("/v1/sandboxes/{alive}/commands")).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["commands"][0]["command"], "make");
        let (status, body) = get(key, &format!("/v1/sandboxes/{alive}/metrics")).await;
        assert_eq!(status, 200, "{body}");
    }

    // The create that fails is remembered.
    sim.set_faults(Faults {
        no_image: true,
        ..Faults::default()
    });
    assert!(!create().await.0.is_success());
    sim.set_faults(Faults::default());
    let failed = server.service.recent_history(0, 1).await.unwrap();
    let failed = failed[0].id.clone();
    assert_ne!(failed, alive);
    is_hidden(&failed).await;
    for key in [&own, &all] {
        for part in ["events", "inspect", "summary"] {
            let path = format!("/v1/sandboxes/{failed}/diagnostics/{part}");
            assert_eq!(get(key, &path).await.0, 200, "{path}");
        }
    }

    // A record that no history says whose it is.
    let unknown = SandboxId::from("without-a-history");
    record(folder.path(), &unknown).await;
    is_hidden(&unknown).await;
    let path = format!("/v1/sandboxes/{unknown}/commands");
    assert_eq!(get(&own, &path).await.0, 404);
    assert_eq!(get(&all, &path).await.0, 200);
    server.stop().await;
}

/// Runs a server in a process of its own, as far as tasks are concerned, and kills it.
fn killed<T>(work: impl Future<Output = T>) -> T {
    let process = tokio::runtime::Runtime::new().unwrap();
    let result = process.block_on(work);
    process.shutdown_timeout(patience());
    result
}

#[test]
fn what_a_crash_ended_is_in_its_tenants_history() {
    let sim = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }));
    let folder = tempfile::tempdir().unwrap();
    let over = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        let server = server.unwrap();
        let look = || async { server.service.available().is_ok() };
        wait_until("the runtime", look, |up| *up).await;
        server
    };
    let (keys, created, deleted, changed) = killed(async {
        let server = over().await;
        let mut keys = Vec::new();
        for tenant in ["team-a", "team-b"] {
            let new = json!({"name": "k", "role": "operator", "tenant": tenant});
            let request = server.request(Method::POST, "/v1/api-keys").json(&new);
            let (_, issued) = answer(request).await;
            keys.push(issued["secret"].as_str().unwrap().to_owned());
        }
        let create = server.request_as(&keys[0], Method::POST, "/v1/sandboxes");
        let create = create.json(&TestServer::good_create());
        let made = async || {
            let (status, made) = answer(create.try_clone().unwrap()).await;
            assert_eq!(status, 202, "{made}");
            SandboxId::from(made["id"].as_str().unwrap())
        };
        let (deleted, renewed, patched) = (made().await, made().await, made().await);
        // An engine without any of the known sandboxes would be taken for another one.
        made().await;
        for (method, path, change) in [
            (
                Method::POST,
                format!("/v1/sandboxes/{renewed}/renew-expiration"),
                json!({"expiresAt": "2100-01-01T00:00:00Z"}),
            ),
            (
                Method::PATCH,
                format!("/v1/sandboxes/{patched}/metadata"),
                json!({"project": "p"}),
            ),
        ] {
            let request = server.request_as(&keys[0], method, &path).json(&change);
            let (status, body) = answer(request).await;
            assert_eq!(status, 200, "{body}");
        }
        sim.set_faults(Faults {
            image_gate: Some(Arc::default()),
            remove_delay: Duration::from_secs(3600),
            ..Faults::default()
        });
        let path = format!("/v1/sandboxes/{deleted}");
        let (status, _) = answer(server.request_as(&keys[0], Method::DELETE, &path)).await;
        assert_eq!(status, 204);
        // Its answer never comes.
        Supervisor::new().spawn("create", create.send());
        let location = store_in(folder.path()).await.unwrap();
        let store = osb_store::open_shared(&location).await.unwrap().unwrap();
        let marked = async || store.all_unanswered().await.unwrap();
        let marked = wait_until("the create", marked, |marked| !marked.is_empty()).await;
        store.close().await;
        (keys, marked[0].id.clone(), deleted, [renewed, patched])
    });
    sim.set_faults(Faults::default());
    killed(async {
        for id in changed.iter().chain([&deleted]) {
            sim.vanish(id).await;
        }
        let server = over().await;
        server.service.reconcile().await;
        for id in [&created, &deleted, &changed[0], &changed[1]] {
            let history = async || server.service.history(id).await.unwrap();
            let entry = wait_until("the history", history, Option::is_some).await;
            assert_eq!(entry.unwrap().tenant.as_deref(), Some("team-a"));
        }
        let path = format!("/v1/sandboxes/{created}/diagnostics/events");
        for (key, wanted) in keys.iter().zip([200, 404]) {
            let (status, body) = answer(server.request_as(key, Method::GET, &path)).await;
            assert_eq!(status, wanted, "{body}");
        }
        server.stop().await;
    });
}

#[tokio::test]
async fn a_tenant_of_the_file_works_in_its_own_scope() {
    let (server, _folder) = with_file().await;
    assert_eq!(ids(&server, "key-a").await, ["of-a"]);
    assert_eq!(ids(&server, "key-a2").await, ["of-a"]);
    let create = server.request_as("key-b", Method::POST, "/v1/sandboxes");
    let (status, made) = answer(create.json(&TestServer::good_create())).await;
    assert_eq!(status, 202, "{made}");
    let id = made["id"].as_str().unwrap();
    assert!(ids(&server, "key-b").await.contains(&id.to_owned()));
    assert_eq!(ids(&server, "key-a").await, ["of-a"]);
    let path = format!("/v1/sandboxes/{id}");
    let (status, _) = answer(server.request_as("key-a", Method::DELETE, &path)).await;
    assert_eq!(status, 404);
    let (status, _) = answer(server.request_as("key-b", Method::DELETE, &path)).await;
    assert_eq!(status, 204);
    // Root in it could become root on the host, and so reach the other tenants.
    let mut isolated = TestServer::good_create();
    isolated["extensions"] = json!({"bootstrap.execd.isolation": "enable"});
    let create = server.request_as("key-a", Method::POST, "/v1/sandboxes");
    let (status, body) = answer(create.json(&isolated)).await;
    assert_eq!(status, 400, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("needs the role service_admin"),
        "{body}"
    );
    for path in ["/v1/users", "/v1/api-keys", "/v1/sessions", "/v1/audit"] {
        let (status, _) = answer(server.request_as("key-a", Method::GET, path)).await;
        assert_eq!(status, 403, "{path}");
    }
    let (status, body) = answer(server.request_as("key-a", Method::GET, "/v1/whoami")).await;
    let seen = (status.as_u16(), &body["tenant"], &body["role"]);
    assert_eq!(seen, (200, &json!("team-a"), &json!("operator")));
    for (key, code) in [("", "MISSING_API_KEY"), ("key-c", "INVALID_API_KEY")] {
        let (status, body) = answer(server.request_as(key, Method::GET, "/v1/sandboxes")).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (401, &json!(code)),
            "{key}"
        );
    }
    let (status, _) = answer(server.bare(Method::GET, "/health")).await;
    assert_eq!(status, 200);
    server.stop().await;
}

#[tokio::test]
async fn one_idempotency_key_of_two_tenants_makes_two_sandboxes() {
    let (server, _folder) = with_file().await;
    let create = async |key: &str| {
        let request = server.request_as(key, Method::POST, "/v1/sandboxes");
        let request = request.header("idempotency-key", "same");
        let (status, body) = answer(request.json(&TestServer::good_create())).await;
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    };
    let (one, other) = (create("key-a").await, create("key-b").await);
    assert_ne!(one, other);
    assert_eq!(create("key-a").await, one);
    server.stop().await;
}

/// The file may give a key to another tenant within the time that an idempotency key counts.
#[tokio::test]
async fn an_idempotency_key_does_not_follow_an_api_key_to_another_tenant() {
    let (server, folder) = with_file().await;
    let create = async || {
        let request = server.request_as("key-a", Method::POST, "/v1/sandboxes");
        let request = request.header("idempotency-key", "same");
        let (status, body) = answer(request.json(&TestServer::good_create())).await;
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    };
    let of_a = create().await;
    let moved = TEAMS
        .replace("'key-a', ", "")
        .replace("'key-b'", "'key-b', 'key-a'");
    std::fs::write(folder.path().join("tenants.toml"), moved).unwrap();
    let whoami = || answer(server.request_as("key-a", Method::GET, "/v1/whoami"));
    wait_until("the other tenant", whoami, |(_, body)| {
        body["tenant"] == "team-b"
    })
    .await;
    let of_b = create().await;
    assert_ne!(of_a, of_b);
    assert!(ids(&server, "key-a").await.contains(&of_b));
    server.stop().await;
}

#[tokio::test]
async fn with_tenants_the_proxy_needs_the_key_of_the_sandboxs_tenant() {
    let program = CannedProgram::start(INSIDE, ANSWER).await.unwrap();
    let (server, _folder) = with_file().await;
    let port = program.address.port();
    let path = format!("/sandboxes/of-a/proxy/{port}/");
    for (key, status, code) in [
        ("key-a", 200, ""),
        ("key-b", 404, "DOCKER::SANDBOX_NOT_FOUND"),
        ("", 401, "MISSING_API_KEY"),
        ("key-c", 401, "INVALID_API_KEY"),
    ] {
        for path in [path.clone(), format!("/v1{path}")] {
            let (seen, body) = answer(server.request_as(key, Method::GET, &path)).await;
            let code_seen = body["code"].as_str().unwrap_or_default();
            assert_eq!((seen.as_u16(), code_seen), (status, code), "{key} {path}");
        }
    }
    // The token of execd alone is not enough, as it is without tenants.
    let request = server.bare(Method::GET, &path);
    let request = request.header("x-execd-access-token", "token");
    assert_eq!(answer(request).await.0, 401);
    for (key, reason) in [
        (None, "missing API key"),
        (Some("key-c"), "invalid API key"),
        (Some("key-b"), "sandbox of-a not found"),
    ] {
        let url = format!("ws://{}{path}", server.address);
        let mut request = url.into_client_request().unwrap();
        if let Some(key) = key {
            let headers = request.headers_mut();
            headers.insert("open-sandbox-api-key", key.parse().unwrap());
        }
        let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let stream = connect_from(source, server.address).await.unwrap();
        let (mut socket, _) = client_async(request, stream).await.unwrap();
        let Some(Ok(Message::Close(Some(close)))) = socket.next().await else {
            panic!("the WebSocket is not closed");
        };
        assert_eq!(close.reason.as_str(), reason);
    }
    server.stop().await;
}

#[tokio::test]
async fn with_tenants_only_administrators_reach_all_of_them() {
    let (server, folder) = with_file().await;
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open_shared(&location).await.unwrap().unwrap();
    // As before the server had tenants.
    let before = Accounts::open(Arc::clone(&store)).await.unwrap();
    let add = async |role, tenant: Option<&str>| {
        let new = NewApiKey {
            name: "k".to_owned(),
            role,
            tenant: tenant.map(str::to_owned),
            expires_at: None,
        };
        before.add_key(new).await.unwrap().secret
    };
    let everywhere = add(Role::Operator, None).await;
    let admin = add(Role::ServiceAdmin, None).await;
    let limited = add(Role::Operator, Some("team-a")).await;
    let list = |key: &str| answer(server.request_as(key, Method::GET, "/v1/sandboxes"));
    wait_until("the keys", || list(&limited), |(status, _)| *status == 200).await;
    assert_eq!(list(&everywhere).await.0, 401);
    assert_eq!(ids(&server, &admin).await, ["of-a", "of-b", "unlabelled"]);
    assert_eq!(ids(&server, &limited).await, ["of-a"]);
    let new = |body: Value| {
        let request = server.request_as(&admin, Method::POST, "/v1/api-keys");
        answer(request.json(&body))
    };
    let (status, body) = new(json!({"name": "k", "role": "read_only"})).await;
    assert_eq!(status, 422, "{body}");
    assert!(
        body.to_string().contains("must be set on a server with"),
        "{body}"
    );
    let (status, body) = new(json!({"name": "k", "role": "service_admin"})).await;
    assert_eq!(status, 201, "{body}");
    store.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_changed_file_changes_the_keys() {
    let (server, folder) = with_file().await;
    assert_eq!(ids(&server, "key-a").await, ["of-a"]);
    let file = folder.path().join("tenants.toml");
    std::fs::write(&file, TEAMS.replace("'key-a'", "'key-new'")).unwrap();
    let list = |key| answer(server.request_as(key, Method::GET, "/v1/sandboxes"));
    wait_until(
        "the end of a key",
        || list("key-a"),
        |(status, _)| *status == 401,
    )
    .await;
    assert_eq!(list("key-new").await.0, 200);
    assert_eq!(list("key-a2").await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_a_503() {
    // A port of loopback on which no program listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let more = format!("[tenants]\nprovider = 'http'\nendpoint = 'http://{address}/'");
    let server = TestServer::keyless(sandboxes(), &more).await.unwrap();
    let (status, body) = answer(server.request_as("key", Method::GET, "/v1/sandboxes")).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (503, &json!("TENANT_PROVIDER_UNAVAILABLE")));
    let (status, body) = answer(server.bare(Method::GET, "/v1/sandboxes")).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (401, &json!("MISSING_API_KEY"))
    );
    server.stop().await;
}

/// A tenant provider that knows no key and counts what it is asked.
async fn knows_no_key(tasks: &Supervisor) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, each) = (Arc::clone(&asked), tasks.clone());
    tasks.spawn_abortable("provider", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            each.spawn_abortable("exchange", async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                count.fetch_add(1, Ordering::SeqCst);
                let answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\
                              Connection: close\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn one_address_cannot_ask_the_provider_about_any_number_of_keys() {
    let tasks = Supervisor::new();
    for path in ["/v1/sandboxes", "/v1/sandboxes/of-a/proxy/80/"] {
        let (address, asked) = knows_no_key(&tasks).await;
        let more = format!("[tenants]\nprovider = 'http'\nendpoint = 'http://{address}/'");
        let server = TestServer::keyless(sandboxes(), &more).await.unwrap();
        let mut refused = 0;
        for n in 0..150 {
            let key = format!("guess-{n}");
            let (status, body) = answer(server.request_as(&key, Method::GET, path)).await;
            match status.as_u16() {
                401 => assert_eq!(body["code"], "INVALID_API_KEY", "{body}"),
                429 => refused += 1,
                other => panic!("{other}: {body}"),
            }
        }
        // A failure is forgiven now and then.
        assert!(refused >= 25, "{path}: {refused}");
        let asked = asked.load(Ordering::SeqCst);
        assert_eq!(asked + refused, 150, "{path}");
        server.stop().await;
    }
    tasks.stop();
}

#[tokio::test]
async fn creates_at_once_do_not_exceed_a_quota_together() {
    let more = "[quotas]\nsandboxes = 3\ncpu = '2'\n[quotas.tenants.team-b]\nsandboxes = 1";
    let server = TestServer::around([], more).await.unwrap();
    let key = async |tenant: &str| {
        let new = json!({"name": "k", "role": "operator", "tenant": tenant});
        let request = server.request(Method::POST, "/v1/api-keys").json(&new);
        answer(request).await.1["secret"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (one, other) = (key("team-a").await, key("team-b").await);
    let create = |key: &str, cpu: &str| {
        let mut body = TestServer::good_create();
        body["resourceLimits"]["cpu"] = json!(cpu);
        answer(
            server
                .request_as(key, Method::POST, "/v1/sandboxes")
                .json(&body),
        )
    };
    let creates = (0..10).map(|_| create(&one, "500m"));
    let all = futures::future::join_all(creates).await;
    let made: Vec<_> = all.iter().filter(|(status, _)| *status == 202).collect();
    assert_eq!(made.len(), 3, "{all:?}");
    for (status, body) in all.iter().filter(|(status, _)| *status != 202) {
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (403, &json!("SANDBOX::QUOTA_EXCEEDED"))
        );
        let message = body["message"].as_str().unwrap();
        assert!(
            message.contains("quota of 3 for sandboxes: 3 in use"),
            "{message}"
        );
    }
    let id = made[0].1["id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}");
    let delete = server.request_as(&one, Method::DELETE, &path);
    let (status, _) = answer(delete.header("prefer", "wait")).await;
    assert_eq!(status, 204);
    let (status, body) = create(&one, "1001m").await;
    assert_eq!(status, 403, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("2000m for cpu: 1000m in use"),
        "{body}"
    );
    let mut unlimited = TestServer::good_create();
    unlimited["resourceLimits"] = json!({"memory": "64Mi"});
    let request = server.request_as(&one, Method::POST, "/v1/sandboxes");
    let (status, body) = answer(request.json(&unlimited)).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(create(&one, "1").await.0, 202, "there is room again");
    assert_eq!(create(&other, "4").await.0, 202, "a quota of its own");
    assert_eq!(create(&other, "4").await.0, 403);
    let everyone = server.request(Method::POST, "/v1/sandboxes");
    let (status, _) = answer(everyone.json(&TestServer::good_create())).await;
    assert_eq!(status, 202, "no tenant, no quota");
    server.stop().await;
}

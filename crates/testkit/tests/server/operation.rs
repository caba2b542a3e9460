//! What operators rely on: metrics, the drain at a stop, and the report about a problem.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use osb_runtime::sim::Faults;
use osb_server::{config, maintenance};
use osb_store::Location;
use osb_testkit::{API_KEY, TestServer, store_in, wait_until};
use reqwest::{Method, StatusCode, header::USER_AGENT};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn text(request: reqwest::RequestBuilder) -> (StatusCode, String) {
    let response = request.send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

async fn create(server: &TestServer, body: &Value) -> String {
    let request = server.request(Method::POST, "/v1/sandboxes").json(body);
    let (status, answer) = text(request).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["id"].as_str().unwrap().to_owned()
}

async fn metrics(server: &TestServer) -> String {
    let (status, page) = text(server.request(Method::GET, "/metrics")).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    page
}

/// The value of a sample, by its name with labels.
fn value(page: &str, sample: &str) -> Option<f64> {
    let line = page.lines().find(|line| {
        line.strip_prefix(sample)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn metrics_count_requests_and_sandboxes_and_name_neither() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let (status, _) = text(server.bare(Method::GET, "/metrics")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let id = create(&server, &TestServer::good_create()).await;
    let one = format!("/v1/sandboxes/{id}");
    for _ in 0..2 {
        text(server.request(Method::GET, &one)).await;
    }
    text(server.request(Method::GET, "/sandboxes/other")).await;
    let event = json!({"eventType": "sandbox.create", "createDurationMs": 300, "success": true});
    let event = server
        .request(Method::POST, "/v1/metrics/events")
        .header(USER_AGENT, "OpenSandbox-Python-SDK/1.1.0")
        .json(&event);
    assert_eq!(text(event).await.0, StatusCode::NO_CONTENT);
    // A request is counted when its connection has sent the last byte.
    let page = wait_until(
        "counts",
        || metrics(&server),
        |page| page.contains("sdk_language=\"python\"") && page.contains("status_code=\"404\""),
    )
    .await;
    let requests = |method: &str, route: &str, status: u16| {
        let sample = format!(
            "http_server_request_duration_seconds_count{{http_request_method=\"{method}\",\
             http_route=\"{route}\",http_response_status_code=\"{status}\"}}"
        );
        value(&page, &sample)
    };
    let one = "/sandboxes/{sandbox_id}";
    assert_eq!(requests("GET", one, 200), Some(2.0), "{page}");
    assert_eq!(requests("GET", one, 404), Some(1.0));
    assert_eq!(requests("POST", "/sandboxes", 202), Some(1.0));
    assert_eq!(requests("GET", "unknown", 401), Some(1.0));
    for (sample, want) in [
        ("opensandbox_sandboxes{state=\"Running\"}", 1.0),
        ("opensandbox_sandbox_create_duration_seconds_count", 1.0),
        ("opensandbox_sandbox_ends_total{outcome=\"deleted\"}", 0.0),
        ("opensandbox_ready", 1.0),
        ("opensandbox_runtime_up", 1.0),
        ("opensandbox_http_shed_total{kind=\"api\"}", 0.0),
    ] {
        assert_eq!(value(&page, sample), Some(want), "{sample}: {page}");
    }
    let python = "opensandbox_sdk_create_duration_seconds_bucket{sdk_language=\"python\",\
                  sdk_version=\"1.1.0\",success=\"true\",le=";
    assert_eq!(value(&page, &format!("{python}\"0.25\"}}")), Some(0.0));
    assert_eq!(value(&page, &format!("{python}\"0.5\"}}")), Some(1.0));
    assert!(!page.contains(&id), "ids are no labels");
    server
        .request(Method::DELETE, &format!("/v1/sandboxes/{id}"))
        .header("Prefer", "wait")
        .send()
        .await
        .unwrap();
    let page = metrics(&server).await;
    let deleted = "opensandbox_sandbox_ends_total{outcome=\"deleted\"}";
    assert_eq!(value(&page, deleted), Some(1.0));
    server.stop().await;
}

#[tokio::test]
async fn metrics_need_no_key_where_the_operator_says_so() {
    let more = "[metrics]\nauthentication = false\naddress = '127.0.0.1:0'";
    let server = TestServer::around([], more).await.unwrap();
    let (status, page) = text(server.bare(Method::GET, "/metrics")).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let address = server.metrics_address().unwrap();
    let client = osb_client::default_http().unwrap();
    let get = |path: &str| client.get(format!("http://{address}{path}"));
    let (status, page) = text(get("/metrics")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("opensandbox_build_info{"), "{page}");
    for path in ["/v1/sandboxes", "/health", "/console/login", "/"] {
        assert_eq!(text(get(path)).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    server.stop().await;
}

/// Writes a new certificate and its key, and returns the certificate.
fn issue(folder: &Path) -> reqwest::Certificate {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let issued = rcgen::generate_simple_self_signed(names).unwrap();
    let pem = issued.cert.pem();
    std::fs::write(folder.join("tls.crt"), &pem).unwrap();
    std::fs::write(folder.join("tls.key"), issued.signing_key.serialize_pem()).unwrap();
    reqwest::Certificate::from_pem(pem.as_bytes()).unwrap()
}

#[tokio::test]
async fn https_has_secure_cookies_and_new_certificates_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let client = |certificate: &reqwest::Certificate| {
        let builder = reqwest::Client::builder().tls_certs_only([certificate.clone()]);
        builder
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap()
    };
    let first = issue(folder.path());
    let (certificate, key) = (file("tls.crt"), file("tls.key"));
    let more = format!("tls = {{ certificate = '{certificate}', key = '{key}' }}");
    let server = TestServer::around([], &more).await.unwrap();
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", server.address.port());
    let open = client(&first);
    let health = open.get(url("/health")).send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
    assert_eq!(health.version(), reqwest::Version::HTTP_2);
    let login = open
        .post(url("/console/login"))
        .form(&[("key", API_KEY)])
        .send()
        .await
        .unwrap();
    let cookies = login.headers().get_all("set-cookie").iter();
    let cookies: Vec<_> = cookies.map(|cookie| cookie.to_str().unwrap()).collect();
    let is_secure = |cookie: &&str| cookie.starts_with("__Secure-") && cookie.contains("; Secure");
    assert!(cookies.iter().any(is_secure), "{cookies:?}");
    let second = issue(folder.path());
    // The server has a handler for it, or the test ends here.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
    let look = || async {
        let answer = client(&second).get(url("/health")).send().await;
        answer.is_ok()
    };
    wait_until("the new certificate", look, |served| *served).await;
    let again = open.get(url("/health")).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::OK, "the old connection goes on");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_under_load_cuts_no_answer() {
    const CREATES: usize = 16;
    const READERS: usize = 8;
    let (server, sim) = TestServer::sim().await.unwrap();
    sim.set_faults(Faults {
        stage_delay: Duration::from_millis(100),
        ..Faults::default()
    });
    let server = Arc::new(server);
    let whole = Arc::new(AtomicUsize::new(0));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        let (server, whole) = (Arc::clone(&server), Arc::clone(&whole));
        readers.spawn(async move {
            let client = osb_client::default_http().unwrap();
            let url = format!("http://{}/v1/sandboxes", server.address);
            loop {
                let request = client.get(&url).header("OPEN-SANDBOX-API-KEY", API_KEY);
                // Once the server has stopped, a connection is refused or closed before an answer.
                let Ok(response) = request.send().await else {
                    return;
                };
                assert!(response.status().is_success(), "{}", response.status());
                let body = response
                    .bytes()
                    .await
                    .expect("an answer that began is whole");
                serde_json::from_slice::<Value>(&body).expect("an answer that began is whole");
                whole.fetch_add(1, SeqCst);
            }
        });
    }
    let read = async || whole.load(SeqCst);
    wait_until("answers to readers", read, |count| *count >= READERS).await;
    let mut creates = tokio::task::JoinSet::new();
    for _ in 0..CREATES {
        let server = Arc::clone(&server);
        creates.spawn(async move { create(&server, &TestServer::good_create()).await });
    }
    let accepted = async || server.service.registry().snapshot().0.len();
    wait_until("all creates", accepted, |count| *count == CREATES).await;
    server.stop().await;
    let ids = creates.join_all().await;
    assert_eq!(ids.len(), CREATES, "each create was answered");
    readers.join_all().await;
}

#[tokio::test]
async fn a_support_bundle_gives_the_key_to_the_server_of_its_store_only() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(osb_runtime::sim::SimRuntime::new());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    // Another process has the port: it sees what it is sent, and does as the server does otherwise.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let (heard, tasks) = (Arc::clone(&seen), osb_service::Supervisor::new());
    tasks.spawn_abortable("impostor", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 8192];
            let length = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            heard.lock().unwrap().push_str(&head);
            let proof = "0".repeat(64);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nOpenSandbox-Proof: {proof}\r\nContent-Length: 2\r\n\
                 Connection: close\r\n\r\n{{}}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let store = store_lines(folder.path()).await;
    let toml = format!(
        "[server]\nhost = '127.0.0.1'\nport = {port}\napi_key = '{API_KEY}'\n\
         [runtime]\ntype = 'sim'\n[store]\n{store}"
    );
    let file = folder.path().join("config.toml");
    std::fs::write(&file, toml).unwrap();
    let loaded = config::load(Some(&file), &|_| None).unwrap();
    let bundle = maintenance::Bundle::collect(&loaded, "test build", &|_| None).await;
    let (_, metrics) = bundle
        .parts
        .iter()
        .find(|(part, _)| part == "server-metrics.txt")
        .unwrap();
    assert!(
        metrics.starts_with("the API key was not sent: "),
        "{metrics}"
    );
    let seen = seen.lock().unwrap().clone();
    assert!(seen.contains("GET /metrics"), "{seen}");
    assert!(!seen.contains(API_KEY), "{seen}");
    server.stop().await;
    tasks.stop();
}

/// Keys of `[store]` for the store of a test server in a folder.
async fn store_lines(folder: &Path) -> String {
    match store_in(folder).await.unwrap() {
        Location::Sqlite(path) => format!("path = '{}'\n", path.display()),
        Location::Postgres(options) => {
            let dsn = options.dsn.expose_secret();
            format!("type = 'postgresql'\npostgresql.dsn = '{dsn}'\n")
        }
    }
}

#[tokio::test]
async fn a_command_asks_the_running_server_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(osb_runtime::sim::SimRuntime::new());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    let port = server.address.port();
    let toml = format!("[server]\nhost = '0.0.0.0'\nport = {port}\n[runtime]\ntype = 'sim'\n");
    let file = folder.path().join("config.toml");
    std::fs::write(&file, toml).unwrap();
    let loaded = config::load(Some(&file), &|_| None).unwrap();
    maintenance::health(&loaded.config, false).await.unwrap();
    wait_until(
        "a ready server",
        || maintenance::health(&loaded.config, true),
        Result::is_ok,
    )
    .await
    .unwrap();
    server.stop().await;
    let ended = maintenance::health(&loaded.config, false).await;
    assert!(ended.is_err());
}

#[tokio::test]
async fn a_support_bundle_has_what_helps_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(osb_runtime::sim::SimRuntime::new());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    wait_until(
        "a ready server",
        || text(server.bare(Method::GET, "/ready")),
        |seen| seen.0 == 200,
    )
    .await;
    let mut body = TestServer::good_create();
    body["env"] = json!({"PASSWORD": "secret-of-the-environment"});
    body["metadata"] = json!({"team": "secret-team"});
    let id = create(&server, &body).await;
    let record = server.service.registry().get(&id.as_str().into()).unwrap();
    let token = record.facts.origin.token.as_ref().unwrap().expose_secret();
    let login = server
        .bare(Method::POST, "/console/login")
        .form(&[("key", API_KEY)])
        .send()
        .await
        .unwrap();
    let cookies = login.headers().get_all("set-cookie").iter();
    let cookies: Vec<String> = cookies
        .filter_map(|cookie| {
            cookie
                .to_str()
                .ok()?
                .split(['=', ';'])
                .nth(1)
                .map(str::to_owned)
        })
        .filter(|value| !value.is_empty())
        .collect();
    let file = folder.path().join("config.toml");
    let toml = format!(
        "[server]\nhost = '127.0.0.1'\nport = {}\napi_key = '{API_KEY}'\n[runtime]\ntype = 'sim'\n\
         [docker]\nsandbox_env = {{ A = 'secret-of-the-fleet' }}\n\
         [otel]\nendpoint = 'http://collector.example/v1/metrics?key=secret-word'\n\
         [[webhooks]]\nname = 'ops'\nurl = 'https://hooks.example.org/secret-path?q=secret-query'\n\
         secret = 'whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0'\n\
         [store]\n{}",
        server.address.port(),
        store_lines(folder.path()).await,
    );
    std::fs::write(&file, toml).unwrap();
    let loaded = config::load(Some(&file), &|_| None).unwrap();
    let bundle = maintenance::Bundle::collect(&loaded, "test build", &|_| None).await;
    let part = |name: &str| {
        let part = bundle.parts.iter().find(|(part, _)| part == name);
        part.map(|(_, text)| text.clone()).unwrap()
    };
    assert!(part("about.json").contains("test build"));
    assert!(part("config.txt").contains("server.api_key = \"********\""));
    assert!(
        part("server-ready.txt").starts_with("200"),
        "{}",
        part("server-ready.txt")
    );
    assert!(part("server-metrics.txt").contains("opensandbox_sandboxes{state=\"Running\"} 1"));
    let secrets = [
        API_KEY,
        "secret-of-the-environment",
        "secret-team",
        "secret-of-the-fleet",
        "secret-word",
        "secret-path",
        "secret-query",
        "c2VjcmV0",
        token,
        id.as_str(),
    ];
    let secrets = secrets
        .into_iter()
        .chain(cookies.iter().map(String::as_str));
    for secret in secrets {
        for (name, text) in &bundle.parts {
            assert!(!text.contains(secret), "{name} has {secret}");
        }
    }
    let archive = folder.path().join("bundle.tar.gz");
    let no_variable = |_: &str| None;
    let write = || maintenance::support_bundle(&loaded, Some(archive.clone()), "b", &no_variable);
    write().await.unwrap();
    let mode = archive.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let again = write().await.unwrap_err().to_string();
    assert!(again.contains("cannot write"), "{again}");
    server.stop().await;
}

#[tokio::test]
async fn images_that_nothing_has_used_for_a_time_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let options = osb_runtime::sim::Options {
        powers: true,
        ..Default::default()
    };
    let sim = Arc::new(osb_runtime::sim::SimRuntime::with_options(options));
    let names = [
        "debian:12",
        "recent:1",
        "old:1",
        "kept:1",
        "team/kept:2",
        "pool:1",
        "new:1",
    ];
    sim.set_images(names.map(|name| osb_runtime::LocalImage {
        reference: name.to_owned(),
        bytes: 1000,
    }));
    let store = osb_store::open(&store_in(folder.path()).await.unwrap())
        .await
        .unwrap();
    let hours_ago = |hours: i64| {
        let now = osb_protocol::WireTime::new(jiff::Timestamp::now());
        now.plus_seconds(-3600 * hours).unwrap()
    };
    for (image, hours) in [
        ("debian:12", 9),
        ("recent:1", 1),
        ("recent:1", 9),
        ("old:1", 9),
        ("kept:1", 9),
        ("team/kept:2", 9),
        ("pool:1", 9),
    ] {
        let ended = osb_store::HistoryEntry {
            id: format!("{image}-{hours}").as_str().into(),
            image: image.to_owned(),
            created_at: hours_ago(hours),
            ended_at: hours_ago(hours),
            outcome: osb_store::Outcome::Deleted,
            reason: "DELETED".to_owned(),
            message: String::new(),
            stages: Vec::new(),
            tenant: None,
            spec: osb_store::EndedSpec::default(),
        };
        store.finish(&ended).await.unwrap();
    }
    let more = "[image_gc]\nenabled = true\nunused_hours = 2\ndisk_percent = 99\n\
                keep = ['kept:1', 'team/*']\n";
    let server = TestServer::assemble(Arc::clone(&sim) as _, Arc::clone(&store), more);
    let server = server.await.unwrap();
    create(&server, &TestServer::good_create()).await;
    let pool = json!({
        "name": "p", "template": {"spec": {"containers": [{"image": "pool:1"}]}},
        "capacitySpec": {"bufferMax": 0, "bufferMin": 0, "poolMax": 1, "poolMin": 0},
    });
    let request = server.request(Method::POST, "/v1/pools").json(&pool);
    assert_eq!(text(request).await.0, StatusCode::CREATED);
    let left = || {
        let images = server.service.images();
        async {
            images
                .await
                .unwrap()
                .into_iter()
                .map(|it| it.reference)
                .collect::<Vec<_>>()
        }
    };
    server.service.collect_images().await.unwrap();
    assert_eq!(left().await.len(), names.len(), "the disk has room");
    server.stop().await;
    drop(server);

    drop(store);
    let more = more.replace("99", "0");
    let store = osb_store::open(&store_in(folder.path()).await.unwrap())
        .await
        .unwrap();
    let server = TestServer::assemble(Arc::clone(&sim) as _, store, &more);
    let server = server.await.unwrap();
    let images = async || {
        server.service.collect_images().await.unwrap();
        let images = server.service.images().await.unwrap_or_default();
        images
            .into_iter()
            .map(|it| it.reference)
            .collect::<Vec<_>>()
    };
    let mut wanted: Vec<_> = names.into_iter().filter(|it| *it != "old:1").collect();
    wanted.sort_unstable();
    wait_until("the removal", images, |left| *left == wanted).await;
    let page = metrics(&server).await;
    assert_eq!(
        value(&page, "opensandbox_image_gc_removed_total"),
        Some(1.0)
    );
    let bytes = value(&page, "opensandbox_image_gc_removed_bytes_total");
    assert_eq!(bytes, Some(1000.0));
    server.stop().await;
}

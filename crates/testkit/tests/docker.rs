//! The server over the real Docker engine: behaviour that only a real engine shows.
//!
//! Needs the engine's socket, an execd binary and one image; fails with the reason otherwise.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, Docker};
use osb_protocol::WireTime;
use osb_runtime::{
    Role,
    docker::{DockerConfig, DockerRuntime, LogLimit, NetworkMode, SidecarConfig},
};
use osb_service::telemetry;
use osb_store::Location;
use osb_testkit::{EngineProxy, TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Any image with a shell; the base image of the sandboxes has one.
const IMAGE: &str = "opensandbox/base:latest";

/// Path of a built execd.
fn execd() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let named = std::env::var_os("OPENSANDBOX_EXECD_PATH").map(PathBuf::from);
    let built = ["dist-test/execd", "dist/execd"].map(|name| target.join(name));
    named.into_iter().chain(built).find(|path| path.is_file())
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The engine proxy, store and settings of one test.
struct Stage {
    folder: tempfile::TempDir,
    engine: EngineProxy,
    instance: String,
}

impl Stage {
    fn set() -> Self {
        let image = docker(&["image", "inspect", "--format", "{{.Id}}", IMAGE]);
        assert!(
            !image.is_empty() && execd().is_some(),
            "needs Docker, the image {IMAGE} and a built execd: run `cargo xtask test`"
        );
        let folder = tempfile::tempdir().unwrap();
        let engine = EngineProxy::down(folder.path());
        // `cargo xtask test` recognises the resources of its run by this name.
        let run = std::env::var("OPENSANDBOX_TEST_RUN").unwrap_or_default();
        let folder_name = folder.path().file_name().unwrap().to_string_lossy();
        let instance = format!("test-{run}{folder_name}");
        Self {
            folder,
            engine,
            instance,
        }
    }

    async fn server(&self) -> TestServer {
        self.server_with(Vec::new()).await
    }

    /// Starts a server whose sandboxes have sidecars.
    async fn server_with(&self, sidecars: Vec<SidecarConfig>) -> TestServer {
        let timeout = 120;
        let config = DockerConfig {
            instance: self.instance.clone(),
            has_route: true,
            execd: execd().unwrap(),
            network: NetworkMode::Bridge,
            api_timeout: Duration::from_secs(timeout),
            drop_capabilities: vec!["NET_RAW".into(), "SYS_ADMIN".into()],
            apparmor_profile: None,
            seccomp_profile: None,
            no_new_privileges: true,
            log_limit: Some(LogLimit {
                max_size: "1m".to_owned(),
                max_files: 2,
            }),
            pids_limit: 256,
            port_min: 40000,
            port_max: 60000,
            publish_host: Ipv4Addr::LOCALHOST,
            sandbox_env: [("FLEET".to_owned(), "1".to_owned())].into(),
            sandbox_binds: Vec::new(),
            sidecars,
            oci_runtime: None,
        };
        let address = self.engine.address();
        let connect = move || Docker::connect_with_unix(&address, timeout, API_DEFAULT_VERSION);
        let runtime = DockerRuntime::over(config, connect).unwrap();
        TestServer::over(Arc::new(runtime), self.folder.path(), "")
            .await
            .unwrap()
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn containers(&self) -> Vec<String> {
        let filter = format!("label=opensandbox.io/server={}", self.instance);
        let list = docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]);
        list.lines().map(str::to_owned).collect()
    }

    /// Returns the oldest container with the sandbox's id.
    fn container_of(&self, id: &str) -> String {
        let oldest = containers_with(&format!("opensandbox.io/id={id}")).pop();
        oldest.expect("the sandbox has a container")
    }
}

/// Lists the containers with a label, newest first.
fn containers_with(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    let list = docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]);
    list.lines().map(str::to_owned).collect()
}

impl Drop for Stage {
    fn drop(&mut self) {
        // There is something to remove only after a failed test.
        for container in self.containers() {
            docker(&["rm", "--force", "--volumes", &container]);
        }
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

async fn ready(server: &TestServer) {
    let look = || answer(server.bare(Method::GET, "/ready"));
    wait_until("a ready server", look, |seen| seen.0 == 200).await;
}

fn body() -> Value {
    let mut body = TestServer::good_create();
    body["image"]["uri"] = IMAGE.into();
    body
}

async fn create(server: &TestServer, body: &Value) -> String {
    let request = server.request(Method::POST, "/v1/sandboxes").json(body);
    let (status, answer) = answer(request).await;
    assert_eq!(status, 202, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn get(server: &TestServer, id: &str) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

async fn delete(server: &TestServer, id: &str) {
    let request = server.request(Method::DELETE, &format!("/v1/sandboxes/{id}"));
    assert_eq!(answer(request.header("Prefer", "wait")).await.0, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_engine_is_reported_until_it_returns() {
    let mut stage = Stage::set();
    let server = stage.server().await;
    let list = || answer(server.request(Method::GET, "/v1/sandboxes"));
    let (status, _) = list().await;
    assert_eq!(status, 503, "the server must not return an empty list");
    stage.engine.up().unwrap();
    ready(&server).await;
    let id = create(&server, &body()).await;
    stage.engine.cut().unwrap();
    let lost = |seen: &(StatusCode, Value)| seen.0 == 503;
    let (_, reply) = wait_until("the loss", list, lost).await;
    assert_eq!(reply["code"], "GENERAL::RUNTIME_UNAVAILABLE");
    // Changes during the outage are seen afterwards.
    docker(&["rm", "--force", &stage.container_of(&id)]);
    stage.engine.up().unwrap();
    ready(&server).await;
    assert_eq!(get(&server, &id).await.0, 404);
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_engine_is_reported_until_it_resumes() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    stage.engine.hang();
    let look = || answer(server.bare(Method::GET, "/ready"));
    // Far sooner than the timeout of requests to the engine.
    wait_until("the loss", look, |seen| seen.0 == 503).await;
    docker(&["rm", "--force", &stage.container_of(&id)]);
    stage.engine.go_on();
    ready(&server).await;
    let gone = |seen: &(StatusCode, Value)| seen.0 == 404;
    wait_until("the removal", || get(&server, &id), gone).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_events_are_replaced_by_a_list() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    stage.engine.forget_connections();
    docker(&["kill", &stage.container_of(&id)]);
    let ended = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
    wait_until("the end", || get(&server, &id), ended).await;
    ready(&server).await;
    // The server follows events again, over more than one window.
    for _ in 0..3 {
        let id = create(&server, &body()).await;
        docker(&["kill", &stage.container_of(&id)]);
        wait_until("the end", || get(&server, &id), ended).await;
        delete(&server, &id).await;
    }
    delete(&server, &id).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn a_restart_keeps_sandboxes_and_ends_overdue_ones() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let (stays, due) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        let (stays, due) = (
            create(&server, &body()).await,
            create(&server, &body()).await,
        );
        let path = format!("/v1/sandboxes/{stays}/renew-expiration");
        let later = json!({"expiresAt": "2099-01-01T00:00:00Z"});
        let renew = server.request(Method::POST, &path).json(&later);
        assert_eq!(answer(renew).await.0, 200);
        let path = format!("/v1/sandboxes/{stays}/metadata");
        let patch = server
            .request(Method::PATCH, &path)
            .json(&json!({"kept": "yes"}));
        assert_eq!(answer(patch).await.0, 200);
        (stays, due)
    });
    // Every task of the first server is aborted here.
    first.shutdown_timeout(Duration::from_secs(60));
    let second = process();
    second.block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        // Its deadline passed while no server ran.
        let store = osb_store::open(&Location::Sqlite(stage.store()))
            .await
            .unwrap();
        let past = WireTime::parse("2001-01-01T00:00:00Z").unwrap();
        store.set_expiry(&due.as_str().into(), past).await.unwrap();
        store.close().await;
        drop(store);
        let server = stage.server().await;
        ready(&server).await;
        let (_, kept) = get(&server, &stays).await;
        assert_eq!(kept["expiresAt"], "2099-01-01T00:00:00Z");
        assert_eq!(kept["metadata"], json!({"kept": "yes"}));
        assert_eq!(kept["status"]["state"], "Running");
        wait_until(
            "the overdue one",
            || get(&server, &due),
            |seen| seen.0 == 404,
        )
        .await;
        let path = format!("/sandboxes/{stays}/proxy/44772/command");
        let command = json!({"command": "echo $FLEET-$EXECD_ACCESS_TOKEN-"});
        let output = server
            .request(Method::POST, &path)
            .json(&command)
            .send()
            .await
            .unwrap();
        assert!(output.text().await.unwrap().contains("\"text\":\"1--\""));
        delete(&server, &stays).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn a_delete_interrupted_by_a_crash_is_completed() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let id = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        create(&server, &body()).await
    });
    first.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        // The intent is stored, but the server died before it acted.
        let store = osb_store::open(&Location::Sqlite(stage.store()))
            .await
            .unwrap();
        let at = WireTime::parse("2001-01-01T00:00:00Z").unwrap();
        store.set_deleted(&id.as_str().into(), at).await.unwrap();
        store.close().await;
        drop(store);
        let server = stage.server().await;
        ready(&server).await;
        wait_until(
            "the deleted one",
            || get(&server, &id),
            |seen| seen.0 == 404,
        )
        .await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn an_out_of_memory_kill_is_reported_also_after_a_restart() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let end_message = async |server: &TestServer, id: &str| {
        let failed = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
        let (_, seen) = wait_until("the end", || get(server, id), failed).await;
        seen["status"]["message"].as_str().unwrap().to_owned()
    };
    let want = "The entry point ended with exit code 137 because its memory limit was reached.";
    let first = process();
    let id = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        let mut greedy = body();
        greedy["entrypoint"] = json!(["tail", "/dev/zero"]);
        greedy["resourceLimits"]["memory"] = "64Mi".into();
        let id = create(&server, &greedy).await;
        assert_eq!(end_message(&server, &id).await, want);
        id
    });
    first.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        assert_eq!(end_message(&server, &id).await, want);
        delete(&server, &id).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_was_renamed_by_hand_is_removed() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    docker(&["rename", &stage.container_of(&id), "renamed-by-hand"]);
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

/// Collects the log.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_level_shows_a_secret() {
    let output = Output::default();
    let writer = output.clone();
    telemetry::init_with_writer("trace", false, move || writer.clone()).unwrap();
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut secretive = body();
    secretive["env"] = json!({"PASSWORD": "s3cret-value-of-the-environment"});
    let id = create(&server, &secretive).await;
    let label = r#"{{index .Config.Labels "opensandbox.io/execd-access-token"}}"#;
    let token = docker(&["inspect", "--format", label, &stage.container_of(&id)]);
    assert!(token.len() > 16, "{token}");
    let command = json!({"command": "echo $PASSWORD"});
    let (_, events) = ask(&server, &id, Method::POST, "/command", Some(command)).await;
    assert!(events.contains("s3cret-value"), "{events}");
    delete(&server, &id).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
    let log = String::from_utf8_lossy(&output.0.lock().unwrap()).into_owned();
    assert!(log.contains("sandbox removed"), "nothing was logged: {log}");
    for secret in [&token, "s3cret-value", osb_testkit::API_KEY] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a secret is in the log");
    }
}

/// The container and image of a copied sandbox; removed when dropped.
struct Copy {
    image: String,
    container: String,
}

impl Copy {
    /// Commits the sandbox's container and runs the image.
    fn of(stage: &Stage, container: &str) -> Self {
        let image = format!("opensandbox-copy:{}", stage.instance.to_lowercase());
        docker(&["commit", container, &image]);
        let command = ["--entrypoint", "sleep", &image, "300"];
        let run = [&["run", "--detach"][..], &command].concat();
        let container = docker(&run);
        assert!(!container.is_empty(), "the copy does not run");
        Self { image, container }
    }

    fn exists(&self) -> bool {
        !docker(&["inspect", "--format", "{{.Id}}", &self.container]).is_empty()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        docker(&["rm", "--force", "--volumes", &self.container]);
        docker(&["rmi", "--force", &self.image]);
    }
}

#[test]
fn a_copy_of_a_sandbox_is_not_the_sandbox() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let (id, other) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        let id = create(&server, &body()).await;
        let copy = Copy::of(&stage, &stage.containers()[0]);
        drop(copy);
        // Events arrive in order: when this sandbox's end is visible, the copy's was processed.
        let other = create(&server, &body()).await;
        let ends = stage.container_of(&other);
        docker(&["kill", &ends]);
        let ended = |seen: &(StatusCode, Value)| seen.1["status"]["state"] != "Running";
        wait_until("the other's end", || get(&server, &other), ended).await;
        let (_, seen) = get(&server, &id).await;
        assert_eq!(seen["status"]["state"], "Running", "{seen}");
        (id, other)
    });
    first.shutdown_timeout(Duration::from_secs(60));
    let second = process();
    let copy = second.block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let original = stage.container_of(&id);
        let copy = Copy::of(&stage, &original);
        let server = stage.server().await;
        ready(&server).await;
        let (_, seen) = get(&server, &id).await;
        assert_eq!(seen["status"]["state"], "Running", "{seen}");
        docker(&["kill", &copy.container]);
        delete(&server, &other).await;
        assert_eq!(get(&server, &id).await.1["status"]["state"], "Running");
        delete(&server, &id).await;
        assert!(copy.exists(), "the copy was removed");
        let left = docker(&["inspect", "--format", "{{.Id}}", &original]);
        assert_eq!(left, "", "the sandbox was not removed");
        server.stop().await;
        copy
    });
    second.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        // After a restart, and without the original sandbox.
        let server = stage.server().await;
        ready(&server).await;
        assert_eq!(get(&server, &id).await.0, 404);
        server.service.reconcile().await;
        assert!(copy.exists(), "the copy was removed");
        server.stop().await;
        drop(copy);
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_cannot_learn_a_sandboxs_id() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let (id, neighbour) = (
        create(&server, &body()).await,
        create(&server, &body()).await,
    );
    let container = stage.container_of(&id);
    let inspect = |format: &str| docker(&["inspect", "--format", format, &container]);
    let names = "{{.Name}} {{.Config.Hostname}} {{json .NetworkSettings.Networks}}";
    assert!(!inspect(names).contains(&id), "{}", inspect(names));
    let mut address = inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
    let look_up = async |address: &str| {
        let command = json!({"command": format!("getent hosts {address}; hostname")});
        let (status, events) =
            ask(&server, &neighbour, Method::POST, "/command", Some(command)).await;
        assert_eq!(status, 200, "{events}");
        events
    };
    let events = look_up(&address).await;
    assert!(!events.contains(&id), "{events}");
    assert!(events.contains(&inspect("{{.Name}}")[1..]), "{events}");
    // Earlier builds put the id into the name.
    docker(&["rename", &container, &format!("sandbox-{id}")]);
    let events = look_up(&address).await;
    assert!(events.contains(&id), "the test would not see it: {events}");
    stage.engine.cut().unwrap();
    stage.engine.up().unwrap();
    let renamed = |name: &String| name.starts_with("/osb-");
    wait_until("the new name", || async { inspect("{{.Name}}") }, renamed).await;
    ready(&server).await;
    address = inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
    let events = look_up(&address).await;
    assert!(!events.contains(&id), "{events}");
    for id in [&id, &neighbour] {
        delete(&server, id).await;
    }
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_leftovers_are_removed() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let foreign = format!("opensandbox.io/server={}-not", stage.instance);
    let other = docker(&[
        "run",
        "--detach",
        "--label",
        "opensandbox.io/id=foreign-1",
        "--label",
        &foreign,
        IMAGE,
        "sleep",
        "300",
    ]);
    let ours = format!("opensandbox.io/server={}", stage.instance);
    let never_started = docker(&[
        "create",
        "--label",
        "opensandbox.io/id=half-made-1",
        "--label",
        &ours,
        IMAGE,
        "true",
    ]);
    assert!(!other.is_empty() && !never_started.is_empty());
    let server = stage.server().await;
    ready(&server).await;
    let look = || async { stage.containers() };
    wait_until("the sweep", look, Vec::is_empty).await;
    let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
    assert_eq!(list["items"], json!([]));
    let left = docker(&["ps", "--quiet", "--filter", &format!("label={foreign}")]);
    docker(&["rm", "--force", &other]);
    assert!(
        !left.is_empty(),
        "another installation's sandbox was touched"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_reasons_and_leave_nothing() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut no_image = body();
    no_image["image"]["uri"] = "no-such-registry.invalid/no/such:image".into();
    let request = server
        .request(Method::POST, "/v1/sandboxes")
        .json(&no_image);
    let (status, reply) = answer(request).await;
    assert_eq!(
        (status.as_u16(), &reply["code"]),
        (500, &json!("DOCKER::SANDBOX_IMAGE_PULL_FAILED"))
    );
    assert!(
        reply["message"]
            .as_str()
            .unwrap()
            .contains("no-such-registry.invalid/no/such:image")
    );
    assert_eq!(stage.containers(), [""; 0]);
    let mut too_small = body();
    too_small["resourceLimits"]["memory"] = "1Ki".into();
    let request = server
        .request(Method::POST, "/v1/sandboxes")
        .json(&too_small);
    let (status, reply) = answer(request).await;
    assert_eq!(
        (status.as_u16(), &reply["code"]),
        (400, &json!("SANDBOX::INVALID_PARAMETER")),
        "{reply}"
    );
    let mut no_command = body();
    no_command["entrypoint"] = json!(["/no/such/command"]);
    let id = create(&server, &no_command).await;
    let failed = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
    let (_, seen) = wait_until("the failure", || get(&server, &id), failed).await;
    assert!(
        seen["status"]["message"].as_str().unwrap().contains("127"),
        "{seen}"
    );
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_reach_the_container_and_parallel_creates_do_not_collide() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = Arc::new(stage.server().await);
    ready(&server).await;
    let creates = (0..8).map(|_| {
        let server = Arc::clone(&server);
        async move { create(&server, &body()).await }
    });
    let ids = futures::future::join_all(creates).await;
    let name = stage.container_of(&ids[0]);
    let format = "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} \
                  {{.HostConfig.SecurityOpt}} {{.HostConfig.NetworkMode}} \
                  {{.HostConfig.LogConfig.Config}}";
    let seen = docker(&["inspect", "--format", format, &name]);
    assert_eq!(
        seen,
        "268435456 500000000 256 [no-new-privileges=true] opensandbox \
         map[max-file:2 max-size:1m]"
    );
    let icc = r#"{{index .Options "com.docker.network.bridge.enable_icc"}}"#;
    assert_eq!(
        docker(&["network", "inspect", "--format", icc, "opensandbox"]),
        "false"
    );
    for id in &ids {
        delete(&server, id).await;
    }
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

/// Sends a request to the execd of a sandbox.
async fn ask(
    server: &TestServer,
    id: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, String) {
    let path = format!("/sandboxes/{id}/proxy/44772{path}");
    let request = server.request(method, &path);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let response = request.send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

async fn capabilities(server: &TestServer, id: &str) -> Value {
    let path = "/v1/isolated/capabilities";
    let (status, body) = ask(server, id, Method::GET, path, None).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_sessions_take_the_extension() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut asking = body();
    asking["extensions"] =
        json!({"bootstrap.execd.isolation": "enable", "opensandbox.extensions.kept": "yes"});
    let id = create(&server, &asking).await;
    let reported = capabilities(&server, &id).await;
    assert_eq!(reported["available"], true, "{reported}");
    let session = json!({"workspace": {"path": "/workspace"}});
    let path = "/v1/isolated/session";
    let (status, made) = ask(&server, &id, Method::POST, path, Some(session)).await;
    assert_eq!(status, 201, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let path = format!("{path}/{}/run", made["session_id"].as_str().unwrap());
    let code = json!({"code": "touch here; echo $(hostname) $(pwd) $$"});
    let (status, events) = ask(&server, &id, Method::POST, &path, Some(code)).await;
    assert_eq!(status, 200, "{events}");
    assert!(
        events.contains("\"text\":\"sandbox /workspace "),
        "{events}"
    );
    assert!(events.contains("execution_complete"), "{events}");
    let look = json!({"command": "ls /workspace | wc -l"});
    let (_, events) = ask(&server, &id, Method::POST, "/command", Some(look)).await;
    assert!(events.contains("\"text\":\"0\""), "{events}");
    let name = stage.container_of(&id);
    let format = "{{.HostConfig.CapAdd}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} \
                  {{.HostConfig.MaskedPaths}} {{.HostConfig.ReadonlyPaths}} {{.HostConfig.Tmpfs}}";
    let seen = docker(&["inspect", "--format", format, &name]);
    // Older engines prefix the names of capabilities, newer ones do not.
    assert_eq!(
        seen.replace("CAP_", ""),
        "[SYS_ADMIN] [NET_RAW] \
         [no-new-privileges=true apparmor=unconfined seccomp=unconfined] \
         [] [] map[/var/lib/execd/isolation:]"
    );
    // The extension shows nowhere else: neither in the labels nor in the API.
    let labels = docker(&["inspect", "--format", "{{json .Config.Labels}}", &name]);
    assert!(!labels.contains("isolation"), "{labels}");
    let (_, sandbox) = get(&server, &id).await;
    assert_eq!(
        sandbox["extensions"],
        json!({"opensandbox.extensions.kept": "yes"})
    );
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_extension_only_isolated_sessions_are_missing() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    let reported = capabilities(&server, &id).await;
    assert_eq!(reported["available"], false, "{reported}");
    let why = reported["message"].as_str().unwrap();
    assert!(why.contains("bootstrap.execd.isolation"), "{why}");
    let session = json!({"workspace": {"path": "/workspace"}});
    let path = "/v1/isolated/session";
    let (status, reply) = ask(&server, &id, Method::POST, path, Some(session)).await;
    assert_eq!(status, 503, "{reply}");
    let command = json!({"command": "test ! -e /workspace && echo fine"});
    let (_, events) = ask(&server, &id, Method::POST, "/command", Some(command)).await;
    assert!(events.contains("\"text\":\"fine\""), "{events}");
    let format = "{{.HostConfig.CapAdd}} {{.HostConfig.SecurityOpt}} {{.HostConfig.Tmpfs}}";
    let seen = docker(&["inspect", "--format", format, &stage.container_of(&id)]);
    assert_eq!(seen, "[] [no-new-privileges=true] map[]");
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

fn sidecar() -> SidecarConfig {
    SidecarConfig {
        role: Role::Egress,
        image: IMAGE.to_owned(),
        entrypoint: vec!["sleep".to_owned(), "infinity".to_owned()],
        add_capabilities: vec!["NET_ADMIN".to_owned()],
    }
}

#[test]
fn a_sandbox_with_a_sidecar_is_one_group() {
    let mut stage = Stage::set();
    let first = tokio::runtime::Runtime::new().unwrap();
    let (id, egress) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server_with(vec![sidecar()]).await;
        ready(&server).await;
        let id = create(&server, &body()).await;
        let [main, egress] = containers_with(&format!("opensandbox.io/id={id}"))
            .try_into()
            .unwrap();
        // execd listens in the main container and is published by the sidecar.
        let endpoint = server.request(Method::GET, &format!("/v1/sandboxes/{id}/endpoints/44772"));
        let (status, endpoint) = answer(endpoint).await;
        assert_eq!(status, 200, "{endpoint}");
        let ping = format!("http://{}/ping", endpoint["endpoint"].as_str().unwrap());
        assert_eq!(reqwest::get(ping).await.unwrap().status(), 200);
        let proxied = format!("/v1/sandboxes/{id}/proxy/44772/ping");
        assert_eq!(
            server
                .request(Method::GET, &proxied)
                .send()
                .await
                .unwrap()
                .status(),
            200
        );
        let mode = docker(&["inspect", "--format", "{{.HostConfig.NetworkMode}}", &main]);
        assert_eq!(mode, format!("container:{egress}"));
        (id, egress)
    });
    first.shutdown_timeout(Duration::from_secs(60));
    // The sidecar ends while no server runs.
    docker(&["kill", &egress]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server_with(vec![sidecar()]).await;
        ready(&server).await;
        let (_, shown) = get(&server, &id).await;
        assert_eq!(shown["status"]["reason"], "EGRESS_LOST", "{shown}");
        delete(&server, &id).await;
        assert_eq!(stage.containers(), [""; 0]);
        // The sidecar ends while a server runs.
        let id = create(&server, &body()).await;
        let egress = containers_with("opensandbox.io/role=egress");
        docker(&["kill", &egress[0]]);
        let failed = |seen: &(StatusCode, Value)| seen.1["status"]["reason"] == "EGRESS_LOST";
        wait_until("the loss", || get(&server, &id), failed).await;
        delete(&server, &id).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

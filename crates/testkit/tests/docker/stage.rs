//! The engine, server and requests of the tests.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, Docker};
use osb_runtime::docker::{
    DockerConfig, DockerRuntime, LogLimit, NetworkMode, SidecarConfig, StorageConfig,
};
use osb_testkit::{EngineProxy, TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::Value;

/// Any image with a shell; the base image of the sandboxes has one.
pub(super) const IMAGE: &str = "opensandbox/base:latest";

/// Path of a built execd.
fn execd() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let named = std::env::var_os("OPENSANDBOX_EXECD_PATH").map(PathBuf::from);
    let built = ["dist-test/execd", "dist/execd"].map(|name| target.join(name));
    named.into_iter().chain(built).find(|path| path.is_file())
}

pub(super) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The engine proxy, store and settings of one test.
pub(super) struct Stage {
    folder: tempfile::TempDir,
    pub(super) engine: EngineProxy,
    pub(super) instance: String,
}

impl Stage {
    pub(super) fn set() -> Self {
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

    /// Uses another engine, before the proxy is up.
    pub(super) fn move_to(&mut self, socket: PathBuf) {
        self.engine = EngineProxy::to(socket, self.folder.path());
    }

    pub(super) async fn server(&self) -> TestServer {
        self.server_with(Vec::new()).await
    }

    /// Starts a server whose sandboxes have sidecars.
    pub(super) async fn server_with(&self, sidecars: Vec<SidecarConfig>) -> TestServer {
        self.server_tuned(|config| config.sidecars = sidecars).await
    }

    /// Starts a server with further lines of configuration.
    pub(super) async fn configured_server(
        &self,
        sidecars: Vec<SidecarConfig>,
        more: &str,
    ) -> TestServer {
        let tune = |config: &mut DockerConfig| config.sidecars = sidecars;
        self.server_over(tune, more).await
    }

    /// Starts a server that takes over sandboxes of other servers, with further lines of configuration.
    pub(super) async fn server_that_takes_over(&self, more: &str) -> TestServer {
        let tune = |config: &mut DockerConfig| config.take_over = true;
        self.server_over(tune, more).await
    }

    /// Starts a server with other settings of its runtime.
    pub(super) async fn server_tuned(&self, tune: impl FnOnce(&mut DockerConfig)) -> TestServer {
        self.server_over(tune, "").await
    }

    /// Starts a server with other settings of its runtime, and further lines of configuration.
    pub(super) async fn server_with_settings(
        &self,
        tune: impl FnOnce(&mut DockerConfig),
        more: &str,
    ) -> TestServer {
        self.server_over(tune, more).await
    }

    async fn server_over(&self, tune: impl FnOnce(&mut DockerConfig), more: &str) -> TestServer {
        let runtime = Arc::new(self.runtime(tune));
        TestServer::over(runtime, self.folder.path(), more)
            .await
            .unwrap()
    }

    /// Connects to the engine as a server does, with other settings.
    pub(super) fn runtime(&self, tune: impl FnOnce(&mut DockerConfig)) -> DockerRuntime {
        let timeout = 120;
        let mut config = DockerConfig {
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
            sidecars: Vec::new(),
            egress: None,
            storage: StorageConfig::default(),
            // Tests run side by side on one engine, and only one server can take a sandbox over.
            take_over: false,
            secure_runtime: None,
        };
        tune(&mut config);
        let address = self.engine.address();
        let connect = move || Docker::connect_with_unix(&address, timeout, API_DEFAULT_VERSION);
        DockerRuntime::over(config, connect).unwrap()
    }

    pub(super) fn store(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    pub(super) fn containers(&self) -> Vec<String> {
        let filter = format!("label=opensandbox.io/server={}", self.instance);
        let list = docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]);
        list.lines().map(str::to_owned).collect()
    }

    /// Lists the images of snapshots that the server has stored.
    pub(super) fn snapshot_images(&self) -> Vec<String> {
        let filter = format!("label=opensandbox.io/snapshot-server={}", self.instance);
        let format = "{{.Repository}}:{{.Tag}}";
        let list = docker(&["images", "--filter", &filter, "--format", format]);
        list.lines().map(str::to_owned).collect()
    }

    /// Lists the images of templates that the server keeps.
    pub(super) fn template_images(&self) -> Vec<String> {
        let name: String = self
            .instance
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = format!("opensandbox-templates/x{name}");
        let list = docker(&["images", &name, "--format", "{{.Repository}}:{{.Tag}}"]);
        list.lines().map(str::to_owned).collect()
    }

    /// Returns the folder of the server's store.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the oldest container with the sandbox's id.
    pub(super) fn container_of(&self, id: &str) -> String {
        let oldest = containers_with(&format!("opensandbox.io/id={id}")).pop();
        oldest.expect("the sandbox has a container")
    }
}

/// Lists the containers with a label, newest first.
pub(super) fn containers_with(label: &str) -> Vec<String> {
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
        for image in self
            .snapshot_images()
            .into_iter()
            .chain(self.template_images())
        {
            docker(&["image", "rm", "--force", &image]);
        }
    }
}

pub(super) async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

pub(super) async fn ready(server: &TestServer) {
    let look = || answer(server.bare(Method::GET, "/ready"));
    wait_until("a ready server", look, |seen| seen.0 == 200).await;
}

pub(super) fn body() -> Value {
    let mut body = TestServer::good_create();
    body["image"]["uri"] = IMAGE.into();
    body
}

pub(super) async fn create(server: &TestServer, body: &Value) -> String {
    let request = server.request(Method::POST, "/v1/sandboxes").json(body);
    let (status, answer) = answer(request).await;
    assert_eq!(status, 202, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

pub(super) async fn get(server: &TestServer, id: &str) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

pub(super) async fn delete(server: &TestServer, id: &str) {
    let request = server.request(Method::DELETE, &format!("/v1/sandboxes/{id}"));
    assert_eq!(answer(request.header("Prefer", "wait")).await.0, 204);
}

/// Sends a request to the execd of a sandbox.
pub(super) async fn ask(
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

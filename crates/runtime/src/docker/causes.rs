//! Each common cause of a failed create, as an engine reports it.

use std::{
    collections::HashSet,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, Docker};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::json;

use super::{
    DockerConfig, DockerRuntime, NetworkMode,
    fake_engine::{self, FakeEngine, HANG, STALL},
    labels,
};
use crate::{Cause, CreateSpec, Runtime, RuntimeError};

/// A sandbox with published ports.
fn spec() -> CreateSpec {
    let mut spec = labels::tests::spec();
    spec.origin.secure_access = None;
    spec
}

/// Creates a sandbox on an engine that fails one call, and returns the error.
async fn failed_create(
    config: DockerConfig,
    call: &'static str,
    status: u16,
    message: &'static str,
) -> RuntimeError {
    let engine = FakeEngine::start(move |request| {
        let is_sandbox = !request.contains("opensandbox-helper");
        if (is_sandbox && request.starts_with(call)) || request.ends_with(call) {
            return (status, json!({"message": message}).to_string());
        }
        FakeEngine::with_volumes(request)
    })
    .await;
    let runtime = engine.runtime_with(config);
    let made = runtime.create(spec(), &|_| {}).await;
    made.expect_err(message)
}

/// Creates a sandbox whose image the engine has to pull.
async fn failed_pull(config: DockerConfig, status: u16, message: &'static str) -> RuntimeError {
    let engine = FakeEngine::start(move |request| {
        if request.starts_with("POST /images/create") {
            let item = match message {
                "" => json!({"status": "Downloading"}),
                _ => json!({"errorDetail": {"message": message}, "error": message}),
            };
            return (status, format!("{item}\r\n"));
        }
        if request.starts_with("GET /images/") {
            return (404, json!({"message": "No such image"}).to_string());
        }
        FakeEngine::with_volumes(request)
    })
    .await;
    let runtime = engine.runtime_with(config);
    let made = runtime.create(spec(), &|_| {}).await;
    made.expect_err(message)
}

fn impatient() -> DockerConfig {
    DockerConfig {
        api_timeout: Duration::from_secs(1),
        ..fake_engine::config()
    }
}

#[tokio::test]
async fn every_failed_pull_has_a_cause() {
    use Cause::{
        DiskFull, ImageNotFound, RateLimited, RegistryDenied, RegistryUnreachable,
        RegistryUntrusted, WrongPlatform,
    };
    for (message, cause) in [
        (
            "manifest for my-network/seccomp:1 not found: manifest unknown: manifest unknown",
            ImageNotFound,
        ),
        (
            "pull access denied for nope, repository does not exist or may require 'docker login': denied: requested access to the resource is denied",
            RegistryDenied,
        ),
        (
            "failed to resolve reference \"docker.io/library/a:b\": docker.io/library/a:b: not found",
            ImageNotFound,
        ),
        (
            "Head \"https://r.example/v2/a/manifests/1\": unauthorized: authentication required",
            RegistryDenied,
        ),
        (
            "Head \"https://r.example/v2/a/manifests/1\": no basic auth credentials",
            RegistryDenied,
        ),
        (
            "unauthorized: incorrect username or password",
            RegistryDenied,
        ),
        (
            "Get \"https://r.example/v2/\": dial tcp: lookup r.example on 10.0.0.1:53: no such host",
            RegistryUnreachable,
        ),
        (
            "Get \"https://r.example/v2/\": dial tcp 10.0.0.9:443: connect: connection refused",
            RegistryUnreachable,
        ),
        (
            "Get \"https://r.example/v2/\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
            RegistryUnreachable,
        ),
        (
            "Get \"https://r.example/v2/\": x509: certificate signed by unknown authority",
            RegistryUntrusted,
        ),
        (
            "toomanyrequests: You have reached your pull rate limit.",
            RateLimited,
        ),
        (
            "no matching manifest for linux/arm64/v8 in the manifest list entries",
            WrongPlatform,
        ),
        (
            "failed to register layer: write /usr/lib/x: no space left on device",
            DiskFull,
        ),
    ] {
        let error = failed_pull(fake_engine::config(), 200, message).await;
        assert!(matches!(error, RuntimeError::ImagePull { .. }), "{error:?}");
        assert_eq!(Cause::of(&error), Some(cause), "{message}");
    }
    let stalled = failed_pull(impatient(), STALL, "").await;
    assert_eq!(Cause::of(&stalled), Some(Cause::PullStalled), "{stalled:?}");
}

#[tokio::test]
async fn every_failed_start_has_a_cause() {
    const CREATE: &str = "POST /containers/create";
    const START: &str = "/start";
    use Cause::{
        DiskFull, EntrypointNotExecutable, EntrypointNotFound, LimitRefused, MountMissing,
        NameConflict, NoGpu, NoMemory, NoNetwork, PortTaken, SecurityProfile, UnknownOciRuntime,
        WrongPlatform,
    };
    for (call, status, message, cause) in [
        (
            CREATE,
            409,
            "Conflict. The container name \"/brave_fox\" is already in use by container \"c1\".",
            NameConflict,
        ),
        (
            CREATE,
            400,
            "unknown or invalid runtime name: runsc",
            UnknownOciRuntime,
        ),
        (
            CREATE,
            400,
            "Unknown runtime specified runsc",
            UnknownOciRuntime,
        ),
        (
            START,
            500,
            "OCI runtime start failed: starting container: setting up network: creating interfaces \
             from net namespace \"/proc/7/ns/net\": cannot run with network enabled in root network \
             namespace: unknown",
            UnknownOciRuntime,
        ),
        (
            CREATE,
            400,
            "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
            LimitRefused,
        ),
        (
            CREATE,
            400,
            "Minimum memory limit allowed is 6MB",
            LimitRefused,
        ),
        (
            CREATE,
            400,
            "invalid mount config for type \"bind\": bind source path does not exist: /srv/cache",
            MountMissing,
        ),
        (CREATE, 404, "get nope: no such volume", MountMissing),
        (
            CREATE,
            500,
            "opening seccomp profile (/etc/ours.json) failed: open /etc/ours.json: no such file or directory",
            SecurityProfile,
        ),
        (
            CREATE,
            500,
            "mkdir /var/lib/docker/overlay2/x: no space left on device",
            DiskFull,
        ),
        (
            CREATE,
            404,
            "image with reference debian:12 was found but does not match the specified platform: wanted linux/arm64, actual: linux/amd64",
            WrongPlatform,
        ),
        (
            START,
            500,
            "driver failed programming external connectivity on endpoint x: Bind for 127.0.0.1:40000 failed: port is already allocated",
            PortTaken,
        ),
        (
            START,
            500,
            "OCI runtime create failed: container_linux.go:380: starting container process caused: apparmor failed to apply profile: write /proc/self/attr/exec: no such file or directory",
            SecurityProfile,
        ),
        (
            START,
            500,
            "OCI runtime create failed: process_linux.go: applying cgroup configuration: failed to write \"0\" to pids.max",
            LimitRefused,
        ),
        (
            START,
            500,
            "could not select device driver \"\" with capabilities: [[gpu]]",
            NoGpu,
        ),
        (
            START,
            500,
            "failed to create shim: OCI runtime create failed: exec format error: unknown",
            WrongPlatform,
        ),
        (
            START,
            500,
            "OCI runtime create failed: fork/exec /proc/self/exe: cannot allocate memory",
            NoMemory,
        ),
        (
            START,
            400,
            "OCI runtime create failed: exec: \"nope\": executable file not found in $PATH: unknown",
            EntrypointNotFound,
        ),
        (
            START,
            400,
            "OCI runtime create failed: exec: \"/etc/passwd\": permission denied: unknown",
            EntrypointNotExecutable,
        ),
        (START, 404, "network ours not found", NoNetwork),
        (
            START,
            400,
            "OCI runtime create failed: exec: \"/srv/unauthorized/seccomp\": executable file not found in $PATH: unknown",
            EntrypointNotFound,
        ),
        (
            START,
            400,
            "starting container process caused \"exec: \\\"apparmor\\\": executable file not found in $PATH\": unknown",
            EntrypointNotFound,
        ),
    ] {
        let error = failed_create(fake_engine::config(), call, status, message).await;
        assert_eq!(Cause::of(&error), Some(cause), "{message}: {error:?}");
    }
    let named = DockerConfig {
        network: NetworkMode::Named("ours".to_owned()),
        port_min: 41000,
        port_max: 41100,
        ..fake_engine::config()
    };
    let gone = failed_create(named, START, 404, "network ours not found").await;
    assert!(matches!(gone, RuntimeError::NoNetwork(_)), "{gone:?}");
    assert_eq!(Cause::of(&gone), Some(NoNetwork));
}

#[tokio::test]
async fn an_engine_that_is_away_has_a_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let full = DockerConfig {
        network: NetworkMode::Named("ours".to_owned()),
        port_min: port,
        port_max: port,
        ..fake_engine::config()
    };
    let exhausted = failed_create(full, "no call", 500, "").await;
    assert_eq!(
        Cause::of(&exhausted),
        Some(Cause::PortsExhausted),
        "{exhausted:?}"
    );

    let hung = failed_create(impatient(), "POST /containers/create", HANG, "").await;
    assert_eq!(Cause::of(&hung), Some(Cause::EngineHung), "{hung:?}");

    let engine = FakeEngine::start(FakeEngine::with_volumes).await;
    let runtime = engine.runtime();
    engine.stop().await;
    let down = runtime.create(spec(), &|_| {}).await;
    let down = down.expect_err("nothing listens");
    assert_eq!(Cause::of(&down), Some(Cause::EngineDown), "{down:?}");

    let volume = failed_create(fake_engine::config(), "POST /volumes/create", 500, "broken").await;
    assert_eq!(Cause::of(&volume), Some(Cause::ExecdMissing), "{volume:?}");
}

#[test]
fn a_socket_that_the_server_may_not_use_is_a_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docker.sock");
    let _engine = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    // A thread of its own: it gives up what lets root pass every check.
    let create = std::thread::spawn(move || {
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::DAC_OVERRIDE);
        set_capabilities(None, own).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let path = path.display().to_string();
            let connect = move || Docker::connect_with_unix(&path, 5, API_DEFAULT_VERSION);
            let runtime = DockerRuntime::over(fake_engine::config(), connect).unwrap();
            runtime.create(spec(), &|_| {}).await
        })
    });
    let denied = create.join().unwrap().expect_err("permission is denied");
    assert_eq!(Cause::of(&denied), Some(Cause::SocketDenied), "{denied:?}");
}

#[test]
fn every_cause_is_explained_in_sentences() {
    let mut seen = HashSet::new();
    for cause in Cause::ALL {
        assert!(seen.insert(cause.words()), "{cause:?} repeats another");
        for sentence in [cause.words(), cause.fix()] {
            assert!(sentence.ends_with('.') && sentence.len() > 10, "{sentence}");
        }
    }
    assert!(seen.len() >= 20);
}

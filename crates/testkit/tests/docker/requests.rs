//! What a request and the configuration make of a container.

use std::{fs, process::Command};

use osb_runtime::docker::NetworkMode;
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{Stage, answer, body, create, delete, docker, get, ready};

/// Sends a create that is refused.
async fn refused(server: &TestServer, body: &Value) -> (u16, String, String) {
    let request = server.request(Method::POST, "/v1/sandboxes").json(body);
    let (status, answer) = answer(request).await;
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    (status.as_u16(), text("code"), text("message"))
}

/// Waits until a sandbox has ended, and returns its status.
async fn end(server: &TestServer, id: &str, reason: &str) -> Value {
    let ended = |seen: &(StatusCode, Value)| seen.1["status"]["reason"] == reason;
    let (_, seen) = wait_until(reason, || get(server, id), ended).await;
    seen["status"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_before_the_entry_point() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut hooked = body();
    hooked["entrypoint"] = json!([
        "sh",
        "-c",
        "cp /tmp/hook /tmp/seen; env > /tmp/env; sleep 300"
    ]);
    hooked["env"] = json!({"GREETING": "hello"});
    let hook = json!(["sh", "-c", "sleep 1; echo $GREETING > /tmp/hook"]);
    hooked["lifecycle"] = json!({
        "preStart": {"command": hook, "timeoutSeconds": 60},
        "periodic": [
            {"name": "tick", "schedule": "@every 1s", "command": ["touch", "/tmp/tick"]},
        ],
    });
    let id = create(&server, &hooked).await;
    let container = stage.container_of(&id);
    let read = |file: &'static str| docker(&["exec", &container, "cat", file]);
    let seen = wait_until(
        "the entry point",
        async || read("/tmp/seen"),
        |it| !it.is_empty(),
    )
    .await;
    assert_eq!(
        seen, "hello",
        "the hook ran first, with the request's environment"
    );
    let files = || docker(&["exec", &container, "ls", "/tmp"]);
    wait_until(
        "the periodic hook",
        async || files(),
        |it| it.contains("tick"),
    )
    .await;
    let environment = read("/tmp/env");
    assert!(
        !environment.contains("OPENSANDBOX_LIFECYCLE"),
        "{environment}"
    );
    delete(&server, &id).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_hooks_are_the_reason_of_the_end() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let daily = |schedule: &str| json!({"periodic": [{"name": "p", "schedule": schedule, "command": ["true"]}]});
    let pre_start = |command: Value, seconds: i64| json!({"preStart": {"command": command, "timeoutSeconds": seconds}});
    let mut ids = Vec::new();
    for (lifecycle, words) in [
        (
            pre_start(json!(["sh", "-c", "echo broken; exit 7"]), 60),
            "failed: exit status 7",
        ),
        (
            pre_start(json!(["sleep", "300"]), 1),
            "did not end within 1s",
        ),
        (
            pre_start(json!(["/no/such/hook"]), 60),
            "cannot start the preStart hook",
        ),
        (daily("whenever"), "schedule"),
    ] {
        let mut hooked = body();
        hooked["lifecycle"] = lifecycle;
        let id = create(&server, &hooked).await;
        let status = end(&server, &id, "LIFECYCLE_HOOK_FAILED").await;
        assert_eq!(status["state"], "Failed");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        ids.push(id);
    }
    // The entry point's own failure is another reason, also with hooks.
    let mut hooked = body();
    hooked["lifecycle"] = json!({"preStart": {"command": ["true"]}});
    hooked["entrypoint"] = json!(["sh", "-c", "exit 7"]);
    let own = create(&server, &hooked).await;
    end(&server, &own, "CONTAINER_EXITED_ERROR").await;
    for id in ids.iter().chain([&own]) {
        delete(&server, id).await;
    }
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_fleet_reach_every_sandbox() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("note"), "from the host").unwrap();
    let bind = format!("{}:/fleet:ro", folder.path().display());
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["symlink", "symlinkat"], "action": "SCMP_ACT_ERRNO"}],
    });
    let server = stage
        .server_tuned(|config| {
            config.sandbox_env = [("A", "fleet"), ("B", "fleet"), ("C", "fleet")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
            config.sandbox_binds = vec![bind];
            config.seccomp_profile = Some(profile.to_string());
        })
        .await;
    ready(&server).await;
    let mut request = body();
    request["env"] = json!({"B": "own", "C": null});
    let id = create(&server, &request).await;
    let container = stage.container_of(&id);
    let shell = |line: &str| docker(&["exec", &container, "sh", "-c", line]);
    assert_eq!(shell("cat /fleet/note"), "from the host");
    assert_eq!(
        shell("touch /fleet/x 2>/dev/null || echo refused"),
        "refused"
    );
    assert_eq!(
        shell("ln -s a /tmp/b 2>/dev/null || echo refused"),
        "refused"
    );
    let environment = docker(&["inspect", "--format", "{{json .Config.Env}}", &container]);
    let environment: Vec<String> = serde_json::from_str(&environment).unwrap();
    let has = |entry: &str| environment.iter().any(|it| it == entry);
    assert!(has("A=fleet") && has("B=own"), "{environment:?}");
    assert!(
        !environment.iter().any(|it| it.starts_with("C=")),
        "{environment:?}"
    );
    let pids = docker(&["exec", &container, "cat", "/sys/fs/cgroup/pids/pids.max"]);
    assert!(pids.is_empty() || pids == "256", "{pids}");
    delete(&server, &id).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_does_not_exist_is_named() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage
        .server_tuned(|config| config.network = NetworkMode::Named("no-such-network".to_owned()))
        .await;
    ready(&server).await;
    let (status, code, message) = refused(&server, &body()).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "SANDBOX::INVALID_PARAMETER"),
        "{message}"
    );
    assert!(message.contains("no-such-network"), "{message}");
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_without_a_gpu_runtime_is_named() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut graphics = body();
    graphics["resourceLimits"]["gpu"] = json!("1");
    let (status, code, message) = refused(&server, &graphics).await;
    let failed = (500, "DOCKER::SANDBOX_START_FAILED");
    assert_eq!((status, code.as_str()), failed, "{message}");
    assert!(
        message.contains("resourceLimits.gpu: the engine has no GPU runtime"),
        "{message}"
    );
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

/// An image for a platform that this engine does not have; removed when dropped.
struct ForeignImage(String);

/// Loads an image without files: folder, name, architecture.
const LOAD: &str = r#"
set -e
cd "$1"
head -c 10240 /dev/zero > layer.tar
sum=$(sha256sum layer.tar | cut -d' ' -f1)
printf '{"architecture":"%s","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$3" "$sum" > config.json
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$2" > manifest.json
tar -cf - manifest.json config.json layer.tar | docker load --quiet
"#;

impl ForeignImage {
    fn load(stage: &Stage) -> Self {
        let name = format!("opensandbox-foreign:{}", stage.instance.to_lowercase());
        let architecture = match std::env::consts::ARCH {
            "aarch64" => "amd64",
            _ => "arm64",
        };
        let folder = tempfile::tempdir().unwrap();
        let loaded = Command::new("sh")
            .args(["-c", LOAD, "load"])
            .arg(folder.path())
            .args([name.as_str(), architecture])
            .output()
            .unwrap();
        assert!(loaded.status.success(), "{loaded:?}");
        Self(name)
    }
}

impl Drop for ForeignImage {
    fn drop(&mut self) {
        docker(&["rmi", "--force", &self.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_for_another_platform_is_not_started() {
    let mut stage = Stage::set();
    let foreign = ForeignImage::load(&stage);
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut request = body();
    request["image"]["uri"] = json!(foreign.0);
    let (status, code, message) = refused(&server, &request).await;
    let failed = (500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    assert_eq!((status, code.as_str()), failed, "{message}");
    assert!(message.contains(&foreign.0), "{message}");
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

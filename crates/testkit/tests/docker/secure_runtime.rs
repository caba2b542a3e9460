//! Sandboxes under gVisor, on an engine of the test's own that has its runtime.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use osb_runtime::{SecureKind, SecureRuntime};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    second_engine::SecondEngine,
    stage::{Stage, answer, body, create, delete, get, ready},
};

/// What the engine of the test calls gVisor: not what it is called elsewhere.
const NAME: &str = "walled";
/// What gVisor's kernel writes to its log first. Other kernels do not.
const GREETING: &str = "Starting gVisor";
/// Ways of gVisor to catch system calls that work on every machine, the newer one first.
const PLATFORMS: [&str; 2] = ["systrap", "ptrace"];

/// Writes a program that runs gVisor with arguments that work here. `None`, with a note, where it is not
/// installed or does not work.
fn gvisor(folder: &Path) -> Option<PathBuf> {
    let mut reasons = Vec::new();
    for platform in PLATFORMS {
        // Releases of 2022 take every network of a recent kernel for the host's, and refuse it.
        let platform = format!("--platform={platform}");
        let arguments = [platform.as_str(), "--network=host"];
        let mut tried = Command::new("runsc");
        match tried.args(arguments).args(["do", "true"]).output() {
            Ok(output) if output.status.success() => {
                let program = folder.join("runsc");
                let text = format!("#!/bin/sh\nexec runsc {} \"$@\"\n", arguments.join(" "));
                fs::write(&program, text).unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
                return Some(program);
            }
            Ok(output) => reasons.push(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let reasons = reasons.join("; ");
    eprintln!("SKIPPED: gVisor is not tested, its program runsc does not work here: {reasons}");
    None
}

async fn post(server: &TestServer, id: &str, verb: &str) -> (StatusCode, Value) {
    answer(server.request(Method::POST, &format!("/v1/sandboxes/{id}/{verb}"))).await
}

async fn described(server: &TestServer, id: &str, page: &str) -> String {
    let path = format!("/v1/sandboxes/{id}/diagnostics/{page}");
    let response = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{page}");
    response.text().await.unwrap()
}

/// Refusals of creates that gVisor cannot serve, with the field that each names.
async fn refuse(server: &TestServer) {
    for (member, value, field) in [
        ("networkPolicy", json!({}), "networkPolicy"),
        (
            "extensions",
            json!({"bootstrap.execd.isolation": "enable"}),
            "bootstrap.execd.isolation",
        ),
    ] {
        let mut asking = body();
        asking[member] = value;
        let create = server.request(Method::POST, "/v1/sandboxes").json(&asking);
        let (status, refused) = answer(create).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
        assert_eq!(refused["code"], "SANDBOX::INVALID_PARAMETER");
        let text = refused["message"].as_str().unwrap();
        assert!(
            text.contains(field) && text.contains("under gVisor"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_run_under_gvisor_and_its_limits_are_named() {
    let mut stage = Stage::set();
    let programs = tempfile::tempdir().unwrap();
    let Some(program) = gvisor(programs.path()) else {
        return;
    };
    let runtime = format!("--add-runtime={NAME}={}", program.display());
    let start = || SecondEngine::start_with("gVisor is", &[runtime]);
    let Some(engine) = tokio::task::block_in_place(start) else {
        return;
    };
    stage.move_to(engine.socket());
    stage.engine.up().unwrap();
    let gvisor = SecureRuntime {
        kind: SecureKind::Gvisor,
        name: NAME.to_owned(),
    };
    let server = stage
        .server_tuned(|config| config.secure_runtime = Some(gvisor))
        .await;
    ready(&server).await;
    refuse(&server).await;

    let mut greeting = body();
    greeting["entrypoint"] = json!(["sh", "-c", "dmesg; sleep 600"]);
    let id = create(&server, &greeting).await;
    let log = || described(&server, &id, "logs");
    wait_until("gVisor's kernel", log, |text| text.contains(GREETING)).await;
    let inspected = described(&server, &id, "inspect").await;
    let mut lines = inspected
        .lines()
        .map(|line| line.split_once(':').unwrap_or_default());
    let shown = lines.find(|(name, _)| *name == "Runtime").unwrap();
    assert_eq!(shown.1.trim(), NAME, "{inspected}");

    let (status, refused) = post(&server, &id, "snapshots").await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert_eq!(refused["code"], "SNAPSHOT::UNSUPPORTED_RUNTIME");
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("gVisor"), "{text}");

    for (verb, wanted) in [("pause", "Paused"), ("resume", "Running")] {
        let state = async || get(&server, &id).await.1["status"]["state"].clone();
        let (status, body) = post(&server, &id, verb).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{verb}: {body}");
        wait_until(verb, state, |seen| seen == wanted).await;
    }

    let filter = format!("label=opensandbox.io/server={}", stage.instance);
    let list = engine.docker(&["ps", "--all", "--quiet", "--filter", &filter]);
    let format = "{{.HostConfig.Runtime}}";
    let runtimes: Vec<String> = list
        .lines()
        .map(|container| engine.docker(&["inspect", "--format", format, container]))
        .collect();
    assert_eq!(runtimes, [NAME]);
    delete(&server, &id).await;
    keep_in_a_volume(&server).await;
    server.stop().await;
}

/// One sandbox reads from a named volume what another has written.
async fn keep_in_a_volume(server: &TestServer) {
    let volume = json!([{"name": "v", "mountPath": "/data", "pvc": {
        "claimName": NAME, "createIfNotExists": true, "deleteOnSandboxTermination": true,
    }}]);
    let with = |command: &str| {
        let mut body = body();
        body["volumes"] = volume.clone();
        body["entrypoint"] = json!(["sh", "-c", format!("{command}; sleep 600")]);
        body
    };
    let writer = create(server, &with("dmesg > /data/log; echo written")).await;
    let log = || described(server, &writer, "logs");
    wait_until("the writer", log, |text| text.contains("written")).await;
    let reader = create(server, &with("cat /data/log")).await;
    let log = || described(server, &reader, "logs");
    wait_until("the reader", log, |text| text.contains(GREETING)).await;
    for id in [writer, reader] {
        delete(server, &id).await;
    }
}

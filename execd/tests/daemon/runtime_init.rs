//! A daemon that is claimed after its start, by `POST /internal/init` (contract: execd A9.5).

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
};

use http::Method;
use osb_protocol::execd::event::EventKind;
use serde_json::{Value, json};

use crate::support::{Answer, Daemon, LONG, texts, written};

/// The hash of `secret`.
const HASH: &str = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
const TOKEN: [(&str, &str); 1] = [("x-execd-access-token", "secret")];

fn waiting(place: &Path, args: &[&str]) -> Daemon {
    Daemon::start(args, |command| {
        command
            .env("EXECD_RUNTIME_INIT", "1")
            .env("EXECD_ENVS", place.join(".env"))
            .env("HOME", place)
            .env("PLACE", place)
            .env("OPENSANDBOX_ID", "warm")
            .env_remove("OPENSANDBOX_LIFECYCLE")
            .env_remove("EXECD_LIFECYCLE_CONFIG");
    })
}

fn alone(place: &Path) -> Daemon {
    waiting(place, &["--port", "0"])
}

/// Starts an init whose entry point writes a file and keeps running.
fn init(place: &Path) -> Daemon {
    let text = "echo \"$OPENSANDBOX_ID $FROM_ORDER\" > $PLACE/entry; sleep 1000";
    waiting(place, &["init", "--port", "0", "--", "sh", "-c", text])
}

async fn order(daemon: &Daemon, more: Value) -> Answer {
    let mut body = json!({ "sandboxId": "s-1", "generation": 7 });
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    daemon.post("/internal/init", body).await
}

#[tokio::test]
async fn before_initialization_all_other_routes_are_unavailable() {
    let place = tempfile::tempdir().unwrap();
    let daemon = alone(place.path());
    assert_eq!(daemon.get("/ping").await.status, 200);
    let readiness = daemon.get("/ready").await;
    assert_eq!(readiness.status, 503);
    assert_eq!(readiness.json(), json!({ "initialized": false }));
    for path in ["/metrics", "/unknown", "/proxy/1/", "/internal/init"] {
        let refused = daemon.get(path).await;
        assert_eq!(refused.status, 503, "{path}");
        assert_eq!(
            refused.json()["error"],
            "execd is not initialized yet: POST /internal/init must be called first"
        );
        assert_eq!(refused.code(), "SERVICE_UNAVAILABLE");
    }
    // Invalid orders change nothing, and the reply names the member.
    for (more, member) in [
        (json!({ "generation": 0 }), "generation"),
        (json!({ "sandboxId": "x".repeat(129) }), "sandboxId"),
        (json!({ "accessTokenHash": "secret" }), "accessTokenHash"),
        (json!({ "lifecycle": { "preStart": {} } }), "lifecycle"),
        (json!({ "envs": { "EXECD_ACCESS_TOKEN": "" } }), "envs"),
    ] {
        let refused = order(&daemon, more).await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.code(), "INVALID_REQUEST_BODY");
        let message = refused.json()["message"].to_string();
        assert!(message.contains(member), "{message}");
    }

    let done = order(&daemon, json!({})).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(
        done.json(),
        json!({ "status": "initialized", "sandboxId": "s-1", "generation": 7 })
    );
    let readiness = daemon.get("/ready").await;
    assert_eq!(readiness.status, 200);
    assert_eq!(
        readiness.json(),
        json!({ "initialized": true, "sandboxId": "s-1", "generation": 7 })
    );
    assert_eq!(daemon.get("/metrics").await.status, 200);
    let again = order(&daemon, json!({ "sandboxId": "s-2" })).await;
    assert_eq!(
        (again.status.as_u16(), again.code().as_str()),
        (409, "ALREADY_INITIALIZED")
    );
    assert_eq!(daemon.get("/ready").await.json()["sandboxId"], "s-1");
}

#[tokio::test]
async fn the_token_is_known_by_its_hash() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--port", "0", "--runtime-init"], |command| {
        command
            .env("EXECD_ACCESS_TOKEN", "of-the-container")
            .env("HOME", place.path());
    });
    assert_eq!(daemon.get("/metrics").await.status, 503);
    // A daemon with a token can only be claimed with it.
    let body = json!({ "sandboxId": "s-1", "generation": 7, "accessTokenHash": HASH }).to_string();
    let claim = async |token: &[(&str, &str)]| {
        let body = body.clone();
        let answer = daemon.send(Method::POST, "/internal/init", token, body);
        Answer::of(answer.await).await
    };
    for wrong in [&[][..], &TOKEN] {
        assert_eq!(claim(wrong).await.status, 401);
    }
    let own = [("x-execd-access-token", "of-the-container")];
    let done = claim(&own).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let status = async |headers: &[(&str, &str)]| {
        let answer = daemon.get_with("/metrics", headers).await;
        answer.status.as_u16()
    };
    assert_eq!(status(&TOKEN).await, 200);
    assert_eq!(status(&[]).await, 401);
    for wrong in ["of-the-container", HASH, "secre"] {
        assert_eq!(status(&[("x-execd-access-token", wrong)]).await, 401);
    }
    for open in ["/ping", "/ready"] {
        assert_eq!(daemon.get(open).await.status, 200, "{open}");
    }
    assert_eq!(claim(&own).await.status, 409);
    assert_eq!(claim(&[]).await.status, 401);
}

#[tokio::test]
async fn orders_are_bounded_and_a_second_one_is_refused_unread() {
    let place = tempfile::tempdir().unwrap();
    let daemon = alone(place.path());
    let long = json!({ "envs": {}, "more": "x".repeat(1 << 20) });
    let refused = order(&daemon, long).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("longer"), "{}", refused.text());
    assert_eq!(order(&daemon, json!({})).await.status, 200);
    let head = "POST /internal/init HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
    let mut late = TcpStream::connect(("127.0.0.1", daemon.port())).unwrap();
    late.set_read_timeout(Some(LONG)).unwrap();
    late.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    late.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"HTTP/1.1 409", "the body never came");
}

#[tokio::test]
async fn variables_and_hooks_of_the_order_apply() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join(".env"), "FROM_FILE=file\nBOTH=file\n").unwrap();
    let daemon = alone(place.path());
    let text = "echo \"$OPENSANDBOX_ID $FROM_ORDER\" > $PLACE/first";
    let done = order(
        &daemon,
        json!({
            "envs": { "FROM_ORDER": "set", "BOTH": "set", "OPENSANDBOX_ID": "mine" },
            "lifecycle": {
                "preStart": { "command": ["sh", "-c", text] },
                "periodic": [{ "schedule": "@every 1s",
                               "command": ["sh", "-c", "echo $FROM_ORDER > $PLACE/periodic"] }],
            },
            "telemetry": { "attributes": { "tenant": "t" } },
            "entrypointPolicy": "restart",
        }),
    )
    .await;
    assert_eq!(done.status, 200, "{}", done.text());
    let warning = done.json()["warning"].to_string();
    assert!(warning.contains("entrypointPolicy"), "{warning}");
    // The first hook ended before the reply.
    let first = fs::read_to_string(place.path().join("first")).unwrap();
    assert_eq!(first, "s-1 set\n");
    let command = "echo $FROM_ORDER $BOTH $FROM_FILE $OPENSANDBOX_ID $OWN";
    let request = json!({ "command": command, "envs": { "OWN": "own" } });
    let events = daemon.run(request).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["set file file s-1 own"]);
    assert_eq!(written(&place.path().join("periodic")).await, "set\n");
}

#[tokio::test]
async fn while_the_first_hook_runs_nothing_else_answers_and_no_other_order_counts() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let daemon = init(place.path());
    let text = "echo > $PLACE/runs; while ! test -e $PLACE/go; do sleep 0.05; done";
    let first = order(
        &daemon,
        json!({
            "entrypointPolicy": "restart",
            "lifecycle": { "preStart": { "command": ["sh", "-c", text] } },
        }),
    );
    let meanwhile = async {
        written(&at("runs")).await;
        let second = order(&daemon, json!({ "sandboxId": "s-2" })).await;
        assert_eq!(
            (second.status.as_u16(), second.code().as_str()),
            (409, "ALREADY_INITIALIZED")
        );
        for path in ["/metrics", "/v1/isolated/capabilities", "/ready"] {
            assert_eq!(daemon.get(path).await.status, 503, "{path}");
        }
        let command = json!({ "command": "true" });
        assert_eq!(daemon.post("/command", command).await.status, 503);
        assert_eq!(daemon.get("/ping").await.status, 200);
        assert!(!at("entry").exists());
        fs::write(at("go"), "").unwrap();
    };
    let (first, ()) = tokio::join!(first, meanwhile);
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(first.json()["sandboxId"], "s-1");
    assert_eq!(daemon.get("/metrics").await.status, 200);
    assert_eq!(written(&at("entry")).await, "s-1 \n");
}

#[tokio::test]
async fn being_bound_without_a_token_is_a_warning() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    for (more, warned) in [
        (json!({}), true),
        (json!({ "accessTokenHash": HASH }), false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_execd"));
        command.args(["--port", "0", "--runtime-init"]);
        let daemon = Daemon::launch(command, |command| {
            command
                .env("HOME", place.path())
                .env(
                    "OPENSANDBOX_LOG_OUTPUT",
                    format!("stderr,{}", log.display()),
                )
                .env_remove("EXECD_LOG_FILE");
        });
        let done = order(&daemon, more).await;
        assert_eq!(done.status, 200, "{}", done.text());
        daemon.signal(rustix::process::Signal::TERM);
        daemon.wait().await;
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.contains("bound without a token"), warned, "{text}");
        fs::remove_file(&log).unwrap();
    }
}

#[tokio::test]
async fn a_failed_first_hook_is_reported() {
    let place = tempfile::tempdir().unwrap();
    let daemon = alone(place.path());
    let hook = |command: Value| json!({ "lifecycle": { "preStart": { "command": command } } });
    let failed = order(&daemon, hook(json!(["sh", "-c", "exit 3"]))).await;
    assert_eq!(
        (failed.status.as_u16(), failed.code().as_str()),
        (500, "RUNTIME_ERROR")
    );
    assert!(failed.text().contains("exit status 3"), "{}", failed.text());
    let ready = daemon.get("/ready").await;
    let other = daemon.get("/metrics").await;
    let again = order(&daemon, json!({})).await;
    for (answer, status) in [(&ready, 503), (&other, 503), (&again, 409)] {
        assert_eq!(answer.status, status);
        assert!(answer.text().contains("exit status 3"), "{}", answer.text());
    }
    assert_eq!(ready.json()["initialized"], false);

    let daemon = alone(place.path());
    let failed = order(&daemon, hook(json!(["no-such-program"]))).await;
    assert_eq!(failed.status, 500);
    let message = failed.text();
    assert!(
        message.contains("no-such-program") && message.contains("not found"),
        "{message}"
    );
}

#[tokio::test]
async fn the_entry_point_starts_only_with_the_order() {
    let place = tempfile::tempdir().unwrap();
    let entry = place.path().join("entry");
    let restart = init(place.path());
    assert_eq!(restart.get("/ping").await.status, 200);
    assert!(!entry.exists());
    let more = json!({ "entrypointPolicy": "restart", "envs": { "FROM_ORDER": "set" } });
    let done = order(&restart, more).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json().get("warning"), None);
    assert_eq!(written(&entry).await, "s-1 set\n");
    restart.signal(rustix::process::Signal::TERM);
    assert_eq!(restart.wait().await.code(), Some(143));

    fs::remove_file(&entry).unwrap();
    let keep = init(place.path());
    let done = order(&keep, json!({})).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let warning = done.json()["warning"].to_string();
    assert!(warning.contains("entry point"), "{warning}");
    let events = keep.run(json!({ "command": "echo here" })).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["here"]);
    assert!(!entry.exists());
    keep.signal(rustix::process::Signal::TERM);
    assert_eq!(keep.wait().await.code(), Some(0));
    assert!(!entry.exists());
}

#[tokio::test]
async fn a_claim_starts_its_own_entry_point_once() {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    let args = [
        "init",
        "--port",
        "0",
        "--claim-mark",
        mark.to_str().unwrap(),
        "--",
        "no-such-program",
    ];
    let daemon = waiting(place.path(), &args);
    let claim = |id: &str| {
        json!({
            "claimId": id,
            "entrypointPolicy": "restart",
            "entrypoint": ["sh", "-c", "echo \"$A ${PLACE-none}\" >> $HOME/entry; sleep 1000"],
            "envs": { "A": "claimed" },
            "unsetEnvs": ["PLACE"],
        })
    };
    let (one, two) = tokio::join!(order(&daemon, claim("c-1")), order(&daemon, claim("c-1")));
    assert_eq!(one.status, 200, "{}", one.text());
    assert_eq!(two.status, 200, "{}", two.text());
    assert_eq!(one.json(), two.json());
    assert_eq!(written(&place.path().join("entry")).await, "claimed none\n");
    assert_eq!(order(&daemon, claim("c-2")).await.status, 409);
    assert_eq!(order(&daemon, json!({})).await.status, 409);
    daemon.signal(rustix::process::Signal::TERM);
    daemon.wait().await;

    let restarted = waiting(place.path(), &args);
    for other in [claim("c-2"), json!({})] {
        let refused = order(&restarted, other).await;
        assert_eq!(refused.status, 409, "{}", refused.text());
    }
    assert_eq!(restarted.get("/ready").await.status, 503);
    let again = order(&restarted, claim("c-1")).await;
    assert_eq!(again.status, 200, "{}", again.text());
}

#[tokio::test]
async fn a_failed_start_of_the_entry_point_is_reported_before_the_exit() {
    let place = tempfile::tempdir().unwrap();
    let daemon = waiting(
        place.path(),
        &["init", "--port", "0", "--", "no-such-program"],
    );
    let failed = order(&daemon, json!({ "entrypointPolicy": "restart" })).await;
    assert_eq!(failed.status, 500);
    assert!(
        failed.text().contains("no-such-program"),
        "{}",
        failed.text()
    );
    assert_eq!(daemon.wait().await.code(), Some(127));
}

#[tokio::test]
async fn a_daemon_that_needs_no_initialization_has_no_such_routes() {
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("EXECD_RUNTIME_INIT", "false");
    });
    assert_eq!(daemon.get("/ready").await.status, 404);
    assert_eq!(order(&daemon, json!({})).await.status, 404);
    assert_eq!(daemon.get("/metrics").await.status, 200);
}

#[tokio::test]
async fn a_waiting_daemon_can_be_stopped() {
    let place = tempfile::tempdir().unwrap();
    for daemon in [alone(place.path()), init(place.path())] {
        daemon.signal(rustix::process::Signal::TERM);
        assert_eq!(daemon.wait().await.code(), Some(0));
    }
}

#[test]
fn an_invalid_switch_is_reported_at_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_execd"))
        .args(["--port", "0"])
        .env("EXECD_RUNTIME_INIT", "perhaps")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0));
    assert!(stderr.contains("EXECD_RUNTIME_INIT"), "{stderr}");
}

//! The log: where it goes and what it hides (contract: execd §1.2, §1.4).

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::support::{Daemon, eventually};

#[tokio::test]
async fn commands_are_logged_without_their_secrets() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("logs/execd.log");
    let outputs = format!("stderr, {}", path.display());
    let daemon = Daemon::start(&["--port", "0", "--log-level", "7"], |command| {
        command
            .env("OPENSANDBOX_LOG_OUTPUT", outputs)
            .env_remove("EXECD_LOG_FILE");
    });
    let secret = "hunter2hunter2";
    let text = format!("TOKEN={secret} true --password {secret} https://me:{secret}@host");
    daemon.run(json!({ "command": text })).await;
    daemon
        .run(json!({ "argv": ["true", "--api-key", secret] }))
        .await;
    let made = daemon.post("/session", json!({})).await.json();
    let run = format!("/session/{}/run", made["session_id"].as_str().unwrap());
    let ran = daemon.post(&run, json!({ "command": text })).await;
    assert_eq!(ran.status, 200);
    let log = fs::read_to_string(&path).unwrap();
    assert_eq!(
        log.matches("TOKEN=*** true --password *** https://***@host")
            .count(),
        2,
        "{log}"
    );
    assert!(log.contains("--api-key"), "{log}");
    assert!(!log.contains(secret), "{log}");
}

#[tokio::test]
async fn a_log_file_takes_everything() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("execd.log");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_execd"))
        .args(["--port", "0"])
        .env("EXECD_LOG_FILE", &path)
        .env("OPENSANDBOX_LOG_OUTPUT", "stderr")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it listens", async || {
        let log = fs::read_to_string(&path).ok()?;
        log.contains("execd is listening").then_some(())
    })
    .await;
    daemon.kill().unwrap();
    let output = daemon.wait_with_output().unwrap();
    assert_eq!((output.stdout, output.stderr), (vec![], vec![]));
}

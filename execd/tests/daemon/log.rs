//! The log: outputs and redaction (contract: execd §1.2, §1.4).

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Daemon, eventually};

/// Waits until the log satisfies `enough`, and returns it: lines are written after a delay.
async fn logged(path: &Path, enough: impl Fn(&str) -> bool) -> String {
    let mut log = String::new();
    eventually("it was logged", async || {
        log = fs::read_to_string(path).unwrap_or_default();
        enough(&log).then_some(())
    })
    .await;
    log
}

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
    let shown = "TOKEN=*** true --password *** https://***@host";
    let log = logged(&path, |log| log.matches(shown).count() >= 2).await;
    assert_eq!(log.matches(shown).count(), 2, "{log}");
    assert!(log.contains("--api-key"), "{log}");
    assert!(!log.contains(secret), "{log}");
}

#[tokio::test]
async fn a_log_file_receives_all_lines() {
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
    eventually("the daemon listens", async || {
        let log = fs::read_to_string(&path).ok()?;
        log.contains("execd is listening").then_some(())
    })
    .await;
    daemon.kill().unwrap();
    let output = daemon.wait_with_output().unwrap();
    assert_eq!((output.stdout, output.stderr), (vec![], vec![]));
}

#[tokio::test]
async fn requests_are_logged_with_their_address_and_without_secrets() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("execd.log");
    let outputs = format!("stderr,{}", path.display());
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("OPENSANDBOX_LOG_OUTPUT", outputs)
            .env_remove("EXECD_LOG_FILE");
    });
    daemon.get("/ping").await;
    daemon.get("/files/info?path=/x&token=hunter2").await;
    daemon.get("/proxy/1/x?a=b").await;
    daemon.get_with("/none", &[("x-request-id", "mine")]).await;
    let log = logged(&path, |log| log.contains("/none")).await;
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let logged_requests: Vec<[&Value; 3]> = lines
        .iter()
        .filter(|line| line.get("status").is_some())
        .map(|line| [&line["level"], &line["msg"], &line["status"]])
        .collect();
    let want = [
        json!(["info", "GET /files/info?path=/x&token=***", 404]),
        json!(["info", "GET /proxy/1/x?a=***", 502]),
        json!(["info", "GET /none", 404]),
    ];
    assert_eq!(json!(logged_requests), json!(want), "{log}");
    assert_eq!(lines.last().unwrap()["id"], "mine");
    for line in log.lines() {
        let form = line.starts_with("{\"level\":\"") && line.contains("\",\"ts\":\"2");
        assert!(form && line.contains("Z\",\"msg\":\""), "{line}");
    }
}

#[tokio::test]
async fn an_unread_log_blocks_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("execd.log");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let outputs = format!("stdout,stderr,{}", path.display());
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("OPENSANDBOX_LOG_OUTPUT", outputs)
            .env_remove("EXECD_LOG_FILE")
            .stdout(writer);
    });
    // More lines than the pipe and the daemon's queue hold. No two are equal, because equal lines
    // are sampled.
    for number in 0..800 {
        let asked = format!("/none/{number}/{}", "x".repeat(900));
        assert_eq!(daemon.get(&asked).await.status, 404);
        // The file's queue is as short as the others', and a busy disk may be slower than this loop.
        if number % 100 == 99 {
            let asked = format!("/none/{number}/");
            logged(&path, |log| log.contains(&asked)).await;
        }
    }
    let events = daemon.run(json!({ "command": "echo works" })).await;
    assert!(
        events.iter().any(|event| event.text == "works"),
        "{events:?}"
    );
    // The other outputs did not wait.
    let all = logged(&path, |log| log.contains("/none/799/")).await;
    assert_eq!(all.matches("/none/").count(), 800);
    assert!(!all.contains("\"lost\":"), "{all}");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    // The reader ends, and closes the pipe.
    drop(daemon);
    let text = reading.join().unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let lost: u64 = lines.iter().filter_map(|line| line["lost"].as_u64()).sum();
    assert!(lost > 0, "{text}");
    let written = text.matches("GET /none/").count() as u64;
    assert!(written < 800 && written + lost >= 800, "{written}, {lost}");
}

//! Hiding `clone3` (contract: execd §1.2).

use std::process::{Command, Stdio};

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use crate::support::{Daemon, texts};

/// Prints the error number of a `clone3` without arguments: 38 when the kernel lacks the call.
const CALL: &str = "perl -e 'syscall(435, 0, 0); print $! + 0'";

fn daemon(mode: &str) -> Daemon {
    Daemon::start(&["--port", "0"], |command| {
        command.env("EXECD_CLONE3_COMPAT", mode);
    })
}

#[tokio::test]
async fn no_process_in_the_sandbox_has_it() {
    for mode in ["on", "reexec"] {
        let daemon = daemon(mode);
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(
                status.lines().any(|found| found == line),
                "{mode}: {status}"
            );
        }
        let events = daemon.run(json!({ "command": CALL })).await;
        assert_eq!(texts(&events, EventKind::Stdout), ["38"], "{mode}");
        // The variable is not passed on.
        let events = daemon
            .run(json!({ "command": "env | grep -c _EXECD_CLONE3 || true" }))
            .await;
        assert_eq!(texts(&events, EventKind::Stdout), ["0"], "{mode}");
    }
}

#[tokio::test]
async fn without_the_variable_nothing_is_filtered() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find(|line| line.starts_with("Seccomp:"));
    for mode in ["", "off"] {
        let daemon = daemon(mode);
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("Seccomp:"));
        assert_eq!(line, own, "{mode}");
    }
}

#[test]
fn an_invalid_value_is_reported_before_the_flags_are_parsed() {
    let output = Command::new(env!("CARGO_BIN_EXE_execd"))
        .arg("--no-such-flag")
        .env("EXECD_CLONE3_COMPAT", "maybe")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("EXECD_CLONE3_COMPAT") && !stderr.contains("maybe"),
        "{stderr}"
    );
}

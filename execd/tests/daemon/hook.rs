//! Lifecycle hooks (contract: execd A9.3).

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Daemon, eventually, written};

/// Starts an init with hooks; its entry point writes a file and keeps running.
fn with_hooks(place: &Path, hooks: Option<&Value>) -> Daemon {
    of_sandbox(place, "s-1", hooks)
}

/// The same as the init of a sandbox with this id.
fn of_sandbox(place: &Path, sandbox: &str, hooks: Option<&Value>) -> Daemon {
    let args = [
        "init",
        "--port",
        "0",
        "--",
        "sh",
        "-c",
        "cp $PLACE/first $PLACE/entry; sleep 1000",
    ];
    Daemon::start(&args, |command| {
        set(command, place, hooks);
        command.env("OPENSANDBOX_ID", sandbox);
    })
}

fn set(command: &mut Command, place: &Path, hooks: Option<&Value>) {
    command
        .env("EXECD_ENVS", place.join(".env"))
        .env("HOME", place)
        .env("PLACE", place)
        .env("OPENSANDBOX_ID", "s-1")
        .env_remove("EXECD_LIFECYCLE_CONFIG")
        .env_remove("OPENSANDBOX_LIFECYCLE");
    if let Some(hooks) = hooks {
        command.env("OPENSANDBOX_LIFECYCLE", hooks.to_string());
    }
}

fn shell(text: &str) -> Value {
    json!(["sh", "-c", text])
}

#[tokio::test]
async fn the_first_hook_ends_before_the_entry_point_starts() {
    // Outside /tmp: isolated sessions may write there, so files in it are not trusted.
    let place = tempfile::tempdir_in("/var/lib").unwrap();
    fs::write(place.path().join(".env"), "FROM_FILE=seen\n").unwrap();
    let text = "while ! test -e $PLACE/go; do sleep 0.05; done; \
                echo \"$FROM_FILE|$OPENSANDBOX_LIFECYCLE\" > $PLACE/first";
    let hooks = json!({ "preStart": { "command": shell(text) } });
    let daemon = with_hooks(place.path(), Some(&hooks));
    // The port is open meanwhile.
    assert_eq!(daemon.get("/ping").await.status, 200);
    assert!(!place.path().join("entry").exists());
    fs::write(place.path().join("go"), "").unwrap();
    assert_eq!(written(&place.path().join("entry")).await, "seen|\n");
    let kept = place.path().join(".execd/lifecycle.toml");
    let mode = fs::metadata(kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(daemon);

    // A start without the variable uses the kept hooks.
    for file in ["first", "entry"] {
        fs::remove_file(place.path().join(file)).unwrap();
    }
    let _daemon = with_hooks(place.path(), None);
    assert_eq!(written(&place.path().join("entry")).await, "seen|\n");
}

#[tokio::test]
async fn stored_hooks_run_only_in_the_sandbox_that_they_were_given_to() {
    let place = tempfile::tempdir_in("/var/lib").unwrap();
    let at = |name: &str| place.path().join(name);
    let hooks = json!({ "preStart": { "command": shell("echo hook > $PLACE/first") } });
    // Starts a sandbox with this file system. Returns what its entry point found: what the first
    // hook wrote, if it ran.
    let start = async |sandbox: &str, hooks: Option<&Value>| {
        fs::write(at("first"), "none\n").unwrap();
        let daemon = of_sandbox(place.path(), sandbox, hooks);
        let found = written(&at("entry")).await;
        fs::remove_file(at("entry")).unwrap();
        drop(daemon);
        found
    };
    assert_eq!(start("s-1", Some(&hooks)).await, "hook\n");
    let stored = at(".execd/lifecycle.toml");
    assert_eq!(start("s-1", None).await, "hook\n", "the container restarts");
    assert_eq!(start("", None).await, "none\n", "a start without an id");
    assert!(stored.exists(), "it may be the sandbox's own");
    assert_eq!(start("s-2", None).await, "none\n", "a snapshot is restored");
    assert!(!stored.exists(), "they are another sandbox's");
}

#[tokio::test]
async fn a_first_hook_that_fails_ends_everything_with_its_status() {
    for (command, timeout, code) in [
        (shell("exit 7"), 60, 7),
        (shell("sleep 1000"), 1, 137),
        (json!(["no-such-program"]), 60, 127),
        (json!(["/etc/passwd"]), 60, 126),
    ] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("first"), "\n").unwrap();
        let hooks = json!({ "preStart": { "command": command, "timeoutSeconds": timeout } });
        let ended = with_hooks(place.path(), Some(&hooks)).wait().await;
        assert_eq!(ended.code(), Some(code), "{command}");
        assert!(!place.path().join("entry").exists(), "{command}");
    }
}

#[tokio::test]
async fn the_daemon_can_be_stopped_during_its_first_hook() {
    let place = tempfile::tempdir().unwrap();
    let text = "trap 'exit 6' TERM; echo > $PLACE/ready; while :; do sleep 0.05; done";
    let hooks = json!({ "preStart": { "command": shell(text) } });
    let daemon = with_hooks(place.path(), Some(&hooks));
    written(&place.path().join("ready")).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().await.code(), Some(6));
    assert!(!place.path().join("entry").exists());
}

#[tokio::test]
async fn a_foreign_start_script_sees_the_progress_of_hooks() {
    for (text, expected) in [("exit 0", "done 0\n"), ("exit 3", "done 1\n")] {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("status");
        let text = format!("while ! test -e $PLACE/go; do sleep 0.05; done; {text}");
        let hooks = json!({ "preStart": { "command": shell(&text), "timeoutSeconds": 42 } });
        let args = [
            "--port",
            "0",
            "--lifecycle-startup-status-file",
            file.to_str().unwrap(),
        ];
        let daemon = Daemon::start(&args, |command| set(command, place.path(), Some(&hooks)));
        assert_eq!(written(&file).await, "running 42\n");
        fs::write(place.path().join("go"), "").unwrap();
        let line = eventually("the script reported the hook", async || {
            fs::read_to_string(&file)
                .ok()
                .filter(|line| line.starts_with("done"))
        });
        assert_eq!(line.await, expected);
        // The script decides whether the command starts; the daemon serves in any case.
        assert_eq!(daemon.get("/ping").await.status, 200);
    }
}

#[tokio::test]
async fn periodic_hooks_run_repeatedly() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("first"), "\n").unwrap();
    let hooks = json!({ "periodic": [
        { "name": "slow", "schedule": "@every 1s", "timeoutSeconds": 1,
          "command": shell("echo >> $PLACE/slow; sleep 1000") },
        { "name": "fails", "schedule": "@every 1s", "command": shell("echo >> $PLACE/fails; exit 1") },
    ] });
    let _daemon = with_hooks(place.path(), Some(&hooks));
    for name in ["slow", "fails"] {
        eventually(name, async || {
            let text = fs::read_to_string(place.path().join(name)).unwrap_or_default();
            (text.len() >= 2).then_some(())
        })
        .await;
    }
}

#[test]
fn invalid_hooks_prevent_the_start() {
    // Outside /tmp, where kept hooks are not even read.
    let place = tempfile::tempdir_in("/var/lib").unwrap();
    let run = |hooks: Option<&Value>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_execd"));
        command.args(["--port", "0"]).stdin(Stdio::null());
        set(&mut command, place.path(), hooks);
        command.output().unwrap()
    };
    let bad = json!({ "periodic": [{ "schedule": "soon", "command": ["true"] }] });
    let output = run(Some(&bad));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("OPENSANDBOX_LIFECYCLE") && stderr.contains("schedule"),
        "{stderr}"
    );
    assert!(
        !place.path().join(".execd").exists(),
        "invalid hooks are not kept"
    );
    fs::create_dir(place.path().join(".execd")).unwrap();
    let broken = "sandboxId = \"s-1\"\npreStart = 1";
    fs::write(place.path().join(".execd/lifecycle.toml"), broken).unwrap();
    assert_eq!(run(None).status.code(), Some(1));
}

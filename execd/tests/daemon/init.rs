//! The daemon as the parent of the user's entry point (contract: execd §15, A9.4).

use std::{
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Daemon, alive, eventually, written};

fn init(place: &Path, argv: &[&str]) -> Daemon {
    let args = [["init", "--port", "0", "--"].as_slice(), argv].concat();
    Daemon::start(&args, |command| {
        command
            .env("EXECD_ENVS", place.join("new/.env"))
            .env("PLACE", place);
    })
}

#[tokio::test]
async fn the_status_of_the_entry_point_is_the_daemon_s() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(
        init(place.path(), &["sh", "-c", "exit 7"])
            .wait()
            .await
            .code(),
        Some(7)
    );
    assert_eq!(
        init(place.path(), &["sh", "-c", "kill -KILL $$"])
            .wait()
            .await
            .code(),
        Some(137)
    );
    assert_eq!(
        init(place.path(), &["-c", "exit", "9"]).wait().await.code(),
        Some(9)
    );
    assert!(place.path().join("new/.env").exists());
}

#[tokio::test]
async fn a_pipe_as_environment_file_does_not_block() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("new/.env");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).unwrap();
    let daemon = init(place.path(), &["sh", "-c", "exit 7"]);
    assert_eq!(daemon.wait().await.code(), Some(7));
}

#[tokio::test]
async fn a_failed_start_of_the_entry_point_is_reported() {
    let place = tempfile::tempdir().unwrap();
    for (name, code) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let output = Command::new(env!("CARGO_BIN_EXE_execd"))
            .args(["init", "--port", "0", "--", name])
            .env("EXECD_ENVS", place.path().join(".env"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("cannot start the entry point") && stderr.contains(name),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn nothing_starts_if_another_directory_is_mounted() {
    // A mount in every environment.
    let known = std::fs::metadata("/proc").unwrap();
    let (device, inode) = (known.dev(), known.ino());
    for (inode, code) in [(inode, 7), (inode + 1, 1)] {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("log");
        for (name, is_to_file) in [
            ("EXECD_LOG_FILE", true),
            ("OPENSANDBOX_LOG_OUTPUT", true),
            ("NOTHING", false),
        ] {
            let output = Command::new(env!("CARGO_BIN_EXE_execd"))
                .args(["init", "--port", "0"])
                .arg(format!("--expect-mount=/proc={device}:{inode}"))
                .args(["--", "sh", "-c", "echo started; exit 7"])
                .env("EXECD_ENVS", place.path().join("new/.env"))
                .env(name, &file)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let out = String::from_utf8_lossy(&output.stdout);
            assert_eq!(out.contains("started"), code == 7, "{out}");
            // Where the client wants the log may be what must not be written to.
            let log = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                log.contains("not the directory that the server checked"),
                code == 1,
                "{log}"
            );
            let made = std::fs::read_dir(place.path()).unwrap().count();
            assert_eq!(made == 0, code == 1, "{made}");
            assert_eq!(file.exists(), is_to_file && code == 7);
            let _ = std::fs::remove_file(&file);
        }
    }
}

#[tokio::test]
async fn signals_are_forwarded_and_remaining_processes_are_killed() {
    let place = tempfile::tempdir().unwrap();
    let text = "trap 'echo usr1 > $PLACE/usr1' USR1; trap 'echo term > $PLACE/term; exit 5' TERM; \
                setsid sh -c 'trap \"\" TERM HUP; echo $$ > $PLACE/stubborn; while :; do sleep 0.1; done' & \
                echo ready > $PLACE/ready; while :; do sleep 0.1; done";
    let daemon = init(place.path(), &["sh", "-c", text]);
    let at = |name: &str| place.path().join(name);
    written(&at("ready")).await;
    let stubborn: i32 = written(&at("stubborn")).await.trim().parse().unwrap();
    daemon.signal(Signal::USR1);
    written(&at("usr1")).await;
    daemon.signal(Signal::TERM);
    let status = daemon.wait().await;
    assert_eq!((status.code(), status.signal()), (Some(5), None));
    assert_eq!(written(&at("term")).await, "term\n");
    assert!(!alive(stubborn), "a process that ignores SIGTERM is killed");
}

#[tokio::test]
async fn orphans_are_reaped_and_commands_keep_their_status() {
    let place = tempfile::tempdir().unwrap();
    let daemon = init(place.path(), &["sleep", "1000"]);
    for round in 0..20 {
        // The child outlives its parent, then ends, so that only init can reap it.
        let text = format!("(setsid sh -c 'exit 1' &); exit {}", round + 1);
        let events = daemon.run(json!({ "command": text })).await;
        assert_eq!(events.last().unwrap().exit_code(), Some(round + 1));
    }
    eventually("no zombie is left", async || {
        let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
        let children = std::fs::read_to_string(children).unwrap();
        (children.split_whitespace().count() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_start_script_exports_to_everything() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("pre.sh");
    std::fs::write(&script, "echo noise; export FROM_SCRIPT='two\nlines'\n").unwrap();
    let args = [
        "init",
        "--port",
        "0",
        "--",
        "sh",
        "-c",
        "echo \"$FROM_SCRIPT$EXECD_ACCESS_TOKEN\" > $PLACE/seen; sleep 1000",
    ];
    let daemon = Daemon::start(&args, |command| {
        command
            .env("EXECD_BOOTSTRAP_PRE_SCRIPT", &script)
            .env("EXECD_ENVS", place.path().join(".env"))
            .env("EXECD_ACCESS_TOKEN", "secret-of-the-daemon")
            .env("PLACE", place.path());
    })
    .with_header("x-execd-access-token", "secret-of-the-daemon");
    let seen = place.path().join("seen");
    let seen = eventually("the entry point wrote", async || {
        std::fs::read_to_string(&seen)
            .ok()
            .filter(|text| text.contains("lines\n"))
    })
    .await;
    assert_eq!(seen, "two\nlines\n");
    let events = daemon
        .run(json!({ "command": "test \"$FROM_SCRIPT\" = \"$(printf 'two\\nlines')\"" }))
        .await;
    assert_eq!(events.last().unwrap().exit_code(), Some(0));
}

/// Starts an init with a start script, and an entry point that writes two variables to a file.
fn scripted(place: &Path, script: &str) -> Daemon {
    let path = place.join("pre.sh");
    std::fs::write(&path, script).unwrap();
    let text = "echo \"$OF_THE_IMAGE|$FROM_SCRIPT\" > $PLACE/seen; sleep 1000";
    let args = ["init", "--port", "0", "--", "sh", "-c", text];
    Daemon::start(&args, |command| {
        command
            .env("EXECD_BOOTSTRAP_PRE_SCRIPT", &path)
            .env("EXECD_ENVS", place.join(".env"))
            .env("OF_THE_IMAGE", "kept")
            .env("PLACE", place);
    })
}

#[tokio::test]
async fn a_start_script_that_exits_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let _daemon = scripted(place.path(), "export FROM_SCRIPT=x; exit 0\n");
    assert_eq!(written(&place.path().join("seen")).await, "kept|\n");
}

#[tokio::test]
async fn a_pipe_as_start_script_does_not_block() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("pre.sh");
    rustix::fs::mkfifoat(rustix::fs::CWD, &script, 0o600.into()).unwrap();
    let args = ["init", "--port", "0", "--", "sh", "-c", "exit 7"];
    let daemon = Daemon::start(&args, |command| {
        command
            .env("EXECD_BOOTSTRAP_PRE_SCRIPT", &script)
            .env("EXECD_ENVS", place.path().join(".env"));
    });
    assert_eq!(daemon.wait().await.code(), Some(7));
}

#[tokio::test]
async fn a_start_script_may_leave_a_process_running() {
    let place = tempfile::tempdir().unwrap();
    let script = "export FROM_SCRIPT=x; (sleep 1000; :) &\n";
    let _daemon = scripted(place.path(), script);
    assert_eq!(written(&place.path().join("seen")).await, "kept|x\n");
}

#[tokio::test]
async fn the_daemon_can_be_stopped_during_its_start_script() {
    let place = tempfile::tempdir().unwrap();
    let script = "trap 'exit 6' TERM; echo > $PLACE/ready; while :; do sleep 0.05; done\n";
    let daemon = scripted(place.path(), script);
    written(&place.path().join("ready")).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().await.code(), Some(6));
    assert!(!place.path().join("seen").exists());
}

#[tokio::test]
async fn remaining_processes_may_flush_on_sigterm() {
    let place = tempfile::tempdir().unwrap();
    let text = "setsid sh -c 'trap \"sleep 0.05; echo > $PLACE/flushed; exit\" TERM; \
                echo > $PLACE/ready; while :; do sleep 0.05; done' & \
                while ! test -e $PLACE/ready; do sleep 0.05; done";
    let args = ["init", "--port", "0", "--", "sh", "-c", text];
    let daemon = Daemon::start(&args, |command| {
        command
            .env("EXECD_ENVS", place.path().join(".env"))
            .env("PLACE", place.path());
    });
    assert_eq!(daemon.wait().await.code(), Some(0));
    assert!(place.path().join("flushed").exists());
}

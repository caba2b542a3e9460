//! Files that commands may have written, and that execd reads with more rights (contract: execd
//! A8).

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{Hardened, ON, complete_landlock, outside, place};
use crate::support::{eventually, texts};

#[tokio::test]
async fn hooks_ignore_variables_that_commands_can_write() {
    let marker = place();
    let at = |name: &str| marker.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    let (foreign, log) = (at("bin/sh"), at("log"));
    let text = format!("#!/bin/sh\necho foreign > {}\n", log.display());
    fs::write(&foreign, text).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
    // A file that a command of an earlier run may have planted.
    let variables = format!("PATH={}\nFROM_FILE=seen\n", at("bin").display());
    fs::write(at(".env"), variables).unwrap();
    let text = format!("echo \"own$FROM_FILE\" > {}", log.display());
    let hooks = json!({ "preStart": { "command": ["sh", "-c", text] } });
    let hardened = Hardened::start(ON, &["--port", "0"], |command| {
        command
            .env("EXECD_ENVS", at(".env"))
            .env("OPENSANDBOX_LIFECYCLE", hooks.to_string())
            .env("EXECD_LIFECYCLE_CONFIG", at("hooks.toml"));
    });
    let log = eventually("the hook ran", async || {
        let text = fs::read_to_string(&log).ok()?;
        text.ends_with('\n').then_some(text)
    });
    assert_eq!(log.await, "own\n");
    let request = json!({ "argv": ["/bin/sh", "-c", "echo $FROM_FILE"] });
    let events = hardened.run(request).await;
    assert_eq!(
        texts(&events, EventKind::Stdout),
        ["seen"],
        "commands use the variables"
    );
}

/// Starts an init without a variable for hooks, with a planted hook file in its home. Returns
/// whether the planted hook ran before the entry point.
async fn planted_hook_runs(config: &str, home: &Path) -> bool {
    let marker = place();
    let at = |name: &str| marker.path().join(name);
    fs::create_dir(home.join(".execd")).unwrap();
    let text = format!(
        "sandboxId = \"s-1\"\n[preStart]\ncommand = [\"touch\", {:?}]\n",
        at("planted")
    );
    fs::write(home.join(".execd/lifecycle.toml"), text).unwrap();
    let entry = format!("echo x > {}; sleep 1000", at("entry").display());
    let args = ["init", "--port", "0", "--", "sh", "-c", &entry];
    let _hardened = Hardened::start(config, &args, |command| {
        command
            .env("HOME", home)
            .env("OPENSANDBOX_ID", "s-1")
            .env("EXECD_ENVS", at(".env"))
            .env_remove("OPENSANDBOX_LIFECYCLE")
            .env_remove("EXECD_LIFECYCLE_CONFIG");
    });
    eventually("the entry point ran", async || {
        at("entry").exists().then_some(())
    })
    .await;
    at("planted").exists()
}

#[tokio::test]
async fn planted_hooks_do_not_run() {
    let closed = format!("{ON}[landlock]\nenabled = true\n");
    assert!(planted_hook_runs("", outside().path()).await, "same rights");
    assert!(!planted_hook_runs(ON, outside().path()).await);
    // Isolated sessions always have fewer rights.
    let home = outside();
    let shared = format!("allowed_writable = [{:?}]\n", home.path());
    assert!(!planted_hook_runs(&shared, home.path()).await);
    if let Err(why) = complete_landlock() {
        eprintln!("SKIPPED: no complete Landlock here: {why}");
        return;
    }
    let home = outside();
    assert!(planted_hook_runs(&closed, home.path()).await);
    let open = format!("{closed}extra_writable = [{:?}]\n", home.path());
    fs::remove_dir_all(home.path().join(".execd")).unwrap();
    assert!(!planted_hook_runs(&open, home.path()).await);
}

#[test]
fn a_named_hook_file_that_commands_can_write_ends_the_start() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::write(at("isolation.toml"), ON).unwrap();
    // A daemon that read the file would end as well, but for another reason.
    fs::write(at("hooks.toml"), "preStart = 1").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_execd"))
        .args(["--port", "0", "--isolation-config"])
        .arg(at("isolation.toml"))
        .env("EXECD_LIFECYCLE_CONFIG", at("hooks.toml"))
        .env_remove("OPENSANDBOX_LIFECYCLE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("hooks.toml") && stderr.contains("may have written it"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_start_script_that_commands_can_write_is_sourced_with_a_warning() {
    for (config, doubtful) in [("", false), (ON, true)] {
        let place = place();
        let at = |name: &str| place.path().join(name);
        fs::write(at("pre.sh"), "export FROM_SCRIPT=seen\n").unwrap();
        let args = ["init", "--port", "0", "--", "sleep", "1000"];
        let outputs = format!("stderr,{}", at("log").display());
        let hardened = Hardened::start(config, &args, |command| {
            command
                .env("EXECD_BOOTSTRAP_PRE_SCRIPT", at("pre.sh"))
                .env("EXECD_ENVS", at(".env"))
                .env("OPENSANDBOX_LOG_OUTPUT", outputs)
                .env_remove("EXECD_LOG_FILE");
        });
        eventually("it was sourced", async || {
            let output = hardened.output_of("echo $FROM_SCRIPT").await;
            (output == "seen").then_some(())
        })
        .await;
        // The log has its own thread and keeps the order of lines.
        let log = eventually("a later line is in the log", async || {
            let log = fs::read_to_string(at("log")).ok()?;
            log.contains("entry point started").then_some(log)
        })
        .await;
        assert_eq!(
            log.contains("the start script has rights"),
            doubtful,
            "{log}"
        );
    }
}

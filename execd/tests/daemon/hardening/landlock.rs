//! Files that commands may read and write under Landlock (contract: execd A8).

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{Hardened, ON, active, complete_landlock, output_of, outside, place};
use crate::support::{Daemon, events, texts};

#[tokio::test]
async fn files_are_writable_only_where_allowed() {
    let outer = outside();
    let at = |name: &str| outer.path().join(name);
    for name in ["allowed", "closed", "readable"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("file"), name).unwrap();
    }
    fs::write(at(".env"), "").unwrap();
    let config = format!(
        "allowed_writable = [{:?}]\n{ON}[landlock]\nenabled = true\nextra_writable = [{:?}, {:?}]\n\
         extra_readable = [{:?}]\n",
        at("allowed"),
        at("later"),
        at("allowed/swapped"),
        at("readable")
    );
    let hardened = Hardened::start(&config, &["--port", "0"], |command| {
        command.env("EXECD_ENVS", at(".env"));
    });
    if let Err(why) = complete_landlock() {
        eprintln!("SKIPPED: no complete Landlock here: {why}");
        assert_ne!(hardened.layer("landlock").await.0, "active");
        return;
    }
    assert_eq!(hardened.layer("landlock").await, active());
    let ended = async |command: String| {
        let events = hardened.run(json!({ "command": command })).await;
        let well = events.last().unwrap().exit_code() == Some(0);
        assert!(
            well || texts(&events, EventKind::Stderr)
                .join("")
                .contains("ermission denied"),
            "{command}: {events:?}"
        );
        well
    };
    let writes = async |path: PathBuf| ended(format!("echo x > {}", path.display())).await;
    let reads = async |path: PathBuf| ended(format!("cat {}", path.display())).await;

    assert!(writes(at("allowed/file")).await && reads(at("allowed/file")).await);
    assert!(!writes(at("readable/file")).await && reads(at("readable/file")).await);
    assert!(!writes(at("closed/new")).await && !reads(at("closed/file")).await);
    assert!(!ended(format!("rm {}", at("closed/file").display())).await);
    let closed = at("closed/file");
    let cut = format!("perl -e 'truncate(\"{}\", 0) or die $!'", closed.display());
    assert!(!ended(cut).await);
    assert_eq!(fs::read_to_string(closed).unwrap(), "closed");
    assert!(writes(at(".env")).await, "set_env writes this file");

    // Paths that are created later, or replaced, are covered too.
    for _ in 0..2 {
        assert!(!at("later").exists());
        let body = json!({ at("later").to_str().unwrap(): {} });
        let made = hardened.daemon.post("/directories", body).await;
        assert_eq!(made.status, 200, "{}", made.text());
        assert!(writes(at("later/file")).await);
        fs::remove_dir_all(at("later")).unwrap();
    }
    // A link that is created later is not followed.
    symlink(at("closed"), at("allowed/swapped")).unwrap();
    assert!(!writes(at("allowed/swapped/new")).await);

    // Paths that programs need.
    for command in [
        "exec 3<> /dev/null 4< /dev/urandom; echo x > /dev/stdout; cat /proc/self/stat",
        "f=$(mktemp) && echo x > $f && rm $f",
        "sh -c 'cat /proc/self/status /proc/meminfo'",
    ] {
        assert!(ended(command.to_owned()).await);
    }
    // The program that reports a shell's state is outside the executable paths.
    let created = hardened.daemon.post("/session", json!({})).await.json();
    let path = format!("/session/{}/run", created["session_id"].as_str().unwrap());
    for command in ["cd /usr; export A=1", "test $PWD$A = /usr1"] {
        let answer = hardened.daemon.post(&path, json!({ "command": command }));
        output_of(&events(&answer.await.body));
    }
}

#[tokio::test]
async fn paths_in_variables_stay_usable_and_links_of_commands_are_not_followed() {
    if let Err(why) = complete_landlock() {
        eprintln!("SKIPPED: no complete Landlock here: {why}");
        return;
    }
    let outer = outside();
    let at = |name: &str| outer.path().join(name);
    for name in ["allowed", "closed", "temporary", "real"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("real/.env"), "").unwrap();
    fs::write(at("closed/file"), "CLOSED=closed\n").unwrap();
    symlink("real", at("linked")).unwrap();
    // Links that a command may have planted before the sandbox was restarted.
    symlink(at("closed"), at("allowed/planted")).unwrap();
    symlink(at("closed/file"), at("allowed/.env")).unwrap();
    let config = format!(
        "{ON}[landlock]\nenabled = true\nextra_writable = [{:?}, {:?}]\n",
        at("allowed"),
        at("allowed/planted")
    );
    for (envs, usable) in [("linked/.env", true), ("allowed/.env", false)] {
        let hardened = Hardened::start(&config, &["--port", "0"], |command| {
            command
                .env("EXECD_ENVS", at(envs))
                .env("TMPDIR", at("temporary"));
        });
        let writes = async |path: PathBuf| {
            let command = format!("echo A=x >> {}", path.display());
            let events = hardened.run(json!({ "command": command })).await;
            events.last().unwrap().exit_code() == Some(0)
        };
        assert_eq!(writes(at(envs)).await, usable, "{envs}");
        // The daemon does not read it on behalf of a command either.
        let output = hardened.output_of("echo \"$A|$CLOSED\"").await;
        assert_eq!(output, if usable { "x|" } else { "|" }, "{envs}");
        assert!(!writes(at("closed/file")).await, "{envs}");
        assert!(!writes(at("closed/new")).await, "{envs}");
        let made = hardened
            .output_of("f=$(mktemp) && echo x > $f && echo $f")
            .await;
        assert!(Path::new(&made).starts_with(at("temporary")), "{made}");
    }
    let closed = fs::read_to_string(at("closed/file")).unwrap();
    assert_eq!(closed, "CLOSED=closed\n");
}

#[tokio::test]
async fn sessions_report_their_state_on_any_descriptor_number() {
    let place = place();
    let file = place.path().join("isolation.toml");
    fs::write(
        &file,
        format!(
            "{ON}[landlock]
enabled = true
"
        ),
    )
    .unwrap();
    // Below the descriptor on which shells report, leaves room for the daemon's own only.
    let text = r#"for n in {10..69}; do eval "exec $n</dev/null"; done; exec "$@""#;
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            text,
            "bash",
            env!("CARGO_BIN_EXE_execd"),
            "--port",
            "0",
        ])
        .arg("--isolation-config")
        .arg(&file);
    let daemon = Daemon::launch(command, |_| {});
    let created = daemon.post("/session", json!({})).await.json();
    let path = format!("/session/{}/run", created["session_id"].as_str().unwrap());
    let run = async |command: String| {
        let answer = daemon.post(&path, json!({ "command": command }));
        output_of(&events(&answer.await.body))
    };
    // Each connection takes one more descriptor.
    let mut connections = Vec::new();
    for round in 0..40 {
        run(format!("export ROUND={round}")).await;
        assert_eq!(run("echo $ROUND".to_owned()).await, round.to_string());
        let address = ("127.0.0.1", daemon.port());
        connections.push(TcpStream::connect(address).unwrap());
    }
}

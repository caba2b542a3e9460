//! Restrictions of user processes (contract: execd A8, A9.4). Needs root, as in a sandbox.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use osb_protocol::execd::event::{Event, EventKind};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;

use crate::support::{Daemon, events, eventually, texts};

mod landlock;
mod trust;

/// All capability sets, in the kernel's order.
const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NONE: u64 = 0;
const NET_RAW: u64 = 1 << 13;

/// A daemon with a configuration, and a folder that every user may write.
struct Hardened {
    daemon: Daemon,
    place: tempfile::TempDir,
}

impl Hardened {
    fn with(config: &str) -> Self {
        Self::start(config, &["--port", "0"], |_| {})
    }

    fn start(config: &str, args: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests drop privileges, so they need root"
        );
        let place = place();
        let file = place.path().join("isolation.toml");
        fs::write(&file, config).unwrap();
        let daemon = Daemon::start(args, |command| {
            command.env("EXECD_ISOLATION_CONFIG", file);
            prepare(command);
        });
        Self { daemon, place }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Returns the state and message of a layer.
    async fn layer(&self, name: &str) -> (String, Option<String>) {
        layer(&self.daemon, name).await
    }

    async fn run(&self, request: Value) -> Vec<Event> {
        self.daemon.run(request).await
    }

    /// Returns the output of a command that must succeed.
    async fn output_of(&self, command: &str) -> String {
        output_of(&self.run(json!({ "command": command })).await)
    }
}

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    place
}

/// Creates a folder outside the temporary directories, which stay writable under Landlock.
fn outside() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/lib").unwrap()
}

async fn layer(daemon: &Daemon, name: &str) -> (String, Option<String>) {
    let capabilities = daemon.get("/v1/isolated/capabilities").await.json();
    let layer = &capabilities["hardening"][name];
    let state = layer["state"].as_str().unwrap().to_owned();
    (state, layer["message"].as_str().map(str::to_owned))
}

fn output_of(events: &[Event]) -> String {
    assert_eq!(events.last().unwrap().exit_code(), Some(0), "{events:?}");
    texts(events, EventKind::Stdout).join("\n")
}

fn active() -> (String, Option<String>) {
    ("active".to_owned(), None)
}

/// Returns the value of a line of `/proc/self/status`.
fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let found = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found
        .unwrap_or_else(|| panic!("no {name} in {status}"))
        .trim()
}

fn set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(line(status, name), 16).unwrap()
}

#[track_caller]
fn assert_hardened(status: &str, kept: u64) {
    for name in SETS {
        assert_eq!(set(status, name), kept, "{name} in {status}");
    }
    assert_eq!(line(status, "NoNewPrivs"), "1");
    assert_eq!(line(status, "Seccomp"), "2");
}

/// Asks the kernel itself, so that a defect of ours is not mistaken for missing support.
fn complete_landlock() -> Result<(), String> {
    use nix::libc;
    const OF_KERNEL_VERSION: u32 = 1;
    const COMPLETE: i64 = 3;
    #[expect(unsafe_code, reason = "the C library has no function for it")]
    // SAFETY: with this flag the kernel reads no memory and returns a number.
    let version = unsafe {
        let nothing = std::ptr::null::<u8>();
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            nothing,
            0usize,
            OF_KERNEL_VERSION,
        )
    };
    match version {
        COMPLETE.. => Ok(()),
        0..COMPLETE => Err(format!("it is version {version}")),
        _ => match std::io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => {
                Err(error.to_string())
            }
            error => panic!("{error}"),
        },
    }
}

async fn written(path: &Path) -> String {
    eventually("the file was written", async || {
        let text = fs::read_to_string(path).ok()?;
        // The last line.
        text.contains("nonvoluntary_ctxt_switches").then_some(text)
    })
    .await
}

const ON: &str = "[hardening]\nenabled = true\n";
const STATUS: &str = "cat /proc/self/status";

#[tokio::test]
async fn commands_sessions_terminals_and_the_entry_point_are_hardened() {
    let marker = place();
    let entry = marker.path().join("entry");
    let text = format!("{STATUS} > {}; sleep 1000", entry.display());
    let args = ["init", "--port", "0", "--", "sh", "-c", &text];
    let hardened = Hardened::start(ON, &args, |command| {
        command.env("EXECD_ENVS", marker.path().join(".env"));
    });
    assert_hardened(&written(&entry).await, NONE);
    for name in ["cap_drop", "seccomp"] {
        assert_eq!(hardened.layer(name).await, active(), "{name}");
    }
    assert_eq!(hardened.layer("landlock").await.0, "disabled");

    for request in [
        json!({ "command": STATUS }),
        json!({ "argv": ["cat", "/proc/self/status"], "cwd": "/" }),
        json!({ "command": STATUS, "uid": 12345 }),
        json!({ "command": STATUS, "uid": 0, "gid": 54321 }),
    ] {
        let status = output_of(&hardened.run(request.clone()).await);
        assert_hardened(&status, NONE);
        if let Some(uid) = request["uid"].as_u64() {
            assert!(line(&status, "Uid").starts_with(&uid.to_string()));
        }
    }

    let created = hardened.daemon.post("/session", json!({})).await.json();
    let path = format!("/session/{}/run", created["session_id"].as_str().unwrap());
    let run = async |command: &str| {
        let answer = hardened.daemon.post(&path, json!({ "command": command }));
        output_of(&events(&answer.await.body))
    };
    assert_hardened(&run(&format!("export KEPT=1; {STATUS}")).await, NONE);
    assert_eq!(run("echo $KEPT").await, "1");

    for mode in ["0", "1"] {
        let out = hardened.at(&format!("pty{mode}"));
        let command = format!("{STATUS} > {}; tty; sleep 1000", out.display());
        let created = hardened.daemon.post("/pty", json!({ "command": command }));
        let id = created.await.json()["session_id"].clone();
        let address = format!(
            "ws://127.0.0.1:{}/pty/{}/ws?pty={mode}",
            hardened.daemon.port(),
            id.as_str().unwrap()
        );
        let _client = connect_async(address).await.unwrap();
        assert_hardened(&written(&out).await, NONE);
    }
}

#[tokio::test]
async fn without_hardening_nothing_changes() {
    let plain = Hardened::with("");
    let status = plain.output_of(STATUS).await;
    let own = fs::read_to_string("/proc/self/status").unwrap();
    for name in SETS.iter().chain(&["NoNewPrivs", "Seccomp"]) {
        assert_eq!(line(&status, name), line(&own, name), "{name}");
    }
    for name in ["cap_drop", "landlock", "ebpf"] {
        let (state, why) = plain.layer(name).await;
        assert_eq!(state, "disabled", "{name}");
        assert!(why.unwrap().contains("enabled"), "{name}");
    }
}

#[tokio::test]
async fn configured_capabilities_are_kept() {
    let hardened =
        Hardened::with("[hardening]\nenabled = true\nkeep_capabilities = [\"CAP_NET_RAW\"]\n");
    assert_eq!(hardened.layer("cap_drop").await, active());
    assert_hardened(&hardened.output_of(STATUS).await, NET_RAW);
    // Another user keeps them too, and so do that user's child processes.
    let command = format!("sh -c '{STATUS}'");
    let events = hardened.run(json!({ "command": command, "uid": 12345 }));
    assert_hardened(&output_of(&events.await), NET_RAW);
}

#[tokio::test]
async fn an_unavailable_layer_is_reported_and_the_others_apply() {
    let place = place();
    let file = place.path().join("isolation.toml");
    fs::write(&file, ON).unwrap();
    let file = file.to_str().unwrap();
    let args = ["--port", "0", "--isolation-config", file];
    let daemon = Daemon::without_capabilities("-setpcap", &args);
    let (state, why) = layer(&daemon, "cap_drop").await;
    assert_eq!(state, "degraded");
    assert!(why.unwrap().contains("SETPCAP"));
    assert_eq!(layer(&daemon, "seccomp").await, active());
    let status = output_of(&daemon.run(json!({ "command": STATUS })).await);
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(set(&status, name), NONE, "{name}");
    }
    assert_ne!(set(&status, "CapBnd"), NONE);
}

#[tokio::test]
async fn without_ambient_capabilities_none_are_kept_and_the_other_layers_apply() {
    let place = place();
    let file = place.path().join("isolation.toml");
    let config = "[hardening]\nenabled = true\nkeep_capabilities = [\"CAP_NET_RAW\"]\n";
    fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_execd"));
    command
        .args(["--port", "0", "--isolation-config"])
        .arg(&file);
    // The daemon inherits the bit from this thread, which ends afterwards.
    let start = move || {
        set_capabilities_secure_bits(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE).unwrap();
        Daemon::launch(command, |_| {})
    };
    let daemon = std::thread::spawn(start).join().unwrap();
    for name in ["cap_drop", "seccomp"] {
        assert_eq!(layer(&daemon, name).await, active(), "{name}");
    }
    let events = daemon.run(json!({ "command": STATUS })).await;
    assert_hardened(&output_of(&events), NONE);
}

#[tokio::test]
async fn denied_system_calls_are_refused() {
    let hardened = Hardened::with(ON);
    let failed = async |hardened: &Hardened, command: &str| {
        let events = hardened.run(json!({ "command": command })).await;
        assert_ne!(events.last().unwrap().exit_code(), Some(0), "{command}");
        texts(&events, EventKind::Stderr).join("\n")
    };
    let refused = failed(&hardened, "unshare --user true").await;
    assert!(refused.contains("Operation not permitted"), "{refused}");

    let own = Hardened::with(&format!(
        "{ON}[seccomp]\ndeny = [\"mkdir\", \"mkdirat\", \"no_such_call\"]\n"
    ));
    let directory = own.at("directory");
    let refused = failed(&own, &format!("mkdir {}", directory.display())).await;
    assert!(refused.contains("Operation not permitted"), "{refused}");
    assert!(!directory.exists());
    own.output_of(&format!("touch {}", own.at("file").display()))
        .await;
    // A custom list does not allow namespaces again, and unknown names are reported.
    let refused = failed(&own, "unshare --user true").await;
    assert!(refused.contains("Operation not permitted"), "{refused}");
    let (state, why) = own.layer("seccomp").await;
    assert_eq!(state, "degraded");
    assert!(why.unwrap().contains("no_such_call"));
    // The filter does not apply to the daemon itself.
    let body = json!({ directory.to_str().unwrap(): {} });
    assert_eq!(own.daemon.post("/directories", body).await.status, 200);
}

#[tokio::test]
async fn configuration_never_reaches_a_command() {
    let hardened = Hardened::start(ON, &["--port", "0"], |command| {
        command
            .env("EXECD_ACCESS_TOKEN", "a-token")
            .env("JUPYTER_TOKEN", "jupyter")
            .env("EXECD_LIFECYCLE_CONFIG", "/nonexistent/hooks.toml")
            .env("EXECD_RUNTIME_INIT", "false")
            .env("EXECD_ENVS", "/nonexistent/.env")
            .env("OTHER", "seen");
    });
    let Hardened { daemon, place } = hardened;
    let daemon = daemon.with_header("x-execd-access-token", "a-token");
    let variables = output_of(&daemon.run(json!({ "command": "env" })).await);
    for absent in [
        "EXECD_ACCESS_TOKEN",
        "JUPYTER_TOKEN",
        "EXECD_ISOLATION_CONFIG",
        "EXECD_LIFECYCLE_CONFIG",
        "EXECD_RUNTIME_INIT",
    ] {
        assert!(!variables.contains(absent), "{absent} in {variables}");
    }
    // `set_env` of the official SDKs needs this variable.
    for present in ["OTHER=seen", "EXECD_ENVS=/nonexistent/.env"] {
        assert!(variables.contains(present), "no {present} in {variables}");
    }
    drop(place);
}

#[test]
fn an_invalid_configuration_ends_the_start_with_its_key() {
    for (config, key) in [
        (
            "[hardening]\nkeep_capabilities = [\"CAP_FLY\"]",
            "hardening.keep_capabilities",
        ),
        (
            "[hardening]\nenabled = true\n[seccomp]\ndeny = [\"execve\"]",
            "seccomp.deny",
        ),
        (
            "[landlock]\nextra_writable = [\"here\"]",
            "landlock.extra_writable",
        ),
        ("[ebpf]\nobserve = [\"everything\"]", "ebpf.observe"),
    ] {
        let place = place();
        let file = place.path().join("isolation.toml");
        fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_execd"))
            .args(["--port", "0", "--isolation-config"])
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{config}: {stderr}");
        assert!(stderr.contains(key), "{config}: {stderr}");
    }
}

#[tokio::test]
async fn errors_are_the_same_with_and_without_hardening() {
    let place = place();
    let plain = place.path().join("plain");
    fs::write(&plain, "").unwrap();
    let odd = place.path().join("odd");
    fs::write(&odd, "#!/nonexistent/interpreter\n").unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).unwrap();
    let hardened = Hardened::with(&format!("{ON}[landlock]\nenabled = true\n"));
    let usual = Hardened::with("");
    for request in [
        json!({ "argv": ["no-such-program"] }),
        json!({ "argv": [plain] }),
        json!({ "argv": [odd] }),
        json!({ "argv": ["/etc"] }),
        json!({ "command": "no-such-program" }),
        json!({ "command": "exit 7" }),
        json!({ "command": "kill -9 $$" }),
        json!({ "command": "no-such-program", "envs": { "PATH": "/nonexistent" } }),
    ] {
        let end = async |hardened: &Hardened| {
            let events = hardened.run(request.clone()).await;
            events.last().unwrap().error.clone().unwrap()
        };
        assert_eq!(end(&hardened).await, end(&usual).await, "{request}");
    }
    let cwd = json!({ "command": "true", "cwd": "/nonexistent" });
    let refused = async |hardened: &Hardened| {
        let answer = hardened.daemon.post("/command", cwd.clone()).await;
        (answer.status, answer.json())
    };
    let refusal = refused(&hardened).await;
    assert_eq!(refusal.0, 400);
    assert_eq!(refusal, refused(&usual).await);
}

#[tokio::test]
async fn a_start_that_hardening_prevents_is_explained() {
    let outer = outside();
    let tool = outer.path().join("tool");
    fs::write(&tool, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o700)).unwrap();
    let reason = async |config: &str, request: Value| {
        let hardened = Hardened::with(config);
        let events = hardened.run(request).await;
        let error = events.last().unwrap().error.clone();
        error.unwrap_or_else(|| panic!("{events:?}")).evalue
    };
    // A file of another user, which only a capability can override.
    chown(&tool, Some(12345), Some(12345)).unwrap();
    let request = json!({ "argv": [&tool] });
    let message = reason(ON, request.clone()).await;
    assert!(message.contains("ermission denied"), "{message}");
    assert!(
        message.contains("hardening") && !message.contains("SETUID"),
        "{message}"
    );
    // Without hardening, permissions still apply to other users, and no capability would help.
    let other = json!({ "argv": [&tool], "uid": 54321 });
    let message = reason("", other).await;
    assert!(message.contains("ermission denied"), "{message}");
    assert!(
        !message.contains("SETUID") && !message.contains("hardening"),
        "{message}"
    );
    if let Err(why) = complete_landlock() {
        eprintln!("SKIPPED: no complete Landlock here: {why}");
        return;
    }
    chown(&tool, Some(0), Some(0)).unwrap();
    let message = reason(&format!("{ON}[landlock]\nenabled = true\n"), request).await;
    assert!(message.contains("landlock.extra_readable"), "{message}");
}

#[tokio::test]
async fn an_unavailable_audit_is_reported() {
    let hardened = Hardened::with("[ebpf]\nenabled = true\n");
    let (state, why) = hardened.layer("ebpf").await;
    assert_eq!(state, "degraded");
    assert!(why.unwrap().contains("audit"));
    hardened.output_of("true").await;
}

#[tokio::test]
async fn hooks_and_files_as_another_user_are_not_hardened() {
    let marker = place();
    let status = marker.path().join("hook");
    let text = format!("{STATUS} > {}", status.display());
    let hooks = json!({ "preStart": { "command": ["sh", "-c", text] } });
    let hardened = Hardened::start(ON, &["--port", "0"], |command| {
        command
            .env("OPENSANDBOX_LIFECYCLE", hooks.to_string())
            .env("EXECD_LIFECYCLE_CONFIG", marker.path().join("hooks.toml"));
    });
    assert_ne!(set(&written(&status).await, "CapEff"), NONE);
    let path = hardened.at("made");
    let body = json!({ path.to_str().unwrap(): {} });
    let made = hardened
        .daemon
        .post("/v1/filesystem/12345/54321/directories", body)
        .await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert!(path.is_dir());
}

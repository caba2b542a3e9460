//! Paths about the machine that isolated sessions cannot see (contract: execd A6.2). Needs root and
//! namespaces.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use crate::support::{Daemon, events, texts};

/// Paths that container engines mask.
const HIDDEN: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Paths that container engines make read-only.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Runs a script in a new mount namespace and starts a daemon there. Prints why and returns `None`
/// where isolated sessions are unavailable.
async fn daemon(script: &str, place: &Path) -> Option<Daemon> {
    let config = place.join("isolation.toml");
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.join("work")).unwrap();
    let text = format!("upper_root = {:?}\n", place.join("uppers"));
    fs::write(&config, text).unwrap();
    let probe = Command::new("unshare")
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    if !probe.success() {
        eprintln!("SKIPPED: no mount namespaces here");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec"])
        .arg(format!("{script}\nexec \"$@\""))
        .args(["sh", env!("CARGO_BIN_EXE_execd"), "--port", "0"])
        .arg("--isolation-config")
        .arg(config);
    let daemon = Daemon::launch(command, |_| {});
    let capabilities = daemon.get("/v1/isolated/capabilities").await.json();
    if capabilities["setpriv_available"] != json!(true) {
        eprintln!("SKIPPED: no isolated sessions here: {capabilities}");
        return None;
    }
    Some(daemon)
}

/// Returns the output of code in a new session; it must succeed.
async fn output_of(daemon: &Daemon, place: &Path, code: &str) -> String {
    let body = json!({ "workspace": { "path": place.join("work") } });
    let made = daemon.post("/v1/isolated/session", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let id = made["session_id"].as_str().unwrap();
    let path = format!("/v1/isolated/session/{id}/run");
    let ran = daemon.post(&path, json!({ "code": code })).await;
    assert_eq!(ran.status, 200, "{}", ran.text());
    let events = events(&ran.body);
    assert_eq!(events.last().unwrap().exit_code(), Some(0), "{events:?}");
    texts(&events, EventKind::Stdout).join("\n")
}

/// Returns the options and the file system type of the last mount at a path.
fn mounted(mounts: &str, path: &str) -> Option<(String, String)> {
    let at = |line: &&str| line.split(' ').nth(4) == Some(path);
    let line = mounts.lines().rfind(at)?;
    let (mount, kind) = line.split_once(" - ")?;
    let options = mount.split(' ').nth(5)?;
    Some((options.to_owned(), kind.split(' ').next()?.to_owned()))
}

#[tokio::test]
async fn paths_that_engines_mask_are_masked_and_read_only_ones_are_read_only() {
    let place = tempfile::tempdir().unwrap();
    let Some(daemon) = daemon("", place.path()).await else {
        return;
    };
    let mounts = output_of(&daemon, place.path(), "cat /proc/self/mountinfo").await;
    let there = |path: &&&str| Path::new(path).exists();
    for path in HIDDEN.iter().filter(there) {
        let (options, kind) = mounted(&mounts, path).unwrap_or_else(|| panic!("{path}: {mounts}"));
        assert!(!["proc", "sysfs"].contains(&&*kind), "{path}: {mounts}");
        if Path::new(path).is_dir() {
            assert!(options.split(',').any(|option| option == "ro"), "{path}");
        }
    }
    for path in READ_ONLY.iter().filter(there) {
        let (options, _) = mounted(&mounts, path).unwrap_or_else(|| panic!("{path}: {mounts}"));
        assert!(options.split(',').any(|option| option == "ro"), "{path}");
    }
    // `/sys/firmware` is there on every machine.
    let left = output_of(&daemon, place.path(), "ls -A /sys/firmware | wc -l").await;
    assert_eq!(left.trim(), "0");
}

#[tokio::test]
async fn paths_masked_in_the_sandbox_are_masked_in_its_sessions() {
    let place = tempfile::tempdir().unwrap();
    let script = "mount --bind /dev/null /proc/uptime
        mount --bind /proc/driver /proc/driver
        mount -o remount,bind,ro /proc/driver
        mount -t tmpfs -o ro none /sys/kernel/mm";
    let Some(daemon) = daemon(script, place.path()).await else {
        return;
    };
    let code = "wc -c < /proc/uptime; ls -A /sys/kernel/mm | wc -l";
    assert_eq!(output_of(&daemon, place.path(), code).await, "0\n0");
    let mounts = output_of(&daemon, place.path(), "cat /proc/self/mountinfo").await;
    let (options, _) = mounted(&mounts, "/proc/driver").expect("/proc/driver is a mount");
    assert!(options.split(',').any(|option| option == "ro"), "{mounts}");
}

#[tokio::test]
async fn thermal_throttle_counters_are_masked_by_one_mount() {
    let place = tempfile::tempdir().unwrap();
    // Few test machines have these counters.
    let script = "mount -t tmpfs none /sys/devices/system/cpu
        for n in 0 1 2; do
            mkdir -p /sys/devices/system/cpu/cpu$n/thermal_throttle
            echo 7 > /sys/devices/system/cpu/cpu$n/thermal_throttle/count
        done";
    let Some(daemon) = daemon(script, place.path()).await else {
        return;
    };
    let code = "ls -A /sys/devices/system/cpu/cpu*/thermal_throttle | grep -c count || true";
    assert_eq!(output_of(&daemon, place.path(), code).await, "0");
    let mounts = output_of(&daemon, place.path(), "cat /proc/self/mountinfo").await;
    let covers: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains("/thermal_throttle "))
        .collect();
    assert_eq!(covers.len(), 3, "{mounts}");
    for cover in &covers {
        let path = cover.split(' ').nth(4).unwrap();
        let (options, _) = mounted(&mounts, path).unwrap();
        assert!(options.split(',').any(|option| option == "ro"), "{cover}");
    }
    // The device number of the file system.
    let devices: BTreeSet<_> = covers.iter().map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(devices.len(), 1, "{mounts}");
}

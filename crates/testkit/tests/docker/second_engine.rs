//! A Docker engine of the test's own, which it may stop, kill and freeze. The machine's engine serves
//! other tests and other people. The engine has a network namespace of its own as well: engines remove
//! each other's bridges and rules of the firewall. Its sandboxes can therefore not be reached, also not
//! by the server.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use osb_testkit::patience;

use super::stage::{IMAGE, docker};

const PAUSE: Duration = Duration::from_millis(50);

/// An engine whose containers outlive its restarts.
pub(super) struct SecondEngine {
    /// Its network namespace, which outlives restarts.
    network: NetworkNamespace,
    process: Child,
    /// Further arguments of its program.
    arguments: Vec<String>,
    /// Removed last.
    folder: tempfile::TempDir,
}

/// A network namespace, kept by a process that does nothing.
struct NetworkNamespace(Child);

impl NetworkNamespace {
    fn new() -> Self {
        // Ports are published on the loopback address.
        let script = "ip link set lo up && exec sleep infinity";
        let mut holder = Command::new("unshare");
        let holder = holder.args(["--net", "sh", "-c", script]).spawn();
        let new = Self(holder.unwrap());
        let name = format!("/proc/{}/comm", new.0.id());
        let begun = Instant::now();
        while fs::read_to_string(&name).unwrap_or_default().trim() != "sleep" {
            assert!(begun.elapsed() < patience(), "no network namespace");
            pause();
        }
        new
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl SecondEngine {
    /// Starts an engine with the image of the sandboxes. `None`, with a note, where this process may
    /// not.
    pub(super) fn start() -> Option<Self> {
        Self::start_with("faults of an engine are", &[])
    }

    /// Starts one with further arguments. `what` is not tested where this process may not.
    pub(super) fn start_with(what: &str, arguments: &[String]) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || Command::new("dockerd").arg("--version").output().is_err() {
            eprintln!("SKIPPED: {what} not tested, which needs root and dockerd");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let network = NetworkNamespace::new();
        let process = spawn(folder.path(), &network, arguments);
        let engine = Self {
            network,
            process,
            arguments: arguments.to_vec(),
            folder,
        };
        engine.wait_until_up();
        let archive = engine.folder.path().join("image.tar");
        let archive = archive.to_str().unwrap();
        docker(&["save", "--output", archive, IMAGE]);
        engine.docker(&["load", "--input", archive]);
        fs::remove_file(archive).unwrap();
        Some(engine)
    }

    /// Path of its socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// Runs the Docker command against this engine.
    pub(super) fn docker(&self, arguments: &[&str]) -> String {
        let host = format!("unix://{}", self.socket().display());
        docker(&[&["--host", &host], arguments].concat())
    }

    /// Sends the engine a signal.
    pub(super) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.unwrap().success(), "{signal}");
    }

    /// Ends the engine with a signal and starts it again.
    pub(super) fn restart(&mut self, signal: &str) {
        self.signal(signal);
        self.wait_until_ended();
        self.end_helper();
        self.process = spawn(self.folder.path(), &self.network, &self.arguments);
        self.wait_until_up();
    }

    /// Ends the helper that a killed engine leaves behind. A new engine would wait for it in vain where
    /// no init process reaps it.
    fn end_helper(&self) {
        let file = self.folder.path().join("run/containerd/containerd.pid");
        if let Ok(id) = fs::read_to_string(&file) {
            // It may have ended with its engine.
            let _ = Command::new("kill")
                .args(["-s", "KILL", id.trim()])
                .output();
            let _ = fs::remove_file(file);
        }
    }

    fn wait_until_up(&self) {
        let begun = Instant::now();
        while self.docker(&["info", "--format", "{{.ID}}"]).is_empty() {
            let log = fs::read_to_string(self.folder.path().join("engine.log"));
            assert!(begun.elapsed() < patience(), "{}", log.unwrap_or_default());
            pause();
        }
    }

    fn wait_until_ended(&mut self) {
        let begun = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            if begun.elapsed() > patience() {
                // Without it the test would wait for ever.
                let _ = self.process.kill();
            }
            pause();
        }
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.signal("CONT");
            let all = self.docker(&["ps", "--all", "--quiet"]);
            for container in all.lines() {
                self.docker(&["rm", "--force", "--volumes", container]);
            }
            self.signal("TERM");
            self.wait_until_ended();
        }
        self.end_helper();
        // A test that fails leaves containers whose engine does not answer.
        let folder = self.folder.path();
        for process in processes_with(folder) {
            let _ = Command::new("kill").args(["-s", "KILL", &process]).output();
        }
        for mount in mounts_below(folder) {
            let _ = Command::new("umount").args(["--lazy", &mount]).output();
        }
    }
}

/// Waits for a process or an engine, which announces nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "runs where blocking is allowed, also when the engine is dropped"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// Ids of processes whose command lines contain a folder, before those of their children.
fn processes_with(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let found = all.flatten().filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(folder)
    });
    let ids = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ids: Vec<String> = ids.filter(|id| id.parse::<u32>().is_ok()).collect();
    let children = ids.iter().flat_map(|id| {
        let file = format!("/proc/{id}/task/{id}/children");
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    ids.iter().cloned().chain(children).collect()
}

/// Mounts below a folder, the innermost first.
fn mounts_below(folder: &Path) -> Vec<String> {
    let all = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let places = all.lines().filter_map(|line| line.split(' ').nth(1));
    let mut below: Vec<String> = places
        .filter(|place| Path::new(place).starts_with(folder))
        .map(str::to_owned)
        .collect();
    below.sort_unstable();
    below.reverse();
    below
}

fn spawn(folder: &Path, network: &NetworkNamespace, arguments: &[String]) -> Child {
    let within = |name: &str| folder.join(name).display().to_string();
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("engine.log"))
        .unwrap();
    Command::new("nsenter")
        .args([&format!("--net={}", network.path()), "--", "dockerd"])
        .args(["--host", &format!("unix://{}", within("engine.sock"))])
        .args(["--data-root", &within("data")])
        .args(["--exec-root", &within("run")])
        .args(["--pidfile", &within("engine.pid")])
        .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"])
        .args(["--bridge", "none", "--live-restore"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

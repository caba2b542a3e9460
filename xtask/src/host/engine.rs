//! The Docker engine: installed, started and answering.

use std::{
    fs, io,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{Installer, Missing, has_systemd, is_root, require_all};
use crate::{
    process::{find_program, fresh_log, query, run},
    repo::state_dir,
    step::step,
    wait::until,
};

/// Longest time a fresh engine may take to answer.
const ENGINE_START: Duration = Duration::from_secs(60);

/// Where the engine listens unless `DOCKER_HOST` says otherwise.
const SOCKET: &str = "/var/run/docker.sock";

/// Where the engine and its helper keep their process ids.
const PID_FILES: [&str; 2] = [
    "/var/run/docker.pid",
    "/var/run/docker/containerd/containerd.pid",
];

/// Version of the engine that answers, if one does.
pub(crate) fn version() -> Option<String> {
    find_program("docker")?;
    query(Command::new("docker").args(["version", "--format", "{{.Server.Version}}"])).ok()
}

/// The reason why no engine answers, if [`ensure`] will not fix it.
pub(crate) fn missing(installer: &Installer) -> Option<Missing> {
    if version().is_some() {
        return None;
    }
    if !is_installed() {
        let half = find_program("dockerd").is_some();
        return installer.missing("Docker", &[if half { "docker-cli" } else { "docker.io" }]);
    }
    let Some(socket) = local_socket() else {
        return Some(Missing::new(
            "an answer from the Docker engine at DOCKER_HOST",
            "docker version   # shows the error",
        ));
    };
    if installer.may_install() {
        return None;
    }
    let refused = UnixStream::connect(socket)
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    Some(explain_silence(refused, has_systemd()))
}

/// The reason why an installed engine does not answer.
fn explain_silence(refused: bool, has_systemd: bool) -> Missing {
    const STOPPED: &str = "a running Docker engine";
    match (refused, has_systemd) {
        (true, _) => Missing::new(
            "permission to use the Docker engine",
            "sudo usermod -aG docker $USER   # then log in again",
        ),
        (false, true) => Missing::new(STOPPED, "sudo systemctl start docker"),
        (false, false) => Missing::new(STOPPED, "sudo dockerd   # in another terminal"),
    }
}

/// Ensures that an engine answers: installs and starts one when allowed.
pub(crate) fn ensure(installer: &Installer) -> Result<()> {
    if version().is_some() {
        return Ok(());
    }
    require_all([missing(installer)])?;
    if !is_installed() {
        installer.packages("Docker", &["docker.io"])?;
        // Newer Debian releases ship the command apart from the engine.
        installer.program("docker", &["docker-cli"])?;
        require_all([missing(installer)])?;
    }
    if version().is_some() {
        return Ok(());
    }
    step("start the Docker engine", start)
}

/// Whether the command is installed, and the engine too when it has to run on this machine.
fn is_installed() -> bool {
    find_program("docker").is_some()
        && (local_socket().is_none() || find_program("dockerd").is_some())
}

/// Socket of the engine on this machine; `None` when `DOCKER_HOST` names a remote engine.
pub(crate) fn local_socket() -> Option<String> {
    match std::env::var("DOCKER_HOST") {
        Ok(host) if !host.is_empty() => host.strip_prefix("unix://").map(str::to_owned),
        _ => Some(SOCKET.to_owned()),
    }
}

fn start() -> Result<()> {
    if has_systemd() && run(Command::new("systemctl").args(["start", "docker"])).is_ok() {
        return answers();
    }
    // No service manager, as in most containers: the engine gets a session of its own, and its log
    // and process id go to the state folder.
    let state = state_dir()?;
    let log = state.join("dockerd.log");
    let daemon = spawn_daemon(&log)?;
    fs::write(state.join("dockerd.pid"), daemon.to_string())?;
    answers().with_context(|| format!("see {}", log.display()))
}

fn spawn_daemon(log: &Path) -> Result<u32> {
    debug_assert!(is_root(), "the caller checked that xtask may install");
    for file in PID_FILES {
        forget_dead(Path::new(file))?;
    }
    let out = fresh_log(log)?;
    let child = Command::new("setsid")
        .arg("dockerd")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .context("cannot run dockerd")?;
    Ok(child.id())
}

/// Removes the PID file of an engine that was killed. A new engine refuses to start while any
/// process has that PID, even a zombie or an unrelated one.
fn forget_dead(file: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(file) else {
        return Ok(());
    };
    let stat = fs::read_to_string(format!("/proc/{}/stat", text.trim())).unwrap_or_default();
    if runs_an_engine(&stat) {
        return Ok(());
    }
    fs::remove_file(file).with_context(|| format!("cannot remove the stale {}", file.display()))
}

/// Whether a line of `/proc/PID/stat` is of a live engine process.
fn runs_an_engine(stat: &str) -> bool {
    let Some((before, after)) = stat.rsplit_once(')') else {
        return false;
    };
    let name = before.split_once('(').map_or("", |(_, name)| name);
    matches!(name, "dockerd" | "containerd") && !after.trim_start().starts_with('Z')
}

fn answers() -> Result<()> {
    if until(ENGINE_START, || version().is_some()) {
        Ok(())
    } else {
        bail!(
            "the Docker engine did not answer within {} s",
            ENGINE_START.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_depends_on_the_service_manager() {
        assert!(explain_silence(true, true).remedy.contains("usermod"));
        assert!(explain_silence(false, true).remedy.contains("systemctl"));
        assert!(!explain_silence(false, false).remedy.contains("systemctl"));
    }

    #[test]
    fn only_a_live_engine_keeps_its_pid_file() {
        assert!(runs_an_engine("77 (dockerd) S 1 77 77 0"));
        assert!(runs_an_engine("78 (containerd) R 77 78 78 0"));
        assert!(!runs_an_engine("77 (dockerd) Z 1 77 77 0"));
        assert!(!runs_an_engine("77 (bash) S 1 77 77 0"));
        assert!(!runs_an_engine(""));
    }
}

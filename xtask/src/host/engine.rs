//! The Docker engine: installed, started and answering.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{Installer, has_systemd, is_root};
use crate::{
    process::{ask, find_program, run},
    repo::state_dir,
    step::step,
    up::wait::until,
};

/// Longest time a fresh engine may take to answer.
const ENGINE_START: Duration = Duration::from_secs(60);

/// Where the engine and its helper keep their process ids.
const PID_FILES: [&str; 2] = [
    "/var/run/docker.pid",
    "/var/run/docker/containerd/containerd.pid",
];

/// Version of the engine that answers, if one does.
pub(crate) fn version() -> Option<String> {
    find_program("docker")?;
    ask(Command::new("docker").args(["version", "--format", "{{.Server.Version}}"])).ok()
}

/// Makes sure that an engine answers.
pub(crate) fn ensure(installer: &Installer) -> Result<()> {
    if version().is_some() {
        return Ok(());
    }
    if find_program("docker").is_none() || (engine_is_local() && find_program("dockerd").is_none())
    {
        installer.packages("Docker", &["docker.io"])?;
        // Newer Debian releases ship the command apart from the engine.
        installer.program("docker", &["docker-cli"])?;
    }
    if version().is_some() {
        return Ok(());
    }
    if !engine_is_local() {
        bail!("the Docker engine at DOCKER_HOST does not answer");
    }
    if !installer.may_install() {
        bail!(
            "no Docker engine answers (not running, or this user may not use it); run one of:\n  \
             sudo systemctl start docker\n  sudo usermod -aG docker $USER   # then log in again"
        );
    }
    step("start the Docker engine", start)
}

fn engine_is_local() -> bool {
    std::env::var("DOCKER_HOST").map_or(true, |host| host.is_empty() || host.starts_with("unix:"))
}

fn start() -> Result<()> {
    if has_systemd() && run(Command::new("systemctl").args(["start", "docker"])).is_ok() {
        return answers();
    }
    // No service manager runs here, as in most containers: the engine gets a session of its own,
    // and its log and process id lie with our state.
    let state = state_dir()?;
    let log = state.join("dockerd.log");
    let daemon = spawn_daemon(&log)?;
    fs::write(state.join("dockerd.pid"), daemon.to_string())?;
    answers().with_context(|| format!("see {}", log.display()))
}

fn spawn_daemon(log: &Path) -> Result<u32> {
    debug_assert!(is_root(), "the caller checked that we may install");
    for file in PID_FILES {
        forget_dead(Path::new(file))?;
    }
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let child = Command::new("setsid")
        .arg("dockerd")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .context("cannot run dockerd")?;
    Ok(child.id())
}

/// An engine that was killed leaves its process id behind, and the next one refuses to start as long
/// as a process by that number is there, be it a zombie or somebody else's.
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
    fn only_a_live_engine_keeps_its_process_id() {
        assert!(runs_an_engine("77 (dockerd) S 1 77 77 0"));
        assert!(runs_an_engine("78 (containerd) R 77 78 78 0"));
        assert!(!runs_an_engine("77 (dockerd) Z 1 77 77 0"));
        assert!(!runs_an_engine("77 (bash) S 1 77 77 0"));
        assert!(!runs_an_engine(""));
    }
}

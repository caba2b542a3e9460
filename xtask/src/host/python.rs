//! Python virtual environments: one per generation of the official SDK.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{Installer, Missing};
use crate::{
    process::{find_program, query, run},
    repo::Repo,
    step::{Stamp, step},
};

/// Debian packages that virtual environments need.
const PACKAGES: [&str; 2] = ["python3", "python3-venv"];

/// Python with `venv` as a missing prerequisite, unless it is installed or will be.
pub(super) fn missing(installer: &Installer) -> Option<Missing> {
    if has_venv() {
        return None;
    }
    installer.missing("Python with venv", &PACKAGES)
}

fn has_venv() -> bool {
    find_program("python3").is_some()
        && query(Command::new("python3").args(["-c", "import venv, ensurepip"])).is_ok()
}

/// Ensures that Python can make virtual environments.
pub(super) fn ensure_venv(installer: &Installer) -> Result<()> {
    match has_venv() {
        true => Ok(()),
        false => installer.packages("Python with venv", &PACKAGES),
    }
}

/// Ensures that the environment `end2end/.venv-<name>` has the packages of `requirements`, and
/// returns its interpreter.
pub(crate) fn environment(
    repo: &Repo,
    installer: &Installer,
    name: &str,
    requirements: &Path,
) -> Result<PathBuf> {
    ensure_venv(installer)?;
    let dir = repo.path(format!("end2end/.venv-{name}"));
    let python = dir.join("bin/python");
    let version = query(Command::new("python3").arg("--version"))?;
    let stamp = Stamp::new(
        &repo.stamps(),
        &format!("venv-{name}"),
        &[requirements],
        &version,
    )?;
    if stamp.is_fresh(&python) {
        return Ok(python);
    }
    step(
        &format!("install the Python packages of the environment {name}"),
        || {
            if dir.exists() {
                fs::remove_dir_all(&dir)?;
            }
            run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
            run(Command::new(&python)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "-r",
                ])
                .arg(requirements))?;
            stamp.save()
        },
    )?;
    Ok(python)
}

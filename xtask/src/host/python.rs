//! Python virtual environments: one per generation of the official SDK.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::Installer;
use crate::{
    process::{ask, find_program, run},
    repo::Repo,
    step::{Stamp, step},
};

/// The environment in `end2end/.venv-<name>` with the packages of `requirements`; its interpreter.
pub(crate) fn environment(
    repo: &Repo,
    installer: &Installer,
    name: &str,
    requirements: &Path,
) -> Result<PathBuf> {
    if find_program("python3").is_none()
        || ask(Command::new("python3").args(["-c", "import venv, ensurepip"])).is_err()
    {
        installer.packages("Python with venv", &["python3", "python3-venv"])?;
    }
    let dir = repo.path(format!("end2end/.venv-{name}"));
    let python = dir.join("bin/python");
    let version = ask(Command::new("python3").arg("--version"))?;
    let stamp = Stamp::new(
        &repo.stamps(),
        &format!("venv-{name}"),
        &[requirements],
        &version,
    )?;
    if stamp.fresh(&python) {
        return Ok(python);
    }
    step(
        &format!("pip: packages of {}", requirements.display()),
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
            stamp.keep()
        },
    )?;
    Ok(python)
}

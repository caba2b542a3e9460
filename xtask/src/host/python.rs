//! Python virtual environments: one per generation of the official SDK, and for each agent framework.

use std::{
    env, fs,
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

/// The interpreter of the distribution.
pub(crate) const PYTHON: &str = "python3";
/// Names of newer ones; a distribution has at most one of them.
const NEWER: [&str; 3] = ["python3.12", "python3.13", "python3.14"];
/// Succeeds in Python 3.12 or newer that can make virtual environments.
const IS_NEWER: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))";

/// Python with `venv` as a missing prerequisite, unless it is installed or will be.
pub(super) fn missing(installer: &Installer) -> Option<Missing> {
    if has_venv() {
        return None;
    }
    installer.missing("Python with venv", &PACKAGES)
}

fn has_venv() -> bool {
    find_program(PYTHON).is_some()
        && query(Command::new(PYTHON).args(["-c", "import venv, ensurepip"])).is_ok()
}

/// An interpreter of Python 3.12 or newer, on `PATH` or among pyenv's; [`PYTHON`] if there is none.
pub(crate) fn newer() -> PathBuf {
    let on_path = [PYTHON].into_iter().chain(NEWER).filter_map(find_program);
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
    on_path
        .chain(root.map(|root| of_pyenv(&root)).unwrap_or_default())
        // A program of pyenv on `PATH` fails where its version is not selected.
        .find(|program| query(Command::new(program).args(["-c", IS_NEWER])).is_ok())
        .unwrap_or_else(|| PathBuf::from(PYTHON))
}

/// Interpreters of [`NEWER`] that pyenv has installed, in the order of their versions.
fn of_pyenv(root: &Path) -> Vec<PathBuf> {
    let versions = fs::read_dir(root.join("versions")).into_iter().flatten();
    let mut found: Vec<_> = versions
        .filter_map(Result::ok)
        .flat_map(|version| NEWER.map(|name| version.path().join("bin").join(name)))
        .filter(|program| program.exists())
        .collect();
    found.sort();
    found
}

/// Ensures that Python can make virtual environments.
pub(super) fn ensure_venv(installer: &Installer) -> Result<()> {
    match has_venv() {
        true => Ok(()),
        false => installer.packages("Python with venv", &PACKAGES),
    }
}

/// Ensures that the environment `end2end/.venv-<name>` of the interpreter `base` has the packages of
/// `requirements`, and returns its own interpreter.
pub(crate) fn environment(
    repo: &Repo,
    installer: &Installer,
    name: &str,
    base: &Path,
    requirements: &Path,
) -> Result<PathBuf> {
    ensure_venv(installer)?;
    let dir = repo.path(format!("end2end/.venv-{name}"));
    let python = dir.join("bin/python");
    let version = query(Command::new(base).arg("--version"))?;
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
            run(Command::new(base).args(["-m", "venv"]).arg(&dir))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_interpreters_of_pyenv_are_found_by_their_names() {
        let root = env::temp_dir().join(format!("xtask-pyenv-{}", std::process::id()));
        assert_eq!(of_pyenv(&root), Vec::<PathBuf>::new());
        let programs = ["3.13.0/bin/python3.13", "3.12.1/bin/python3.12"];
        for program in programs.into_iter().chain(["3.8.18/bin/python3.8"]) {
            let program = root.join("versions").join(program);
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::write(program, "").unwrap();
        }
        let [newest, oldest] = programs.map(|program| root.join("versions").join(program));
        assert_eq!(of_pyenv(&root), [oldest, newest]);
        fs::remove_dir_all(&root).unwrap();
    }
}

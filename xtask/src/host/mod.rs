//! What this machine must have, and how it gets there: installed when we may, told when not.

mod apt;
pub(crate) mod engine;
pub(crate) mod node;
pub(crate) mod python;
pub(crate) mod wasm;

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::find_program;

/// Installs packages when this machine and the caller allow it.
pub(crate) struct Installer {
    wanted: bool,
}

impl Installer {
    /// `wanted` is what the caller asked for; being root on an apt system is still needed.
    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted }
    }

    /// Whether missing packages will be installed rather than asked for.
    pub(crate) fn may_install(&self) -> bool {
        self.wanted && is_root() && apt::present()
    }

    /// Installs apt packages for `purpose`, or fails with the exact command to run.
    pub(crate) fn packages(&self, purpose: &str, packages: &[&str]) -> Result<()> {
        if self.may_install() {
            return apt::install(packages);
        }
        let list = packages.join(" ");
        if apt::present() {
            bail!(
                "{purpose} is missing; run:\n  sudo apt-get install --no-install-recommends {list}"
            )
        }
        bail!("{purpose} is missing; install what Debian calls: {list}")
    }

    /// Makes sure that a program is on the path.
    pub(crate) fn program(&self, program: &str, packages: &[&str]) -> Result<()> {
        if find_program(program).is_some() {
            return Ok(());
        }
        self.packages(program, packages)
    }
}

/// Whether this process may change the system.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether systemd runs this machine.
pub(crate) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

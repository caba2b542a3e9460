//! Builds of execd, of the egress sidecar, of the console's site, and of the server, which embeds the
//! site in a release.

mod arm64;
mod execd;
pub(crate) mod native;
mod publish;
mod server;
mod site;
pub(crate) mod wasm;
mod wasm_sections;

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{host::Installer, process::query, repo::Repo, step::in_parallel};

/// Variable with which the build script of a release of the server fails, so that only what it depends on
/// is built.
pub(crate) const ONLY_DEPENDENCIES: &str = "OSB_ONLY_DEPENDENCIES";

/// How a build is optimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build, for tests.
    Dev,
    /// Optimised, for releases.
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

    /// Applies the profile to a build of execd or of the egress sidecar. They run in or beside each
    /// sandbox, and have a release profile of their own (docs/adr/0003). Returns the output folder.
    fn apply_static(self, repo: &Repo, cargo: &mut Command) -> &'static str {
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

/// Cargo profile of released servers.
const SERVER_RELEASE: &str = "server-release";
/// Cargo profile of released execds and egress sidecars.
const EXECD_RELEASE: &str = "execd-release";

/// Passes the commit to the build. Only for releases: a dev build would run again after each commit.
fn stamp_commit(repo: &Repo, cargo: &mut Command) {
    if let Some(commit) = commit(repo) {
        cargo.env("OSB_BUILD_COMMIT", commit);
    }
}

/// Builds everything into `dist`. Unchanged parts are not built again.
pub(crate) fn all(repo: &Repo, installer: &Installer, profile: Profile, dist: &Path) -> Result<()> {
    in_parallel(
        || match profile {
            Profile::Dev => for_tests(repo, dist),
            Profile::Release => {
                execd::build(repo, profile, dist)?;
                sidecar(repo, profile, dist)?;
                server::dependencies(repo)
            }
        },
        || site::build(repo, installer),
    )?;
    match profile {
        Profile::Dev => Ok(()),
        Profile::Release => server::build(repo, profile, dist),
    }
}

/// Builds the programs for tests into `dist`. This server reads the site when it runs.
pub(crate) fn for_tests(repo: &Repo, dist: &Path) -> Result<()> {
    execd::build(repo, Profile::Dev, dist)?;
    sidecar(repo, Profile::Dev, dist)?;
    server::build(repo, Profile::Dev, dist)
}

/// Builds everything into `dist` as static binaries, for machines with another C library. The server
/// is built apart from that of [`all`].
pub(crate) fn all_static(repo: &Repo, installer: &Installer, dist: &Path) -> Result<()> {
    in_parallel(
        || {
            execd::build(repo, Profile::Release, dist)?;
            sidecar(repo, Profile::Release, dist)
        },
        || site::build(repo, installer),
    )?;
    server::build_static(repo, dist)
}

/// Builds execd alone.
pub(crate) fn daemon(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    execd::build(repo, profile, dist)
}

/// Builds the egress sidecar alone.
pub(crate) fn sidecar(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    native::build(repo, profile, dist, "osb-egress", "egress")
}

/// Builds the programs for 64-bit ARM into `dist`, as [`all_static`] does for this machine, whose site
/// they share.
pub(crate) fn arm64(repo: &Repo, installer: &Installer, dist: &Path) -> Result<()> {
    arm64::build(repo, installer, dist)
}

/// Short hash of the commit, with `-dirty` when tracked files differ from it.
pub(crate) fn commit(repo: &Repo) -> Option<String> {
    let git = |arguments: &[&str]| {
        query(
            Command::new("git")
                .arg("-C")
                .arg(repo.root())
                .args(arguments),
        )
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

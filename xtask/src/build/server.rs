//! The server, which carries the site that was built before it.

use std::{path::Path, process::Command};

use anyhow::Result;

use super::{Profile, publish::publish};
use crate::{
    process::{attempt, cargo, run},
    repo::Repo,
    step::step,
};

/// Compiles what the server is made of while its site is still being built for the first time. The
/// end of that build keeps one processor busy, and this the others.
pub(super) fn dependencies(repo: &Repo, profile: Profile) -> Result<()> {
    if repo.site().join("pkg").exists() {
        return Ok(());
    }
    step("build what the server is made of", || {
        let mut cargo = command(repo, profile);
        // The build script of the server itself refuses; everything before it is built.
        attempt(cargo.arg("--keep-going").env("OSB_ONLY_DEPENDENCIES", "1"))
    })
}

/// Builds the server into `dist/opensandbox-server`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    step("build the server with its console", || {
        let mut cargo = command(repo, profile);
        run(&mut cargo)?;
        let built = repo
            .cargo_target()
            .join(profile.folder())
            .join("opensandbox-server");
        publish(&built, &dist.join("opensandbox-server"))
    })
}

fn command(repo: &Repo, profile: Profile) -> Command {
    let mut cargo = cargo();
    cargo.arg("build").current_dir(repo.root());
    match profile {
        Profile::Release => cargo.args(["--package", "osb-server"]),
        // With the features of the whole workspace, as `cargo test` has them: one build of the
        // dependencies serves both.
        Profile::Dev => cargo.args(["--bin", "opensandbox-server"]),
    };
    profile.apply(repo, &mut cargo);
    cargo
}

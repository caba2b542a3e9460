//! The server, which embeds the site that was built before it.

use std::{path::Path, process::Command};

use anyhow::Result;

use super::{Profile, publish::publish};
use crate::{
    process::{cargo, run, run_ignoring_failure},
    repo::Repo,
    step::step,
};

/// Compiles the server's dependencies while its site is built for the first time. The end of the
/// site's build uses one processor; this uses the others.
pub(super) fn dependencies(repo: &Repo, profile: Profile) -> Result<()> {
    if repo.site().join("pkg").exists() {
        return Ok(());
    }
    step("build the server's dependencies", || {
        let mut cargo = command(repo, profile);
        // The server's own build script fails with this variable; its dependencies are built.
        run_ignoring_failure(cargo.arg("--keep-going").env("OSB_ONLY_DEPENDENCIES", "1"))
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
        // With the features of the whole workspace, as in `cargo test`, so that both share one
        // build of the dependencies.
        Profile::Dev => cargo.args(["--bin", "opensandbox-server"]),
    };
    profile.apply(repo, &mut cargo);
    cargo
}

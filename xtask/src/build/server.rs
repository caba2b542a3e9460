//! The server, which carries the site that was built before it.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use super::{Profile, publish::publish};
use crate::{
    process::{Line, cargo, run, watch},
    repo::Repo,
    step::step,
};

/// Longest time for what the server is made of.
const DEPENDENCIES: Duration = Duration::from_secs(3600);

/// Compiles what the server is made of while its site is still being built for the first time. The
/// end of that build keeps one processor busy, and this the others.
pub(super) fn dependencies(repo: &Repo, profile: Profile) -> Result<()> {
    if repo.site().join("pkg").exists() {
        return Ok(());
    }
    step("server: build what it is made of", || {
        let mut cargo = command(repo, profile);
        // The build script of the server itself refuses; everything before it is built.
        cargo.arg("--keep-going").env("OSB_ONLY_DEPENDENCIES", "1");
        watch(&mut cargo, DEPENDENCIES, &mut |line| {
            if let Line::Err(text) = line
                && text.trim_start().starts_with("Compiling")
            {
                eprintln!("{text}");
            }
        })
        .map(drop)
    })
}

/// Builds the server into `dist/opensandbox-server`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    step("server: build with the console", || {
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

//! The server. A release embeds the site that was built before it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{ONLY_DEPENDENCIES, Profile, native, publish::publish};
use crate::{
    process::{cargo, run, run_ignoring_failure},
    repo::Repo,
    step::step,
};

/// Compiles the dependencies of a release of the server while its site is built for the first time. The
/// end of the site's build uses one processor; this uses the others.
pub(super) fn dependencies(repo: &Repo) -> Result<()> {
    if repo.site().join("pkg").exists() {
        return Ok(());
    }
    step("build the server's dependencies", || {
        let mut cargo = command(repo, Profile::Release);
        run_ignoring_failure(cargo.arg("--keep-going").env(ONLY_DEPENDENCIES, "1"))
    })
}

/// Builds the server into `dist/opensandbox-server`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    step("build the server", || {
        let mut cargo = command(repo, profile);
        run(&mut cargo)?;
        let built = repo
            .cargo_target()
            .join(profile.folder())
            .join("opensandbox-server");
        publish(&built, &dist.join("opensandbox-server"))
    })
}

/// Builds the server as one static binary into `dist/opensandbox-server`, for other machines.
pub(super) fn build_static(repo: &Repo, dist: &Path) -> Result<()> {
    const PROFILE: Profile = Profile::Release;
    step("build the static server", || {
        let target = native::target()?;
        let mut cargo = command(repo, PROFILE);
        // The variable replaces the flags of the configuration.
        let flags = format!("{} {}", configured_flags(repo)?, native::flags());
        cargo.args(["--target", target]).env("RUSTFLAGS", flags);
        run(&mut cargo)?;
        let folder = repo.cargo_target().join(target).join(PROFILE.folder());
        let built = folder.join("opensandbox-server");
        publish(&built, &dist.join("opensandbox-server"))
    })
}

#[derive(Deserialize)]
struct CargoConfig {
    build: BuildTable,
}

#[derive(Deserialize)]
struct BuildTable {
    rustflags: Vec<String>,
}

/// Flags of every build of this repository, on which the pages and the server must agree.
pub(super) fn configured_flags(repo: &Repo) -> Result<String> {
    let file = repo.path(".cargo/config.toml");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let config: CargoConfig =
        toml::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))?;
    Ok(config.build.rustflags.join(" "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_server_is_built_with_the_flags_of_its_pages() {
        let flags = configured_flags(&Repo::find().unwrap()).unwrap();
        assert_eq!(flags, "--cfg erase_components");
    }
}

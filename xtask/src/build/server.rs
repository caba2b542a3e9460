//! The server, which carries the site that was built before it.

use std::path::Path;

use anyhow::Result;

use super::{Profile, publish::publish};
use crate::{
    process::{cargo, run},
    repo::Repo,
    step::step,
};

/// Builds the server into `dist/opensandbox-server`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    step("server: build with the console", || {
        let mut cargo = cargo();
        cargo.arg("build").current_dir(repo.root());
        match profile {
            Profile::Release => cargo.args(["--package", "osb-server"]),
            // With the features of the whole workspace, as `cargo test` has them: one build of the
            // dependencies serves both.
            Profile::Dev => cargo.args(["--bin", "opensandbox-server"]),
        };
        profile.apply(repo, &mut cargo);
        run(&mut cargo)?;
        let built = repo
            .cargo_target()
            .join(profile.folder())
            .join("opensandbox-server");
        publish(&built, &dist.join("opensandbox-server"))
    })
}

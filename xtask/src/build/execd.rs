//! execd: one static binary, because it runs in images that have nothing else.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Profile, publish::publish};
use crate::{
    process::{cargo, run},
    repo::Repo,
    step::step,
};

/// Builds execd into `dist/execd`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    let target = match std::env::consts::ARCH {
        "x86_64" => "x86_64-unknown-linux-gnu",
        "aarch64" => "aarch64-unknown-linux-gnu",
        other => bail!("execd is not built on {other} yet"),
    };
    step("build execd", || {
        let mut cargo = cargo();
        cargo
            .args(["build", "--package", "osb-execd", "--target", target])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .current_dir(repo.root());
        let folder = profile.apply_execd(repo, &mut cargo);
        run(&mut cargo)?;
        let built = repo.cargo_target().join(target).join(folder).join("execd");
        publish(&built, &dist.join("execd"))
    })
}

//! execd: one static binary, because it runs in images that may contain nothing else.

use std::path::Path;

use anyhow::Result;

use super::{
    Profile,
    native::{self, STATIC},
    publish::publish,
};
use crate::{
    host::{
        Installer,
        toolchain::{ARM64, Toolchain},
    },
    process::run,
    repo::Repo,
    step::step,
};

/// Builds execd for 64-bit ARM into `dist/execd-arm64`, on any machine.
pub(super) fn arm64(
    repo: &Repo,
    installer: &Installer,
    profile: Profile,
    dist: &Path,
) -> Result<()> {
    let toolchain = Toolchain::ensure(ARM64, installer)?;
    let name = format!("build execd for arm64 with {}", toolchain.name());
    step(&name, || {
        // A folder of its own, because another compiler may build it.
        let folder = repo.cargo_target().join("arm64");
        let mut cargo = toolchain.cargo(ARM64);
        cargo
            .args(["build", "--package", "osb-execd", "--bin", "execd"])
            .args(["--target", ARM64.target, "--target-dir"])
            .arg(&folder)
            .env("RUSTFLAGS", STATIC)
            .current_dir(repo.root());
        let profile = profile.apply_static(repo, &mut cargo);
        run(&mut cargo)?;
        let built = folder.join(ARM64.target).join(profile).join("execd");
        publish(&built, &dist.join("execd-arm64"))
    })
}

/// Builds execd into `dist/execd`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    native::build(repo, profile, dist, "osb-execd", "execd")
}

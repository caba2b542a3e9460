//! execd: one static binary, because it runs in images that have nothing else.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Profile, publish::publish};
use crate::{
    host::{
        Installer,
        toolchain::{ARM64, Toolchain},
    },
    process::{cargo, run},
    repo::Repo,
    step::step,
};

const STATIC: &str = "-C target-feature=+crt-static";

/// Builds execd for 64-bit ARM into `dist/execd-arm64`, whatever this machine is.
pub(super) fn arm64(
    repo: &Repo,
    installer: &Installer,
    profile: Profile,
    dist: &Path,
) -> Result<()> {
    let toolchain = Toolchain::ensure(ARM64, installer)?;
    let name = format!("build execd for arm64 with {}", toolchain.name());
    step(&name, || {
        // Of its own: another compiler may build it.
        let folder = repo.cargo_target().join("arm64");
        let mut cargo = toolchain.cargo(ARM64);
        cargo
            .args(["build", "--package", "osb-execd", "--bin", "execd"])
            .args(["--target", ARM64.target, "--target-dir"])
            .arg(&folder)
            .env("RUSTFLAGS", STATIC)
            .current_dir(repo.root());
        let profile = profile.apply_execd(repo, &mut cargo);
        run(&mut cargo)?;
        let built = folder.join(ARM64.target).join(profile).join("execd");
        publish(&built, &dist.join("execd-arm64"))
    })
}

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
            .env("RUSTFLAGS", STATIC)
            .current_dir(repo.root());
        let folder = profile.apply_execd(repo, &mut cargo);
        run(&mut cargo)?;
        let built = repo.cargo_target().join(target).join(folder).join("execd");
        publish(&built, &dist.join("execd"))
    })
}

//! execd: one static binary, because it runs in images that may contain nothing else.

use std::{path::Path, process::Command};

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
/// Packs relocations to a thirtieth of their size; the start code reads all of them.
const PACKED: &str = "-C link-arg=-Wl,-z,pack-relative-relocs";
/// First GNU C library whose static start code reads packed relocations.
const READS_PACKED: (u32, u32) = (2, 36);

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
            .env("RUSTFLAGS", flags())
            .current_dir(repo.root());
        let folder = profile.apply_execd(repo, &mut cargo);
        run(&mut cargo)?;
        let built = repo.cargo_target().join(target).join(folder).join("execd");
        publish(&built, &dist.join("execd"))
    })
}

fn flags() -> String {
    let mut getconf = Command::new("getconf");
    let version = getconf
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()
        .and_then(|output| parse_glibc_version(&String::from_utf8_lossy(&output.stdout)));
    if version >= Some(READS_PACKED) {
        format!("{STATIC} {PACKED}")
    } else {
        STATIC.to_owned()
    }
}

/// Parses `glibc 2.36`.
fn parse_glibc_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_versions_are_parsed_and_ordered() {
        assert_eq!(parse_glibc_version("glibc 2.36\n"), Some((2, 36)));
        assert!(parse_glibc_version("glibc 3.1") >= Some(READS_PACKED));
        assert!(parse_glibc_version("glibc 2.4") < Some(READS_PACKED));
        assert!(parse_glibc_version("") < Some(READS_PACKED));
    }
}

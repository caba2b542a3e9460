//! Programs for this machine as one static binary each: they run in images that may contain nothing
//! else, or another C library.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use super::{Profile, publish::publish};
use crate::{
    process::{cargo, run},
    repo::Repo,
    step::step,
};

/// Links the C library into the binary.
pub(super) const STATIC: &str = "-C target-feature=+crt-static";
/// Packs relocations to a thirtieth of their size; the start code reads all of them.
const PACKED: &str = "-C link-arg=-Wl,-z,pack-relative-relocs";
/// First GNU C library whose static start code reads packed relocations.
const READS_PACKED: (u32, u32) = (2, 36);

/// Builds a program into `dist/<program>`.
pub(super) fn build(
    repo: &Repo,
    profile: Profile,
    dist: &Path,
    package: &str,
    program: &str,
) -> Result<()> {
    let target = target()?;
    step(&format!("build {program}"), || {
        let mut cargo = cargo();
        cargo
            .args(["build", "--package", package, "--bin", program])
            .args(["--target", target])
            .env("RUSTFLAGS", flags())
            .current_dir(repo.root());
        let folder = profile.apply_static(repo, &mut cargo);
        run(&mut cargo)?;
        let built = repo.cargo_target().join(target).join(folder).join(program);
        publish(&built, &dist.join(program))
    })
}

/// This machine, as a target: a static build has to name it, so that its flags do not apply to build
/// scripts and macros.
pub(crate) fn target() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("x86_64-unknown-linux-gnu"),
        "aarch64" => Ok("aarch64-unknown-linux-gnu"),
        other => bail!("static programs are not built on {other} yet"),
    }
}

/// Flags of the compiler for a static program.
pub(super) fn flags() -> String {
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

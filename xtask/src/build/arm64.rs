//! The programs for 64-bit ARM, built on any machine.

use std::path::Path;

use anyhow::Result;

use super::{Profile, native::STATIC, publish::publish, server};
use crate::{
    host::{
        Installer,
        toolchain::{ARM64, Toolchain},
    },
    process::run,
    repo::Repo,
    step::step,
};

/// Package and name of each program, and whether it is the server, which has a profile and flags of its
/// own.
const PROGRAMS: [(&str, &str, bool); 3] = [
    ("osb-execd", "execd", false),
    ("osb-egress", "egress", false),
    ("osb-server", "opensandbox-server", true),
];

/// Builds the programs into `dist` as static binaries for releases. The site is built before.
pub(super) fn build(repo: &Repo, installer: &Installer, dist: &Path) -> Result<()> {
    const PROFILE: Profile = Profile::Release;
    let toolchain = Toolchain::ensure(ARM64, installer)?;
    // A folder of its own, because another compiler may build it.
    let folder = repo.cargo_target().join("arm64");
    for (package, program, is_server) in PROGRAMS {
        let name = format!("build {program} for arm64 with {}", toolchain.name());
        step(&name, || {
            let mut cargo = toolchain.cargo(ARM64);
            cargo
                .args(["build", "--package", package, "--bin", program])
                .args(["--target", ARM64.target, "--target-dir"])
                .arg(&folder)
                .current_dir(repo.root());
            let (flags, output) = match is_server {
                true => {
                    PROFILE.apply(repo, &mut cargo);
                    // The variable replaces the flags of the configuration.
                    let flags = format!("{} {STATIC}", server::configured_flags(repo)?);
                    (flags, PROFILE.folder())
                }
                false => (STATIC.to_owned(), PROFILE.apply_static(repo, &mut cargo)),
            };
            run(cargo.env("RUSTFLAGS", flags))?;
            let built = folder.join(ARM64.target).join(output).join(program);
            publish(&built, &dist.join(program))
        })?;
    }
    Ok(())
}

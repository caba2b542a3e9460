//! Rust toolchains for cross-compilation.
//!
//! Normally the installed toolchain with an added target. Where rustup cannot fetch the target,
//! Debian's `rustc-web` builds the standard library from `rust-web-src`.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use super::{Installer, Missing};
use crate::{
    process::{cargo, find_program, query, run, without_xtask_variables},
    step::step,
};

/// A platform to build for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// Rust's target triple.
    pub(crate) target: &'static str,
    /// Name in messages.
    name: &'static str,
    /// Crates of its standard library that Debian's toolchain builds.
    std: &'static str,
    /// Environment variable and value that set cargo's linker.
    linker_variable: &'static str,
    linker: &'static str,
    /// Whether the installed toolchain brings a linker for it.
    own_linker: bool,
    /// Debian packages with a linker for it.
    packages: &'static [&'static str],
}

/// Browsers.
pub(crate) const WASM: Platform = Platform {
    target: "wasm32-unknown-unknown",
    name: "wasm",
    std: "std,panic_abort",
    linker_variable: "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER",
    linker: "/usr/bin/wasm-ld-19",
    own_linker: true,
    packages: &["lld-19"],
};

/// Linux on 64-bit ARM.
pub(crate) const ARM64: Platform = Platform {
    target: "aarch64-unknown-linux-gnu",
    name: "arm64",
    std: "std,panic_unwind",
    linker_variable: "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
    linker: "/usr/bin/aarch64-linux-gnu-gcc",
    own_linker: false,
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
};

/// Debian's toolchain for browsers, whose compiler knows other targets as well.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library";

/// Which compiler builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The toolchain that built xtask, which has the target.
    Own,
    /// Debian's toolchain, which builds the standard library as part of the build.
    Debian,
}

impl Toolchain {
    /// Returns a toolchain for the platform; installs one when none is complete.
    pub(crate) fn ensure(platform: Platform, installer: &Installer) -> Result<Self> {
        let toolchain = Self::compiler(platform, installer)?;
        if toolchain == Self::Own && !platform.own_linker && !linker(platform) {
            installer.packages(&purpose("a linker", platform), platform.packages)?;
        }
        Ok(toolchain)
    }

    fn compiler(platform: Platform, installer: &Installer) -> Result<Self> {
        if own_has_target(platform) {
            return Ok(Self::Own);
        }
        if debian_complete(platform) {
            return Ok(Self::Debian);
        }
        let add = format!("add the {} target with rustup", platform.name);
        if installer.wanted && rustup_may_fetch() && step(&add, || add_target(platform)).is_ok() {
            return Ok(Self::Own);
        }
        let purpose = purpose("a Rust toolchain", platform);
        installer.packages(&purpose, &debian_packages(platform))?;
        if debian_complete(platform) {
            return Ok(Self::Debian);
        }
        bail!(
            "Debian's Rust toolchain for {} was installed but is not complete",
            platform.name
        )
    }

    /// `cargo` with the environment that a build for the platform needs.
    pub(crate) fn cargo(self, platform: Platform) -> Command {
        match self {
            Self::Own => {
                let mut cargo = cargo();
                if !platform.own_linker {
                    cargo.env(platform.linker_variable, platform.linker);
                }
                cargo
            }
            Self::Debian => {
                let mut cargo = without_xtask_variables(Command::new("/usr/bin/cargo"));
                cargo
                    .env("PATH", "/usr/bin:/bin")
                    .env("RUSTC", "/usr/bin/rustc")
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_UNSTABLE_BUILD_STD", platform.std)
                    .env(platform.linker_variable, platform.linker)
                    // rustup sets these for its own toolchain.
                    .env_remove("RUSTUP_TOOLCHAIN")
                    .env_remove("RUSTDOC")
                    .env_remove("CARGO");
                cargo
            }
        }
    }

    /// Name in messages and stamps.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "the installed toolchain",
            Self::Debian => "Debian's rustc-web",
        }
    }
}

fn purpose(what: &str, platform: Platform) -> String {
    format!("{what} for {}", platform.name)
}

fn debian_packages(platform: Platform) -> Vec<&'static str> {
    let both = DEBIAN_PACKAGES.iter().chain(platform.packages);
    both.copied().collect()
}

/// A toolchain as a missing prerequisite, unless one is installed or xtask will try to install it.
pub(super) fn missing(platform: Platform, installer: &Installer) -> Option<Missing> {
    let may_come = installer.may_install() || (installer.wanted && rustup_may_fetch());
    if own_has_target(platform) || debian_complete(platform) || may_come {
        return None;
    }
    if rustup_may_fetch() {
        let remedy = format!("rustup target add {}", platform.target);
        let what = format!("the {} target of Rust", platform.name);
        return Some(Missing::new(what, remedy));
    }
    let packages = debian_packages(platform);
    installer.missing(&purpose("a Rust toolchain", platform), &packages)
}

fn own_has_target(platform: Platform) -> bool {
    let question = ["--print", "target-libdir", "--target", platform.target];
    query(Command::new("rustc").args(question)).is_ok_and(|dir| Path::new(&dir).is_dir())
}

fn linker(platform: Platform) -> bool {
    Path::new(platform.linker).exists()
}

fn debian_complete(platform: Platform) -> bool {
    let parts = ["/usr/bin/rustc", "/usr/bin/cargo", DEBIAN_SOURCE];
    parts.iter().all(|path| Path::new(path).exists()) && linker(platform)
}

/// Whether rustup may install targets. `RUSTUP_AUTO_INSTALL=0` means that the operator manages the
/// toolchains of this machine.
fn rustup_may_fetch() -> bool {
    find_program("rustup").is_some()
        && std::env::var("RUSTUP_AUTO_INSTALL").map_or(true, |value| value != "0")
}

fn add_target(platform: Platform) -> Result<()> {
    run(Command::new("rustup").args(["target", "add", platform.target]))
}

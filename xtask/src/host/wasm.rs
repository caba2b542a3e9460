//! A Rust toolchain that builds for the browser.
//!
//! Normally the installed one, once it has the wasm target. Where rustup cannot fetch the target,
//! Debian's `rustc-web` builds the standard library from `rust-web-src` itself.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use super::{Installer, Lack};
use crate::{
    process::{ask, cargo, find_program, run, without_our_names},
    step::step,
};

/// The browser's target.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's toolchain for browsers.
const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld-19"];
const DEBIAN_LINKER: &str = "/usr/bin/wasm-ld-19";
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library";

/// Which compiler builds the console's wasm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The one that built us, which has the target.
    Own,
    /// Debian's, with its own standard library built on the way.
    Debian,
}

impl Toolchain {
    /// The toolchain at hand, installed when missing.
    pub(crate) fn ensure(installer: &Installer) -> Result<Self> {
        if own_has_target() {
            return Ok(Self::Own);
        }
        if debian_complete() {
            return Ok(Self::Debian);
        }
        if installer.wanted
            && rustup_may_fetch()
            && step("add the wasm target with rustup", add_target).is_ok()
        {
            return Ok(Self::Own);
        }
        installer.packages("a Rust toolchain for wasm", &DEBIAN_PACKAGES)?;
        if debian_complete() {
            return Ok(Self::Debian);
        }
        bail!("Debian's Rust toolchain for wasm was installed but is not complete")
    }

    /// `cargo` with everything in its environment that the wasm build needs.
    pub(crate) fn cargo(self) -> Command {
        match self {
            Self::Own => cargo(),
            Self::Debian => {
                let mut cargo = without_our_names(Command::new("/usr/bin/cargo"));
                cargo
                    .env("PATH", "/usr/bin:/bin")
                    .env("RUSTC", "/usr/bin/rustc")
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort")
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", DEBIAN_LINKER)
                    // rustup leaves these for its own toolchain.
                    .env_remove("RUSTUP_TOOLCHAIN")
                    .env_remove("RUSTDOC")
                    .env_remove("CARGO");
                cargo
            }
        }
    }

    /// For the reader and for stamps.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "the installed toolchain",
            Self::Debian => "Debian's rustc-web",
        }
    }
}

/// A toolchain for wasm, unless one is there or will be tried to get.
pub(super) fn lack(installer: &Installer) -> Option<Lack> {
    let may_come = installer.may_install() || (installer.wanted && rustup_may_fetch());
    if own_has_target() || debian_complete() || may_come {
        return None;
    }
    if rustup_may_fetch() {
        let remedy = format!("rustup target add {TARGET}");
        return Some(Lack::new("the wasm target of Rust", remedy));
    }
    installer.lack("a Rust toolchain for wasm", &DEBIAN_PACKAGES)
}

fn own_has_target() -> bool {
    ask(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))
        .is_ok_and(|dir| Path::new(&dir).is_dir())
}

fn debian_complete() -> bool {
    [
        "/usr/bin/rustc",
        "/usr/bin/cargo",
        DEBIAN_LINKER,
        DEBIAN_SOURCE,
    ]
    .iter()
    .all(|path| Path::new(path).exists())
}

/// `RUSTUP_AUTO_INSTALL=0` says that toolchains on this machine are managed by somebody else.
fn rustup_may_fetch() -> bool {
    find_program("rustup").is_some()
        && std::env::var("RUSTUP_AUTO_INSTALL").map_or(true, |value| value != "0")
}

fn add_target() -> Result<()> {
    run(Command::new("rustup").args(["target", "add", TARGET]))
}

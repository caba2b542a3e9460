//! apt, on Debian and Ubuntu.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Result;

use crate::{
    process::{find_program, run},
    step::step,
};

/// Package lists are refreshed once per run.
static REFRESHED: AtomicBool = AtomicBool::new(false);

/// Whether this is an apt system.
pub(super) fn present() -> bool {
    find_program("apt-get").is_some()
}

/// Installs packages without questions and without recommendations.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    step(&format!("apt: install {}", packages.join(" ")), || {
        if !REFRESHED.swap(true, Ordering::Relaxed) {
            run(apt_get().args(["update", "-qq"]))?;
        }
        run(apt_get()
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages))
    })
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

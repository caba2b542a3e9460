//! apt, on Debian and Ubuntu.

use std::{
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::Result;

use crate::{
    process::{find_program, run},
    step::step,
};

/// Whether this run has refreshed the package lists. Locked while apt runs, because apt refuses to
/// run twice at once.
static REFRESHED: Mutex<bool> = Mutex::new(false);

/// Whether this is an apt system.
pub(super) fn present() -> bool {
    find_program("apt-get").is_some()
}

/// Installs packages without prompting and without recommended packages.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    let mut refreshed = REFRESHED.lock().unwrap_or_else(PoisonError::into_inner);
    step(&format!("install {} with apt", packages.join(" ")), || {
        if !*refreshed {
            run(apt_get().args(["update", "-qq"]))?;
            *refreshed = true;
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

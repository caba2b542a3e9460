//! The systemd unit, as systemd reads it.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::{Outcome, Packaged, output};

/// The unit's program, which is not installed here.
const PROGRAM: &str = "/usr/lib/opensandbox/opensandbox-server";
/// Highest exposure that is accepted, in tenths, as `systemd-analyze security` rates it: most of what is
/// left comes from root as the user, and from the network.
const EXPOSURE: &str = "25";

pub(super) fn verify(packaged: &Packaged<'_>) -> Result<Outcome> {
    if let Some(missing) = packaged.needs("systemd-analyze", "systemd") {
        return Ok(missing);
    }
    let name = "opensandbox-server.service";
    let unit = packaged.context.repo.path("deploy/systemd").join(name);
    let text =
        fs::read_to_string(&unit).with_context(|| format!("cannot read {}", unit.display()))?;
    ensure!(text.contains(PROGRAM), "the unit does not start {PROGRAM}");
    let program = packaged.programs.join("opensandbox-server");
    let text = text.replace(PROGRAM, &program.display().to_string());
    let copy = packaged.folder.join(name);
    fs::write(&copy, text)?;
    let (succeeded, found) = output::of(Command::new("systemd-analyze").arg("verify").arg(&copy))?;
    // Warnings about other units of this machine are not about this one.
    let about = found.lines().filter(|line| line.contains("opensandbox"));
    let about: Vec<_> = about.collect();
    ensure!(succeeded && about.is_empty(), "systemd finds:\n{found}");
    let mut security = Command::new("systemd-analyze");
    security
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={EXPOSURE}"))
        .arg(&copy);
    let (succeeded, found) = output::of(&mut security)?;
    ensure!(
        succeeded,
        "the unit is more exposed than {EXPOSURE}:\n{found}"
    );
    Ok(Outcome::Passed)
}

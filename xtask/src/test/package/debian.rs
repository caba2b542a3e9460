//! The Debian package, with the package manager of this machine in a folder, and in a container.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{Outcome, Packaged, output, require, require_none};
use crate::{
    process::{find_program, query, run, run_within},
    up::BASE_IMAGE,
};

const PACKAGE: &str = "opensandbox-server";
/// What runs in the container.
const SERVICE: &str = include_str!("service.sh");
/// Longest time of that.
const LIMIT: Duration = Duration::from_secs(300);
/// Folders that the package manager expects.
const DATABASE: [&str; 3] = ["info", "updates", "triggers"];
/// Characters of a generated key.
const KEY_LENGTH: usize = 32;

/// A system with nothing but a package manager, in a folder.
struct System(PathBuf);

impl System {
    fn new(folder: PathBuf) -> Result<Self> {
        let database = folder.join("var/lib/dpkg");
        for part in DATABASE {
            fs::create_dir_all(database.join(part))?;
        }
        fs::write(database.join("status"), "")?;
        fs::write(database.join("available"), "")?;
        Ok(Self(folder))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    fn read(&self, below: &str) -> Result<String> {
        let path = self.path(below);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Changes the system as `dpkg` would change a whole one. Scripts run on this machine; a variable
    /// names the folder that they work on.
    fn dpkg(&self, action: &str, of: &Path) -> Result<()> {
        let path = std::env::var("PATH").unwrap_or_default();
        run(Command::new("dpkg")
            .arg(format!("--root={}", self.0.display()))
            // The log would be that of this machine.
            .arg("--log=/dev/null")
            // Static programs need nothing; those of the tests are not static.
            .args(["--force-depends", "--force-confold"])
            .args(["--force-not-root", "--force-script-chrootless", action])
            .arg(of)
            .env("PATH", format!("{path}:/usr/sbin:/sbin")))
    }

    /// Version of the package, as the package manager knows it.
    fn version(&self) -> Result<String> {
        query(
            Command::new("dpkg-query")
                .arg(format!(
                    "--admindir={}",
                    self.path("var/lib/dpkg").display()
                ))
                .args(["--show", "--showformat=${Version}", PACKAGE]),
        )
    }
}

/// Installs, upgrades, removes and purges the package, with an operator's changes in between.
pub(super) fn lifecycle(packaged: &Packaged<'_>) -> Result<Outcome> {
    for program in ["dpkg", "dpkg-deb"] {
        if let Some(missing) = packaged.needs(program, "dpkg") {
            return Ok(missing);
        }
    }
    let release = &packaged.release;
    let first = packaged.debian_package(release, "first")?;
    let again = packaged.debian_package(release, "again")?;
    run(Command::new("cmp").args([&first, &again])).context("one commit makes two packages")?;
    fs::remove_file(&again)?;
    let successor = release.successor();
    let next = packaged.debian_package(&successor, "next")?;

    let system = System::new(packaged.folder.join("system"))?;
    let (config, env) = ("etc/opensandbox/config.toml", "etc/opensandbox/server.env");
    system.dpkg("--install", &first)?;
    check_installed(&system, config, env)?;
    let key = system.read(env)?;

    let mine = system.read(config)? + "# mine\n";
    fs::write(system.path(config), &mine)?;
    for state in ["var/lib/opensandbox", "var/log/opensandbox"] {
        fs::create_dir_all(system.path(state))?;
        fs::write(system.path(state).join("kept"), "")?;
    }
    system.dpkg("--install", &next)?;
    let version = system.version()?;
    ensure!(
        version.contains(successor.version()),
        "{version} is installed"
    );
    ensure!(
        system.read(config)? == mine,
        "the upgrade changed the configuration"
    );
    ensure!(system.read(env)? == key, "the upgrade changed the key");

    system.dpkg("--remove", Path::new(PACKAGE))?;
    require_none(&system.path("usr/lib/opensandbox"))?;
    for kept in [
        config,
        env,
        "var/lib/opensandbox/kept",
        "var/log/opensandbox/kept",
    ] {
        require(&system.path(kept))?;
    }
    system.dpkg("--purge", Path::new(PACKAGE))?;
    for gone in [
        "etc/opensandbox",
        "var/lib/opensandbox",
        "var/log/opensandbox",
    ] {
        require_none(&system.path(gone))?;
    }
    keep_the_operators_key(packaged, &first)?;
    Ok(Outcome::Passed)
}

/// What a first installation leaves.
fn check_installed(system: &System, config: &str, env: &str) -> Result<()> {
    let mode = |path: &str| -> Result<u32> {
        let path = system.path(path);
        let found = path.metadata();
        let found = found.with_context(|| format!("{} is missing", path.display()))?;
        Ok(found.permissions().mode() & 0o7777)
    };
    ensure!(
        mode(config)? == 0o640,
        "{config} has the mode {:o}",
        mode(config)?
    );
    ensure!(mode(env)? == 0o600, "{env} has the mode {:o}", mode(env)?);
    let key = system.read(env)?;
    let key = key.trim_end().strip_prefix("OPENSANDBOX_SERVER_API_KEY=");
    let key = key.with_context(|| format!("{env} has no key"))?;
    ensure!(
        key.len() == KEY_LENGTH,
        "the key has {} characters",
        key.len()
    );
    for file in [
        "usr/lib/opensandbox/execd",
        "usr/lib/opensandbox/egress/egress",
        "usr/lib/opensandbox/egress/Dockerfile",
        "usr/share/doc/opensandbox-server/copyright",
        "usr/share/doc/opensandbox-server/THIRD-PARTY-NOTICES.txt.gz",
    ] {
        require(&system.path(file))?;
    }
    if find_program("deb-systemd-helper").is_some() {
        let wanted = "etc/systemd/system/multi-user.target.wants/opensandbox-server.service";
        let is_enabled = system.path(wanted).symlink_metadata().is_ok();
        ensure!(is_enabled, "the service is not enabled");
    }
    let (succeeded, changed) = output::of(
        Command::new("dpkg")
            .arg(format!("--root={}", system.0.display()))
            .args(["--verify", PACKAGE]),
    )?;
    ensure!(
        succeeded && changed.is_empty(),
        "checksums differ:\n{changed}"
    );
    // Also through the link, by which operators find it.
    let program = system.path("usr/bin/opensandbox-server").canonicalize()?;
    let (succeeded, shown) = output::of(
        Command::new(&program)
            .arg("--config")
            .arg(system.path(config))
            .args(["config", "show"])
            .env("OPENSANDBOX_SERVER_API_KEY", key),
    )?;
    ensure!(succeeded, "the server refuses its configuration:\n{shown}");
    ensure!(!shown.contains(key), "the key is shown");
    Ok(())
}

/// A configuration from before the package keeps its own key.
fn keep_the_operators_key(packaged: &Packaged<'_>, package: &Path) -> Result<()> {
    let system = System::new(packaged.folder.join("configured-system"))?;
    let config = system.path("etc/opensandbox/config.toml");
    let text = "[server]\napi_key = \"mine\"\n[runtime]\ntype = \"docker\"\n";
    fs::create_dir_all(system.path("etc/opensandbox"))?;
    fs::write(&config, text)?;
    system.dpkg("--install", package)?;
    ensure!(
        fs::read_to_string(&config)? == text,
        "the configuration was replaced"
    );
    require_none(&system.path("etc/opensandbox/server.env"))
}

/// Installs, upgrades and removes the package in a container, where it starts and stops the service.
pub(super) fn service(packaged: &Packaged<'_>) -> Result<Outcome> {
    if let Some(missing) = packaged.needs("dpkg-deb", "dpkg") {
        return Ok(missing);
    }
    let folder = packaged.folder.join("service");
    fs::create_dir(&folder)?;
    let successor = packaged.release.successor();
    for (release, name) in [(&packaged.release, "first"), (&successor, "next")] {
        let made = packaged.debian_package(release, &format!("service-{name}"))?;
        fs::rename(made, folder.join(format!("{name}.deb")))?;
    }
    let mut volume = folder.into_os_string();
    volume.push(":/packages:ro");
    run_within(
        LIMIT,
        Command::new("docker")
            .args(["run", "--rm", "--network", "none", "--volume"])
            .arg(volume)
            .args(["--entrypoint", "sh", BASE_IMAGE, "-eu", "-c", SERVICE]),
    )?;
    Ok(Outcome::Passed)
}

//! The base image, which `up` provides on every machine: its parent is pulled or built locally.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    host::{Installer, is_root},
    process::{query, run, run_within},
    repo::Repo,
    step::{Stamp, notice, step},
};

/// Name of the image.
pub(crate) const TAG: &str = "opensandbox/base:latest";
/// Parent image.
const PARENT: &str = "debian:bookworm-slim";
const PARENT_SUITE: &str = "bookworm";
/// Longest time for a pull.
const PULL: Duration = Duration::from_secs(300);
/// Label with the hash of the Dockerfile that an image was built from. Sandboxes do not show labels
/// with this prefix as metadata.
const RECIPE_LABEL: &str = "org.opencontainers.image.revision";

/// Ensures that the image exists and was built from the current Dockerfile.
pub(crate) fn ensure(repo: &Repo, installer: &Installer) -> Result<()> {
    let folder = repo.path("sandboxes/base");
    let recipe = Stamp::new(
        &repo.stamps(),
        "base-image",
        &[&folder.join("Dockerfile")],
        "",
    )?;
    let format = format!("{{{{index .Config.Labels \"{RECIPE_LABEL}\"}}}}");
    let known = query(docker().args(["image", "inspect", "--format", &format, TAG]));
    if known.is_ok_and(|known| known == recipe.digest()) {
        return Ok(());
    }
    parent(installer)?;
    step(&format!("build {TAG}"), || {
        run(docker()
            .args(["build", "--network", "host", "--tag", TAG, "--label"])
            .arg(format!("{RECIPE_LABEL}={}", recipe.digest()))
            .arg(&folder)
            // The classic builder uses the local parent image; BuildKit would ask the registry.
            .env("DOCKER_BUILDKIT", "0"))
    })
}

fn parent(installer: &Installer) -> Result<()> {
    if query(docker().args(["image", "inspect", "--format", "{{.Id}}", PARENT])).is_ok() {
        return Ok(());
    }
    let pull = || run_within(PULL, docker().args(["pull", PARENT]));
    if step(&format!("pull {PARENT}"), pull).is_ok() {
        return Ok(());
    }
    notice(&format!(
        "{PARENT} cannot be pulled; building it from Debian's packages instead"
    ));
    if !is_root() {
        bail!(
            "{PARENT} cannot be pulled; as root, build it from Debian's packages:\n  \
             sudo debootstrap --variant=minbase {PARENT_SUITE} /tmp/{PARENT_SUITE}\n  \
             sudo tar -C /tmp/{PARENT_SUITE} -c . | docker import - {PARENT}"
        );
    }
    installer.program("debootstrap", &["debootstrap"])?;
    step(&format!("build {PARENT} with debootstrap"), bootstrap)
}

fn bootstrap() -> Result<()> {
    let root = Scratch::new()?;
    run(Command::new("debootstrap")
        .args(["--variant=minbase", PARENT_SUITE])
        .arg(&root.0))?;
    let mut pack = Command::new("tar")
        .arg("-C")
        .arg(&root.0)
        .args(["--exclude=./var/cache/apt/archives/*.deb", "-c", "."])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run tar")?;
    let packed = pack.stdout.take().context("tar has a stdout")?;
    let imported = docker()
        .args(["import", "--change", "CMD [\"bash\"]", "-", PARENT])
        .stdin(packed)
        .stdout(Stdio::null())
        .status()
        .context("cannot run docker import")?;
    if !pack.wait()?.success() || !imported.success() {
        bail!("docker import ended with {imported}");
    }
    Ok(())
}

/// A temporary folder for a root file system, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        // /tmp may be mounted with `nodev`, which debootstrap cannot use.
        let dir = Path::new("/var/tmp").join(format!("opensandbox-base-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            notice(&format!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

fn docker() -> Command {
    Command::new("docker")
}

//! The images that `up` provides on every machine: the base image, and the image of the egress
//! sidecar. Their parent is pulled or built locally.

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

/// Name of the base image.
pub(crate) const TAG: &str = "opensandbox/base:latest";
/// Name of the image of the egress sidecar.
pub(crate) const EGRESS_TAG: &str = "opensandbox/egress:latest";
/// Parent image of both.
const PARENT: &str = "debian:bookworm-slim";
const PARENT_SUITE: &str = "bookworm";
/// Longest time for a pull.
const PULL: Duration = Duration::from_secs(300);
/// Label with the hash of the files that an image was built from. Sandboxes do not show labels with
/// this prefix as metadata.
const RECIPE_LABEL: &str = "org.opencontainers.image.revision";

/// Ensures that the base image exists and was built from the current Dockerfile.
pub(crate) fn ensure(repo: &Repo, installer: &Installer) -> Result<()> {
    let folder = repo.path("sandboxes/base");
    let recipe = Stamp::new(
        &repo.stamps(),
        "base-image",
        &[&folder.join("Dockerfile")],
        "",
    )?;
    if is_current(TAG, &recipe) {
        return Ok(());
    }
    parent(installer)?;
    build(TAG, &recipe, &folder)
}

/// Ensures that the image of the egress sidecar exists and has the program in `dist`.
pub(crate) fn ensure_egress(repo: &Repo, installer: &Installer, dist: &Path) -> Result<()> {
    let dockerfile = repo.path("deploy/egress/Dockerfile");
    let program = dist.join("egress");
    let recipe = Stamp::new(&repo.stamps(), "egress-image", &[&dockerfile, &program], "")?;
    if is_current(EGRESS_TAG, &recipe) {
        return Ok(());
    }
    parent(installer)?;
    // Docker gets the whole folder, and `dist` has much more.
    let folder = Scratch::new("egress")?;
    for (from, name) in [(&dockerfile, "Dockerfile"), (&program, "egress")] {
        fs::copy(from, folder.0.join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    build(EGRESS_TAG, &recipe, &folder.0)
}

/// Whether an image exists and was built from these files.
fn is_current(tag: &str, recipe: &Stamp) -> bool {
    let format = format!("{{{{index .Config.Labels \"{RECIPE_LABEL}\"}}}}");
    let known = query(docker().args(["image", "inspect", "--format", &format, tag]));
    known.is_ok_and(|known| known == recipe.digest())
}

/// Builds an image from a folder, and removes the one that had its name.
fn build(tag: &str, recipe: &Stamp, folder: &Path) -> Result<()> {
    let id = || query(docker().args(["image", "inspect", "--format", "{{.Id}}", tag]));
    let former = id();
    step(&format!("build {tag}"), || {
        run(docker()
            .args(["build", "--network", "host", "--tag", tag, "--label"])
            .arg(format!("{RECIPE_LABEL}={}", recipe.digest()))
            .arg(folder)
            // The classic builder uses the local parent image; BuildKit would ask the registry.
            .env("DOCKER_BUILDKIT", "0"))
    })?;
    if let (Ok(former), Ok(current)) = (former, id())
        && former != current
    {
        // It stays if a container uses it.
        let _ = query(docker().args(["image", "rm", &former]));
    }
    Ok(())
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
    let root = Scratch::new("base")?;
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

/// A temporary folder for the files of an image, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        // /tmp may be mounted with `nodev`, which debootstrap cannot use.
        let name = format!("opensandbox-{name}-{}", std::process::id());
        let dir = Path::new("/var/tmp").join(name);
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

//! Paths: the repository, build output, and the state of `up`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// One checkout.
#[derive(Clone)]
pub(crate) struct Repo {
    root: PathBuf,
    dist: PathBuf,
}

impl Repo {
    /// The checkout this xtask was built from.
    pub(crate) fn find() -> Result<Self> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("xtask's manifest has no folder above it")?
            .to_owned();
        let dist = root.join("target/dist");
        Ok(Self { root, dist })
    }

    /// The same checkout with release artifacts from elsewhere.
    pub(crate) fn with_dist(&self, dist: &Path) -> Self {
        Self {
            dist: dist.to_owned(),
            ..self.clone()
        }
    }

    /// Top folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the top folder.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    /// Cargo's output: `CARGO_TARGET_DIR`, or `target`.
    pub(crate) fn cargo_target(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => self.root.join(dir),
            None => self.path("target"),
        }
    }

    /// What runs leave for later ones: beside Cargo's output if that outlives the checkout.
    pub(crate) fn records(&self) -> PathBuf {
        let target = self.cargo_target();
        match (env::var_os("CARGO_TARGET_DIR"), target.parent()) {
            (Some(_), Some(parent)) => parent.join("records"),
            _ => target.join("records"),
        }
    }

    /// Output of the wasm build. It has a folder of its own because another compiler may build it.
    pub(crate) fn wasm_target(&self) -> PathBuf {
        self.cargo_target().join("wasm")
    }

    /// Release artifacts, independent of `CARGO_TARGET_DIR`.
    pub(crate) fn dist(&self) -> PathBuf {
        self.dist.clone()
    }

    /// The same artifacts from a dev build, for tests.
    pub(crate) fn dist_for_tests(&self) -> PathBuf {
        self.path("target/dist-test")
    }

    /// Packages for users, with the programs in them.
    pub(crate) fn package(&self) -> PathBuf {
        self.path("target/package")
    }

    /// Files the console serves; embedded by the server's build script.
    pub(crate) fn site(&self) -> PathBuf {
        self.path("target/site")
    }

    /// Stamp files, by which a step knows that its inputs did not change since it last ran.
    pub(crate) fn stamps(&self) -> PathBuf {
        self.path("target/stamps")
    }

    /// Reports of test suites and their servers' logs.
    pub(crate) fn reports(&self) -> PathBuf {
        self.path("target/reports")
    }
}

/// `$XDG_STATE_HOME/opensandbox`; created when missing, readable by its owner only.
pub(crate) fn state_dir() -> Result<PathBuf> {
    let base = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".local/state")))
        .context("neither XDG_STATE_HOME nor HOME is set")?;
    let dir = base.join("opensandbox");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("cannot protect {}", dir.display()))?;
    Ok(dir)
}

//! The console's static files: the wasm with its bindings, and the output of `style/build.mjs`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::wasm;
use crate::{
    host::{
        Installer, node,
        toolchain::{Toolchain, WASM},
    },
    process::run,
    repo::Repo,
    step::{Stamp, step},
};

/// Builds `target/site`.
pub(super) fn build(repo: &Repo, installer: &Installer) -> Result<()> {
    let toolchain = Toolchain::ensure(WASM, installer)?;
    wasm::build(repo, toolchain)?;
    node::packages(repo, installer)?;
    assets(repo)
}

/// Builds styles, icons and vendored scripts. Unchanged ones are not written again, because the
/// server is rebuilt whenever a file of the site is written.
fn assets(repo: &Repo) -> Result<()> {
    let mut sources = vec![repo.path("package-lock.json")];
    for folder in ["style", "public"] {
        collect(&repo.path(folder), &mut sources)?;
    }
    sources.sort();
    let inputs: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
    let stamp = Stamp::new(&repo.stamps(), "assets", &inputs, "")?;
    if stamp.is_fresh(&repo.site().join("console.css")) {
        return Ok(());
    }
    step("build the console's styles, icons and scripts", || {
        run(Command::new("node")
            .arg("style/build.mjs")
            .arg(repo.site())
            .current_dir(repo.root()))?;
        stamp.save()
    })
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

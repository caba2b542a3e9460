//! The console's wasm and its JavaScript bindings.
//!
//! Tests and releases use the same profile: a dev build of the pages is many times larger, and the
//! browser tests should load the released module.
//!
//! `wasm-opt` is left out on purpose: Debian's version (108) breaks the module's function table, and
//! newer ones save nothing after compression (docs/adr/0004).

use std::{fs, path::Path};

use anyhow::{Context, Result};
use wasm_bindgen_cli_support::Bindgen;

use crate::{
    host::toolchain::{Toolchain, WASM},
    process::run,
    repo::Repo,
    step::{Stamp, step},
};

/// Name of the files in `pkg/`; the server's build script looks for it.
const OUT_NAME: &str = "osb";
const PROFILE: &str = "wasm-release";

/// Builds `target/site/pkg`.
pub(crate) fn build(repo: &Repo, toolchain: Toolchain) -> Result<()> {
    let name = format!("build the console's wasm with {}", toolchain.name());
    step(&name, || {
        run(toolchain
            .cargo(WASM)
            .args(["build", "--package", "osb-frontend", "--profile", PROFILE])
            .args(["--target", WASM.target, "--target-dir"])
            .arg(repo.wasm_target())
            .current_dir(repo.root()))
    })?;
    let built = repo
        .wasm_target()
        .join(WASM.target)
        .join(PROFILE)
        .join("osb_frontend.wasm");
    let stamp = Stamp::new(&repo.stamps(), "wasm", &[&built], OUT_NAME)?;
    let pkg = repo.site().join("pkg");
    let module = pkg.join(format!("{OUT_NAME}_bg.wasm"));
    if stamp.is_fresh(&module) {
        return Ok(());
    }
    step("bind the console's wasm to JavaScript", || {
        bind(&built, &pkg)?;
        stamp.save()
    })
}

fn bind(module: &Path, pkg: &Path) -> Result<()> {
    if pkg.exists() {
        fs::remove_dir_all(pkg).with_context(|| format!("cannot empty {}", pkg.display()))?;
    }
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(module)
        .out_name(OUT_NAME)
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true);
    bindgen.web(true)?.generate(pkg)
}

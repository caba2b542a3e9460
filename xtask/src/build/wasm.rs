//! The console's wasm and its JavaScript bindings.
//!
//! The linked module is split: what only one part of the pages needs goes into a file that the
//! browser loads when the part is first shown (`app/src/lazy.rs`, docs/adr/0007).
//!
//! Tests and releases use the same profile: a dev build of the pages is many times larger, and the
//! browser tests should load the released module.
//!
//! `wasm-opt` is left out on purpose: Debian's version (108) breaks the module's function table, and
//! newer ones save nothing after compression (docs/adr/0004).

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow, ensure};
use wasm_bindgen_cli_support::Bindgen;

use super::wasm_sections;
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
            .args(["rustc", "--package", "osb-frontend", "--lib"])
            .args(["--profile", PROFILE, "--target", WASM.target])
            .arg("--target-dir")
            .arg(repo.wasm_target())
            // The split moves functions and data, so it needs to know what refers to them.
            .args(["--", "-Clink-arg=--emit-relocs"])
            .current_dir(repo.root()))
    })?;
    let output = repo.wasm_target().join(WASM.target).join(PROFILE);
    let built = output.join("osb_frontend.wasm");
    let stamp = Stamp::new(&repo.stamps(), "wasm", &[&built], OUT_NAME)?;
    let pkg = repo.site().join("pkg");
    let module = pkg.join(format!("{OUT_NAME}_bg.wasm"));
    if stamp.is_fresh(&module) {
        return Ok(());
    }
    step("split the console's wasm and bind it to JavaScript", || {
        if pkg.exists() {
            fs::remove_dir_all(&pkg).with_context(|| format!("cannot empty {}", pkg.display()))?;
        }
        let first = output.join("osb_frontend_first.wasm");
        split(&built, &first, &pkg)?;
        bind(&first, &pkg)?;
        stamp.save()
    })
}

/// Writes the module that every page starts with to `first`; the files of the parts, and the
/// script that loads them, to `pkg`.
fn split(module: &Path, first: &Path, pkg: &Path) -> Result<()> {
    let input = fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let bindings = format!("./{OUT_NAME}.js");
    let loader = format!("./{OUT_NAME}_parts.js");
    let mut options = wasm_split_cli_support::Options::new(&input);
    options.output_dir = pkg;
    options.main_out_path = first;
    options.main_module = &bindings;
    options.link_name = &loader;
    let split = wasm_split_cli_support::transform(options)
        .map_err(|error| anyhow!("cannot split {}: {error:#}", module.display()))?;
    ensure!(
        !split.split_modules.is_empty(),
        "no part was split off {}",
        module.display()
    );
    for part in &split.split_modules {
        let stripped = wasm_sections::without_custom(&fs::read(part)?)
            .with_context(|| format!("{} is no wasm", part.display()))?;
        fs::write(part, stripped)?;
    }
    Ok(())
}

fn bind(module: &Path, pkg: &Path) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(module)
        .out_name(OUT_NAME)
        .typescript(false)
        .keep_lld_exports(true) // the parts import the function table
        .remove_name_section(true)
        .remove_producers_section(true);
    bindgen.web(true)?.generate(pkg)
}

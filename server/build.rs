//! Embeds the console's static files in a release build. A debug build reads them when it starts, so that
//! it is not built anew for a new wasm.
//!
//! `cargo xtask build` makes them in `<repo>/target/site` whatever `CARGO_TARGET_DIR` is:
//!
//! ```text
//! npm ci && npm run site      console.css  icons.svg  favicon.svg  vendor/xterm-<version>.mjs …
//! wasm split and bound        pkg/osb.js  pkg/osb_bg.wasm
//!   to JavaScript             pkg/osb_parts.js  pkg/split_<part>.wasm  pkg/chunk_<n>.wasm
//!                             (built from osb-frontend, profile `wasm-release`)
//! ```
//!
//! They are served under `/console/assets/<build id>/`, where the build id is a digest of their
//! content, so browsers may keep them for ever. Without `pkg/osb.js` the console still works: its pages
//! are rendered by the server, only nothing in them is live.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

/// Set while the site is still being built: a release build of this crate then fails, and only what it
/// depends on is compiled.
const ONLY_DEPENDENCIES: &str = "OSB_ONLY_DEPENDENCIES";

#[expect(clippy::disallowed_methods, reason = "this is main()")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(embeds_site)");
    if std::env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return;
    }
    println!("cargo::rustc-cfg=embeds_site");
    if std::env::var_os(ONLY_DEPENDENCIES).is_some() {
        eprintln!("the console's files are not there yet");
        std::process::exit(1);
    }
    // Of this run, not of the build of this script: checkouts may share it as well.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let site = Path::new(&package).join("../target/site");
    // Made here when it is missing: cargo takes a path that does not exist for one that changed,
    // and would build the server anew every time.
    fs::create_dir_all(&site).expect("target/ is cargo's own folder and writable");
    let mut files = Vec::new();
    collect(&site, &mut files).expect("the site was just written by this user");
    files.sort();
    println!("cargo::rustc-env=OSB_SITE_ID={}", digest(&files));
    let hydrates = site.join("pkg/osb.js").is_file() && site.join("pkg/osb_bg.wasm").is_file();
    println!("cargo::rustc-env=OSB_SITE_HYDRATES={hydrates}");
    // Relative, as no other line about the site is: checkouts that share `CARGO_TARGET_DIR` share this
    // script's output as well, and each needs its own site.
    println!("cargo::rerun-if-changed=../target/site");
    memory_serve::load_names_directories([("site", site)], true);
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Names a version of the site. Not a secret and not a signature: it only has to change when a
/// file does.
fn digest(files: &[PathBuf]) -> String {
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(file).unwrap_or_default().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

//! rustdoc reads exactly the crates whose documentation has Rust code: `doctest = false` in the
//! `[lib]` of every other saves reading them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// What stands behind the fence of a block that rustdoc compiles, apart from its edition and the
/// codes of errors that it must have.
const RUST: [&str; 6] = [
    "rust",
    "ignore",
    "should_panic",
    "no_run",
    "compile_fail",
    "standalone_crate",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
    doctest: bool,
}

impl Target {
    fn is_library(&self) -> bool {
        self.kind.iter().any(|kind| kind.ends_with("lib"))
    }
}

/// Whether the documentation in a file has Rust code.
fn has_rust(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
    });
    let mut is_open = false;
    for line in comments {
        let line = line.trim_start();
        let Some(info) = ["```", "~~~"].iter().find_map(|it| line.strip_prefix(it)) else {
            continue;
        };
        is_open = !is_open;
        if is_open && is_rust(info) {
            return true;
        }
    }
    false
}

fn is_rust(info: &str) -> bool {
    let mut words = info
        .split([',', ' ', '{', '}', '`', '~'])
        .filter(|word| !word.is_empty());
    words.all(|word| RUST.contains(&word) || word.starts_with("edition") || word.starts_with("E0"))
}

/// Whether a file in a folder, or below it, has Rust code in its documentation.
fn any_has_rust(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = match path.is_dir() {
            true => any_has_rust(&path)?,
            false => {
                path.extension().is_some_and(|it| it == "rs")
                    && has_rust(&fs::read_to_string(&path)?)
            }
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn blocks_of_rust_are_distinguished_from_others() {
    let block = |info: &str| {
        format!("/// Text.\n///\n/// ```{info}\n/// let a = 1;\n/// ```\nfn a() {{}}\n")
    };
    for info in [
        "",
        "rust",
        "no_run",
        "should_panic",
        "rust,ignore",
        "edition2021",
        "compile_fail,E0277",
    ] {
        assert!(has_rust(&block(info)), "{info}");
        assert!(
            has_rust(&format!("{}{}", block("text"), block(info))),
            "{info}"
        );
    }
    for info in ["text", "json", "toml,ignore", "arrows"] {
        assert!(!has_rust(&block(info)), "{info}");
    }
    assert!(!has_rust(
        "// ```\n// let a = 1;\n// ```\nlet a = \"```\";\n"
    ));
}

#[test]
fn rustdoc_reads_the_crates_with_rust_code_and_no_others() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let mut wrong = Vec::new();
    let mut read = 0;
    for package in &metadata.packages {
        for library in package.targets.iter().filter(|it| it.is_library()) {
            let folder = library.src_path.parent().context("a file has a folder")?;
            let has_code = any_has_rust(folder)?;
            if library.doctest != has_code {
                let name = &package.name;
                wrong.push(match has_code {
                    true => {
                        format!("{name} has Rust code: remove `doctest = false` from its [lib]")
                    }
                    false => format!("{name} has no Rust code: add `doctest = false` to its [lib]"),
                });
            }
            read += usize::from(library.doctest);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    ensure!(read > 0, "no crate has Rust code in its documentation");
    Ok(())
}

//! At each level of each of our crates, the modules with one parent form no cycle among each other,
//! and the arrows within the large crates are those that ARCHITECTURE.md lists.
//!
//! An arrow leads from a module to a sibling if a path in it, or in a module below it, begins with
//! `crate` or `super` and reaches the sibling or something below it. A name that their parent
//! imports from a sibling counts as that sibling's. A module and those below it may use each other.
//! A glob of a module around its own is refused, because it hides what is used. Code that only tests
//! compile is not considered. ARCHITECTURE.md lists the modules that the root of a crate declares.
//!
//! Limits: no arrow comes from a path that a macro puts together, from the call of a method, or from
//! a name that the parent imports by a glob if a macro defines it.

mod graph;
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use graph::{Arrows, Level, Levels};

/// Crates with a list in ARCHITECTURE.md.
const LISTED: [&str; 3] = ["osb-egress", "osb-execd", "osb-server"];

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
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
}

/// Each crate with the arrows between its modules.
fn crates() -> Result<Vec<(String, Levels)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root())
        .output()?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let is_product = |target: &&Target| {
        let tests = ["test", "bench", "example", "custom-build"];
        !target
            .kind
            .iter()
            .any(|kind| tests.contains(&kind.as_str()))
    };
    let mut found = Vec::new();
    for package in metadata.packages {
        let mut levels = Levels::new();
        for target in package.targets.iter().filter(is_product) {
            let read = |path: &Path| fs::read_to_string(path).ok();
            source::scan(&target.src_path, &read, &mut levels)
                .with_context(|| format!("{} of {}", target.src_path.display(), package.name))?;
        }
        found.push((package.name, levels));
    }
    Ok(found)
}

/// Reads a fenced block: `module -> module, module`, one line for each module.
fn listed(text: &str, name: &str) -> Result<Arrows> {
    let fence = format!("```modules {name}\n");
    let block = text
        .split_once(&fence)
        .and_then(|(_, rest)| rest.split_once("```"))
        .with_context(|| format!("ARCHITECTURE.md has no block of the modules of {name}"))?
        .0;
    let mut listed = Arrows::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (from, to) = line
            .split_once("->")
            .with_context(|| format!("no arrow in {line:?}"))?;
        let to = to.split(',').map(str::trim).filter(|name| !name.is_empty());
        let to = to.map(str::to_owned).collect();
        if listed.insert(from.trim().to_owned(), to).is_some() {
            bail!("{} is listed twice", from.trim());
        }
    }
    Ok(listed)
}

#[test]
fn siblings_form_no_cycle() {
    let crates = crates().unwrap();
    assert!(crates.len() > 10, "only {} crates", crates.len());
    let mut wrong = Vec::new();
    for (name, levels) in &crates {
        for (level, graph) in levels {
            if let Some(cycle) = graph.shortest_cycle(root()) {
                let parent = [&["crate".to_owned()][..], level].concat().join("::");
                wrong.push(format!("{name}, below {parent}:\n{cycle}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn arrows_within_large_crates_are_those_of_architecture_md() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let crates = crates().unwrap();
    for name in LISTED {
        let (_, levels) = crates.iter().find(|(found, _)| found == name).unwrap();
        let graph = &levels[&Level::default()];
        let differences = graph.differences(&listed(&text, name).unwrap(), root());
        assert!(
            differences.is_empty(),
            "ARCHITECTURE.md and {name} disagree:\n{}\nthe list as the code has it:\n{}",
            differences.join("\n"),
            graph.list(),
        );
    }
}

#[test]
fn a_damaged_list_is_an_error() {
    let list = "```modules a\nx -> y, z\ny ->\n```\n```modules b\nx y\n```\n```modules c\nx ->\nx -> y\n```\n";
    let read = listed(list, "a").unwrap();
    assert_eq!(read["x"].len(), 2);
    assert!(read["y"].is_empty());
    for bad in ["b", "c", "d"] {
        assert!(listed(list, bad).is_err(), "{bad}");
    }
}

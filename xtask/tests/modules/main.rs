//! The modules of each of our crates form layers: none of them is in a circle with others, and the
//! arrows within the large crates are those that ARCHITECTURE.md lists.
//!
//! A module here is one that its crate's root declares, with all that is below it. Code that only
//! tests compile has no say.

mod graph;
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use graph::{Arrows, Graph};

/// Crates with a list in ARCHITECTURE.md.
const LISTED: [&str; 2] = ["osb-execd", "osb-server"];

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
fn crates() -> Result<Vec<(String, Graph)>> {
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
        let mut graph = Graph::default();
        for target in package.targets.iter().filter(is_product) {
            let read = |path: &Path| fs::read_to_string(path).ok();
            source::scan(&target.src_path, &read, &mut graph)
                .with_context(|| format!("{} of {}", target.src_path.display(), package.name))?;
        }
        found.push((package.name, graph));
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
fn no_module_is_in_a_circle() {
    let crates = crates().unwrap();
    assert!(crates.len() > 10, "only {} crates", crates.len());
    let circles: Vec<String> = crates
        .iter()
        .filter_map(|(name, graph)| Some(format!("{name}:\n{}", graph.shortest_circle(root())?)))
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn arrows_within_large_crates_are_those_of_architecture_md() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let crates = crates().unwrap();
    for name in LISTED {
        let (_, graph) = crates.iter().find(|(found, _)| found == name).unwrap();
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

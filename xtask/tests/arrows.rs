//! Dependencies between our crates match the arrows that ARCHITECTURE.md lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Our crates, each with those of our crates that it uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Arrows that ARCHITECTURE.md lists.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    /// Arrows that may exist.
    allowed: Arrows,
    /// Arrows among them that need not exist yet.
    later: Arrows,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Set for crates of the workspace only.
    path: Option<String>,
    /// `dev` for tests, `build` for build scripts.
    kind: Option<String>,
}

/// Mark of an arrow that only tests may use.
const FOR_TESTS: &str = " (tests)";

/// Parses the fenced block: `crate -> crate, crate (later)`, one line for each crate.
fn parse_listed(text: &str) -> Result<Listed> {
    let block = text
        .split_once("```arrows\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .context("ARCHITECTURE.md has no ```arrows block")?
        .0;
    let mut listed = Listed::default();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (from, to) = line
            .split_once("->")
            .with_context(|| format!("no arrow in {line:?}"))?;
        let from = from.trim().to_owned();
        let (mut allowed, mut later) = (BTreeSet::new(), BTreeSet::new());
        for name in to.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let plain = name.strip_suffix("(later)").map(str::trim);
            if let Some(name) = plain {
                later.insert(name.to_owned());
            }
            allowed.insert(plain.unwrap_or(name).to_owned());
        }
        listed.later.insert(from.clone(), later);
        if listed.allowed.insert(from.clone(), allowed).is_some() {
            bail!("{from} is listed twice");
        }
    }
    Ok(listed)
}

/// Reads the arrows from Cargo; [`FOR_TESTS`] marks those that only tests use.
fn read_actual(root: &Path) -> Result<Arrows> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root)
        .output()?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(metadata.packages.into_iter().map(arrows_of).collect())
}

fn arrows_of(package: Package) -> (String, BTreeSet<String>) {
    let (tests, product): (Vec<_>, Vec<_>) = package
        .dependencies
        .into_iter()
        .filter(|dependency| dependency.path.is_some())
        .partition(|dependency| dependency.kind.as_deref() == Some("dev"));
    let mut used: BTreeSet<String> = product.into_iter().map(|to| to.name).collect();
    for to in tests {
        if !used.contains(&to.name) {
            used.insert(to.name + FOR_TESTS);
        }
    }
    (package.name, used)
}

/// Describes every difference in a sentence.
fn differences(listed: &Listed, actual: &Arrows) -> Vec<String> {
    let nothing = BTreeSet::new();
    let mut found = Vec::new();
    for (from, used) in actual {
        let Some(allowed) = listed.allowed.get(from) else {
            found.push(format!("{from} is not listed"));
            continue;
        };
        let permitted = |to: &&String| {
            allowed.contains(*to)
                || to
                    .strip_suffix(FOR_TESTS)
                    .is_some_and(|to| allowed.contains(to))
        };
        let wrong = used.iter().filter(|to| !permitted(to));
        found.extend(wrong.map(|to| format!("{from} must not use {to}")));
    }
    for (from, allowed) in &listed.allowed {
        let Some(used) = actual.get(from) else {
            found.push(format!("{from} is listed but is no crate"));
            continue;
        };
        let later = listed.later.get(from).unwrap_or(&nothing);
        let unused = allowed.difference(used).filter(|to| !later.contains(*to));
        found.extend(unused.map(|to| format!("{from} does not use {to}")));
    }
    found
}

#[test]
fn arrows_between_crates_are_those_of_architecture_md() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let found = differences(&parse_listed(&text).unwrap(), &read_actual(root).unwrap());
    assert!(
        found.is_empty(),
        "ARCHITECTURE.md and Cargo disagree:\n{}",
        found.join("\n")
    );
}

#[test]
fn every_kind_of_difference_is_found() {
    let text = "x\n```arrows\na -> b, c (later), e (tests)\nb -> e (tests)\ngone -> a\n```\n";
    let listed = parse_listed(text).unwrap();
    let arrows = |pairs: &[(&str, &[&str])]| -> Arrows {
        pairs
            .iter()
            .map(|(from, to)| {
                (
                    (*from).to_owned(),
                    to.iter().map(|to| (*to).to_owned()).collect(),
                )
            })
            .collect()
    };
    let actual = arrows(&[
        ("a", &["c (tests)", "e (tests)"]),
        ("b", &["a", "e"]),
        ("new", &[]),
    ]);
    assert_eq!(
        differences(&listed, &actual),
        [
            "b must not use a",
            "b must not use e",
            "new is not listed",
            "a does not use b",
            "b does not use e (tests)",
            "gone is listed but is no crate",
        ]
    );
}

#[test]
fn a_damaged_list_is_an_error() {
    assert!(parse_listed("no block").is_err());
    assert!(parse_listed("```arrows\na b\n```").is_err());
    assert!(parse_listed("```arrows\na ->\na -> b\n```").is_err());
}

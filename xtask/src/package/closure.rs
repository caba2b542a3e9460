//! What `cargo tree` shows: the packages that a program is built from, with their dependencies. Unlike
//! Cargo's metadata it has the features of one build, not of the whole workspace.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// Name and version of a package.
pub(super) type Id = (String, String);

/// Packages and what each of them uses.
pub(super) type Closure = BTreeMap<Id, BTreeSet<Id>>;

/// Parses `cargo tree --prefix depth --format {p}`. Each line has a depth, a name, a version, and
/// remarks in brackets; what is below a package is shown once.
pub(super) fn parse(text: &str) -> Result<Closure> {
    let mut closure = Closure::new();
    let mut path: Vec<Id> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (depth, id) = package(line).with_context(|| format!("cargo tree shows {line:?}"))?;
        ensure!(
            depth <= path.len(),
            "cargo tree shows {line:?} without a parent"
        );
        path.truncate(depth);
        closure.entry(id.clone()).or_default();
        if let Some(parent) = path.last() {
            let uses = closure.entry(parent.clone()).or_default();
            uses.insert(id.clone());
        }
        path.push(id);
    }
    ensure!(!closure.is_empty(), "cargo tree shows nothing");
    Ok(closure)
}

/// Parses a line such as `12serde v1.0.229 (*)`.
fn package(line: &str) -> Option<(usize, Id)> {
    let name_at = line.find(|char: char| !char.is_ascii_digit())?;
    let depth = line[..name_at].parse().ok()?;
    let mut words = line[name_at..].split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((depth, (name.to_owned(), version.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn a_closure_has_every_package_and_edge_once() {
        let text = "\
0osb-server v0.1.0 (/src/server)
1axum v0.8.9
2http v1.5.0
3bytes v1.12.0
1http v1.5.0 (*)
1osb-app v0.1.0 (/src/app)
2http v0.2.1
";
        let closure = parse(text).unwrap();
        let uses = |name, version| {
            let uses = closure[&id(name, version)].iter();
            uses.map(|(name, version)| format!("{name} {version}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(closure.len(), 6);
        assert_eq!(
            uses("osb-server", "0.1.0"),
            ["axum 0.8.9", "http 1.5.0", "osb-app 0.1.0"]
        );
        assert_eq!(uses("http", "1.5.0"), ["bytes 1.12.0"]);
        assert_eq!(uses("osb-app", "0.1.0"), ["http 0.2.1"]);
        assert!(uses("bytes", "1.12.0").is_empty());
    }

    #[test]
    fn what_is_no_tree_is_an_error() {
        for text in ["", "serde v1.0.0", "0serde", "0serde 1.0.0", "0a v1\n2b v1"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}

//! Crates: which of them a program is built from, and what Cargo knows of each.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    closure::{self, Closure, Id},
    component::{Component, Origin},
    licence::Expression,
};
use crate::{
    process::{cargo, query},
    repo::Repo,
};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for a crate of this repository.
    source: Option<String>,
    manifest_path: PathBuf,
    repository: Option<String>,
    #[serde(default)]
    authors: Vec<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// All crates that builds of this repository can use.
pub(super) struct Catalogue {
    packages: HashMap<Id, Package>,
    checksums: HashMap<Id, String>,
}

impl Catalogue {
    /// Asks Cargo for the crates of these targets. For others it would have to fetch crates that no
    /// build here needs.
    pub(super) fn load(repo: &Repo, targets: &[&str]) -> Result<Self> {
        let mut metadata = cargo();
        metadata
            .args(["metadata", "--locked", "--format-version", "1"])
            .current_dir(repo.root());
        for target in targets {
            metadata.args(["--filter-platform", target]);
        }
        let metadata = query(&mut metadata)?;
        let lock = repo.path("Cargo.lock");
        let lock =
            fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        Self::parse(&metadata, &lock)
    }

    fn parse(metadata: &str, lock: &str) -> Result<Self> {
        let metadata: Metadata =
            serde_json::from_str(metadata).context("unexpected metadata of Cargo")?;
        let lock: Lock = toml::from_str(lock).context("unexpected Cargo.lock")?;
        let packages = metadata.packages.into_iter();
        let locked = lock.package.into_iter();
        Ok(Self {
            packages: packages
                .map(|package| ((package.name.clone(), package.version.clone()), package))
                .collect(),
            checksums: locked
                .filter_map(|locked| Some(((locked.name, locked.version), locked.checksum?)))
                .collect(),
        })
    }

    /// Describes one crate.
    pub(super) fn component(&self, id: &Id) -> Result<Component> {
        let (name, version) = id;
        let package = self.packages.get(id);
        let package =
            package.with_context(|| format!("Cargo's metadata does not have {name} {version}"))?;
        let licence = package.license.as_deref();
        let licence = licence.with_context(|| format!("{name} {version} names no licence"))?;
        let licence =
            Expression::parse(licence).with_context(|| format!("{name} {version}: its licence"))?;
        Ok(Component {
            origin: match package.source {
                Some(_) => Origin::Crates,
                None => Origin::Own,
            },
            name: name.clone(),
            version: version.clone(),
            licence,
            authors: package.authors.clone(),
            folder: package.manifest_path.parent().map(Path::to_owned),
            sha256: self.checksums.get(id).cloned(),
            repository: package.repository.clone(),
        })
    }
}

/// Lists the crates that end up in a build of one package for one target: neither those of build
/// scripts and macros, nor those of tests.
pub(super) fn closure_of(repo: &Repo, package: &str, target: &str) -> Result<Closure> {
    let tree = query(
        cargo()
            .args(["tree", "--locked", "--package", package])
            .args(["--target", target, "--edges", "normal,no-proc-macro"])
            .args(["--prefix", "depth", "--format", "{p}"])
            .current_dir(repo.root()),
    )?;
    closure::parse(&tree).with_context(|| format!("cannot list the crates of {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [
        {"name": "serde", "version": "1.0.229", "id": "x", "license": "MIT/Apache-2.0",
         "source": "registry+https://github.com/rust-lang/crates.io-index",
         "manifest_path": "/registry/serde-1.0.229/Cargo.toml",
         "repository": "https://example.org/serde", "authors": ["A <a@example.org>"]},
        {"name": "osb-app", "version": "0.1.0", "license": "Apache-2.0", "source": null,
         "manifest_path": "/src/app/Cargo.toml", "repository": null, "authors": []},
        {"name": "bare", "version": "1.0.0", "license": null, "source": "registry+x",
         "manifest_path": "/registry/bare/Cargo.toml", "repository": null}
    ], "resolve": null}"#;

    const LOCK: &str = "version = 4\n[[package]]\nname = 'serde'\nversion = '1.0.229'\n\
                        checksum = '00ff'\n[[package]]\nname = 'osb-app'\nversion = '0.1.0'\n";

    fn component(name: &str, version: &str) -> Result<Component> {
        let catalogue = Catalogue::parse(METADATA, LOCK).unwrap();
        catalogue.component(&(name.to_owned(), version.to_owned()))
    }

    #[test]
    fn a_crate_is_described_by_metadata_and_lock_file() {
        let serde = component("serde", "1.0.229").unwrap();
        assert_eq!(serde.origin, Origin::Crates);
        assert_eq!(serde.licence.to_spdx(), "MIT OR Apache-2.0");
        assert_eq!(
            serde.folder.as_deref(),
            Some(Path::new("/registry/serde-1.0.229"))
        );
        assert_eq!(serde.sha256.as_deref(), Some("00ff"));
        assert_eq!(serde.authors, ["A <a@example.org>"]);
        let own = component("osb-app", "0.1.0").unwrap();
        assert_eq!((own.origin, own.sha256), (Origin::Own, None));
    }

    #[test]
    fn a_crate_without_a_licence_and_an_unknown_one_are_errors() {
        let bare = component("bare", "1.0.0").unwrap_err().to_string();
        assert_eq!(bare, "bare 1.0.0 names no licence");
        let other = component("serde", "1.0.0").unwrap_err().to_string();
        assert!(other.contains("does not have serde 1.0.0"), "{other}");
    }
}

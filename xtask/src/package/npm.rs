//! npm packages whose files the console's pages load: the dependencies of `package.json`, without
//! those that only build and test.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    component::{Component, Origin},
    licence::Expression,
};
use crate::repo::Repo;

/// Prefix of the names of installed packages in the lock file.
const INSTALLED: &str = "node_modules/";

/// Licences beyond those of `deny.toml`, each for one package.
const EXCEPTIONS: [(&str, &str); 2] = [
    // Its file stays one of its own, with its licence and the way to its source beside it.
    ("@novnc/novnc", "MPL-2.0"),
    // A typeface, which may be shipped with any program.
    ("@fontsource-variable/geist", "OFL-1.1"),
];

#[derive(Deserialize)]
struct Lock {
    packages: BTreeMap<String, Locked>,
}

#[derive(Deserialize)]
struct Locked {
    version: Option<String>,
    license: Option<String>,
    #[serde(default)]
    dev: bool,
}

/// Lists the packages that are bundled.
pub(super) fn bundled(repo: &Repo) -> Result<Vec<Component>> {
    let lock = repo.path("package-lock.json");
    let text =
        fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    parse(&text, repo.root()).with_context(|| format!("cannot read {}", lock.display()))
}

fn parse(lock: &str, root: &Path) -> Result<Vec<Component>> {
    let lock: Lock = serde_json::from_str(lock)?;
    let bundled = lock.packages.into_iter().filter(|(_, it)| !it.dev);
    bundled
        .filter_map(|(path, locked)| {
            // The package of the repository itself has no path.
            let name = path.rsplit_once(INSTALLED)?.1.to_owned();
            Some((name, path, locked))
        })
        .map(|(name, path, locked)| {
            let licence = locked.license;
            let licence = licence.with_context(|| format!("{name} names no licence"))?;
            let version = locked.version;
            Ok(Component {
                origin: Origin::Npm,
                version: version.with_context(|| format!("{name} has no version"))?,
                licence: Expression::parse(&licence)
                    .with_context(|| format!("{name}: its licence"))?,
                authors: Vec::new(),
                folder: Some(root.join(path)),
                sha256: None,
                repository: None,
                name,
            })
        })
        .collect()
}

/// Whether a package may have a licence that others may not.
pub(super) fn is_exception(component: &Component) -> bool {
    let licence = component.licence.to_spdx();
    let found = (component.name.as_str(), licence.as_str());
    component.origin == Origin::Npm && EXCEPTIONS.contains(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"{"packages": {
        "": {"name": "console", "license": "Apache-2.0", "dependencies": {"@novnc/novnc": "1.7.0"}},
        "node_modules/@novnc/novnc": {"version": "1.7.0", "license": "MPL-2.0"},
        "node_modules/@novnc/novnc/node_modules/pako": {"version": "2.1.0", "license": "MIT"},
        "node_modules/axe-core": {"version": "4.0.0", "license": "MPL-2.0", "dev": true}
    }}"#;

    #[test]
    fn only_what_pages_load_is_bundled() {
        let all = parse(LOCK, Path::new("/src")).unwrap();
        let purls: Vec<_> = all.iter().map(Component::purl).collect();
        assert_eq!(
            purls,
            ["pkg:npm/%40novnc/novnc@1.7.0", "pkg:npm/pako@2.1.0"]
        );
        let folder = all[0].folder.as_deref();
        assert_eq!(folder, Some(Path::new("/src/node_modules/@novnc/novnc")));
        let exceptions: Vec<_> = all.iter().map(is_exception).collect();
        assert_eq!(exceptions, [true, false]);
        let unlicensed = LOCK.replace(r#", "license": "MPL-2.0"}"#, "}");
        let error = parse(&unlicensed, Path::new("/src"))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "@novnc/novnc names no licence");
    }

    #[test]
    fn every_exception_is_a_bundled_package() {
        let all = bundled(&Repo::find().unwrap()).unwrap();
        for (name, licence) in EXCEPTIONS {
            let found = all.iter().find(|it| it.name == name && is_exception(it));
            assert!(
                found.is_some(),
                "{name} is not bundled under {licence} any more"
            );
        }
    }
}

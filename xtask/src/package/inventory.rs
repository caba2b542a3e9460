//! What each shipped program consists of. A part whose licence the project does not allow is an error.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::{
    closure::Id,
    component::{Component, Origin},
    crates::{Catalogue, closure_of},
    licence::Policy,
    npm, system, vendored,
};
use crate::{build::native, host::toolchain::WASM, repo::Repo};

/// A program of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Its name in a release.
    pub(super) name: &'static str,
    package: &'static str,
    /// The crate of the pages in it, and whether npm packages are bundled with them.
    pages: Option<&'static str>,
}

/// The server, with the console in it.
pub(super) const SERVER: Program = Program {
    name: "opensandbox-server",
    package: "osb-server",
    pages: Some("osb-frontend"),
};
/// The daemon of sandboxes.
pub(super) const EXECD: Program = Program {
    name: "execd",
    package: "osb-execd",
    pages: None,
};
/// The sidecar of sandboxes.
pub(super) const EGRESS: Program = Program {
    name: "egress",
    package: "osb-egress",
    pages: None,
};
/// All programs of a release.
pub(super) const PROGRAMS: [Program; 3] = [SERVER, EXECD, EGRESS];

/// The parts of one program.
#[derive(Debug)]
pub(super) struct Inventory {
    /// The program.
    pub(super) program: Program,
    /// Its parts by their package URLs.
    pub(super) components: BTreeMap<String, Component>,
    /// What each part uses, by package URLs.
    pub(super) uses: BTreeMap<String, BTreeSet<String>>,
    /// What the program itself uses.
    pub(super) roots: BTreeSet<String>,
}

/// Makes the inventories of all programs.
pub(super) fn of_release(repo: &Repo) -> Result<Vec<Inventory>> {
    let native = native::target()?;
    let source = Source {
        repo,
        catalogue: Catalogue::load(repo, &[native, WASM.target])?,
        native,
        system: system::linked()?,
    };
    let policy = Policy::load(&repo.path("deny.toml"))?;
    let programs = PROGRAMS.into_iter();
    programs
        .map(|program| {
            let inventory = source.inventory(program)?;
            inventory.check(&policy)?;
            Ok(inventory)
        })
        .collect()
}

struct Source<'a> {
    repo: &'a Repo,
    catalogue: Catalogue,
    native: &'static str,
    system: Vec<Component>,
}

impl Source<'_> {
    fn inventory(&self, program: Program) -> Result<Inventory> {
        let mut inventory = Inventory {
            program,
            components: BTreeMap::new(),
            uses: BTreeMap::new(),
            roots: BTreeSet::new(),
        };
        self.add_crates(&mut inventory, program.package, self.native)?;
        if let Some(pages) = program.pages {
            self.add_crates(&mut inventory, pages, WASM.target)?;
            for package in npm::bundled(self.repo)? {
                inventory.add_root(package);
            }
        }
        for library in &self.system {
            inventory.add_root(library.clone());
        }
        Ok(inventory)
    }

    /// Adds a package of the workspace with the crates that it is built from.
    fn add_crates(&self, to: &mut Inventory, package: &str, target: &str) -> Result<()> {
        let closure = closure_of(self.repo, package, target)?;
        let purl = |id: &Id| Ok::<_, anyhow::Error>(self.catalogue.component(id)?.purl());
        for (id, uses) in &closure {
            let component = self.catalogue.component(id)?;
            let name = component.purl();
            let mut used = uses.iter().map(purl).collect::<Result<BTreeSet<_>>>()?;
            if let Some(inside) = vendored::inside(&component)? {
                used.insert(inside.purl());
                to.components.insert(inside.purl(), inside);
            }
            to.uses.entry(name.clone()).or_default().extend(used);
            if component.name == package {
                to.roots.insert(name.clone());
            }
            to.components.insert(name, component);
        }
        Ok(())
    }
}

impl Inventory {
    fn add_root(&mut self, component: Component) {
        let name = component.purl();
        self.roots.insert(name.clone());
        self.components.insert(name, component);
    }

    /// Fails for licences that the project does not allow, and names all of them.
    fn check(&self, policy: &Policy) -> Result<()> {
        let mut refused = Vec::new();
        for component in self.components.values() {
            let is_allowed = component.origin == Origin::Listed
                || policy.allows(&component.licence)
                || npm::is_exception(component);
            if !is_allowed {
                let licence = component.licence.to_spdx();
                refused.push(format!("{} ({licence})", component.title()));
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let refused = refused.join(", ");
        bail!(
            "{} has parts whose licences deny.toml does not allow: {refused}",
            self.program.name
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::package::licence::Expression;

    /// A part without a source.
    pub(in crate::package) fn part(origin: Origin, name: &str, licence: &str) -> Component {
        Component {
            origin,
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: Expression::parse(licence).unwrap(),
            authors: Vec::new(),
            folder: None,
            sha256: None,
            repository: None,
        }
    }

    /// An execd that consists of these parts.
    pub(in crate::package) fn execd_of(parts: &[Component]) -> Inventory {
        let mut inventory = Inventory {
            program: EXECD,
            components: BTreeMap::new(),
            uses: BTreeMap::new(),
            roots: BTreeSet::new(),
        };
        for part in parts {
            inventory.add_root(part.clone());
        }
        inventory
    }

    #[test]
    fn every_part_whose_licence_is_not_allowed_is_named() {
        let file = Repo::find().unwrap().path("deny.toml");
        let policy = Policy::load(&file).unwrap();
        let mut parts = vec![
            part(Origin::Crates, "free", "GPL-3.0-only OR MIT"),
            part(Origin::Npm, "@novnc/novnc", "MPL-2.0"),
            part(Origin::Listed, "glibc", "LGPL-2.1-or-later"),
        ];
        execd_of(&parts).check(&policy).unwrap();
        parts.push(part(Origin::Crates, "strict", "AGPL-3.0-only"));
        parts.push(part(Origin::Npm, "other", "MPL-2.0"));
        let error = execd_of(&parts).check(&policy).unwrap_err().to_string();
        let want = "does not allow: strict 1.0.0 (AGPL-3.0-only), other 1.0.0 (MPL-2.0)";
        assert!(
            error.starts_with("execd ") && error.ends_with(want),
            "{error}"
        );
    }
}

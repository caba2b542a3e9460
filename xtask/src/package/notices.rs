//! Licences and copyright notices of everything that is shipped, in one text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use anyhow::Result;

use super::{
    component::{Component, Origin},
    inventory::Inventory,
    licence_texts::{self, LicenceText},
    release::Release,
};

/// Separates the texts.
const RULE: &str =
    "--------------------------------------------------------------------------------";

/// Writes the notices of all programs.
pub(super) fn render(inventories: &[Inventory], release: &Release) -> Result<String> {
    let mut components: BTreeMap<String, (&Component, BTreeSet<&str>)> = BTreeMap::new();
    for inventory in inventories {
        for (purl, component) in &inventory.components {
            if component.origin != Origin::Own {
                let entry = components.entry(purl.clone());
                let (_, programs) = entry.or_insert_with(|| (component, BTreeSet::new()));
                programs.insert(inventory.program.name);
            }
        }
    }
    let version = release.version();
    let mut text = format!(
        "Third-party software in OpenSandbox {version}\n\n\
         The programs contain the components below. Each line has the name, the version, the\n\
         licence, and the programs that contain the component. The texts follow.\n\n"
    );
    // Many components have the same text.
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (component, programs) in components.values() {
        let licence = component.licence.to_spdx();
        let programs: Vec<_> = programs.iter().copied().collect();
        let programs = programs.join(", ");
        line(
            &mut text,
            &format!("{}: {licence}; {programs}", component.title()),
        );
        if let (Origin::Listed, Some(source)) = (component.origin, &component.repository) {
            line(&mut text, &format!("    its source: {source}"));
        }
        for LicenceText { file, text } in licence_texts::of(component)? {
            let title = component.title();
            let owner = file.map_or_else(|| title.clone(), |file| format!("{title} ({file})"));
            let index = *known.entry(text.clone()).or_insert_with(|| {
                texts.push((text, Vec::new()));
                texts.len() - 1
            });
            texts[index].1.push(owner);
        }
    }
    for (licence, owners) in &texts {
        line(
            &mut text,
            &format!("\n{RULE}\n{}\n\n{licence}", owners.join("\n")),
        );
    }
    Ok(text)
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("strings take everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::inventory::{
        SERVER,
        tests::{execd_of, part},
    };

    #[test]
    fn components_are_listed_once_and_so_is_each_text() {
        let mut parts = vec![
            part(Origin::Crates, "a", "MIT"),
            part(Origin::Crates, "b", "MIT OR Zlib"),
            part(Origin::Own, "osb-log", "Apache-2.0"),
            part(Origin::Crates, "c", "Zlib"),
        ];
        for part in &mut parts {
            part.authors.push("Someone".to_owned());
        }
        let execd = execd_of(&parts);
        let mut server = execd_of(&parts[..1]);
        server.program = SERVER;
        let release = Release::at("1.2.3", 0);
        let text = render(&[execd, server], &release).unwrap();
        let (list, texts) = text.split_once(RULE).unwrap();
        assert!(
            list.starts_with("Third-party software in OpenSandbox 1.2.3\n"),
            "{list}"
        );
        assert!(
            list.contains("\na 1.0.0: MIT; execd, opensandbox-server\n"),
            "{list}"
        );
        assert!(list.contains("\nb 1.0.0: MIT OR Zlib; execd\n"), "{list}");
        assert!(!text.contains("osb-log"), "{text}");
        assert!(texts.starts_with("\na 1.0.0\nb 1.0.0\n\n"), "{texts}");
        assert_eq!(
            texts.matches("Permission is hereby granted").count(),
            1,
            "{texts}"
        );
        assert!(texts.contains("\nc 1.0.0\n\n"), "{texts}");
    }
}

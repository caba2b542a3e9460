//! The licence texts that come with a component or, where it has none, the standard text.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{component::Component, system};

/// Beginnings of the names of files with licences, in upper case.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
/// Endings of files with such names that are something else.
const NO_TEXTS: [&str; 6] = ["rs", "toml", "json", "html", "js", "py"];
/// Folders that are looked into, below that of the component.
const DEPTH: usize = 3;

const MIT: &str = include_str!("texts/MIT.txt");
const BSD_3_CLAUSE: &str = include_str!("texts/BSD-3-Clause.txt");
const APACHE_2_0: &str = include_str!("../../../LICENSE");

/// A text, with the name of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LicenceText {
    /// Path below the folder of the component; `None` for a standard text.
    pub(super) file: Option<String>,
    /// The text, without blank lines around it.
    pub(super) text: String,
}

/// Finds the texts of a component.
pub(super) fn of(component: &Component) -> Result<Vec<LicenceText>> {
    let mut found = Vec::new();
    if let Some(folder) = &component.folder {
        for file in files(folder, DEPTH)? {
            found.push(read(&file, folder)?);
        }
    }
    if let Some(file) = system::licence_text(component) {
        found.push(read(&file, Path::new("/"))?);
    }
    if found.is_empty() {
        found.push(standard(component));
    }
    Ok(found)
}

fn read(file: &Path, folder: &Path) -> Result<LicenceText> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    let name = file.strip_prefix(folder).unwrap_or(file);
    Ok(LicenceText {
        file: Some(name.display().to_string()),
        text: text.trim_matches('\n').to_owned(),
    })
}

/// Files with licences in a folder and below, sorted.
fn files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && depth > 0 {
            found.extend(files(&path, depth - 1)?);
        } else if kind.is_file() && is_licence(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file has the name of a licence, or lies in a folder for licences.
fn is_licence(path: &Path) -> bool {
    let upper = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().to_uppercase()
    };
    let folder = path.parent().map(upper).unwrap_or_default();
    let name = upper(path);
    let has_name = NAMES.iter().any(|known| name.starts_with(known));
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    (has_name || folder == "LICENSES") && !NO_TEXTS.contains(&&*extension)
}

/// The text that belongs to the licence, for a component that is published without one.
fn standard(component: &Component) -> LicenceText {
    let licences = component.licence.licences();
    let holders = match component.authors.as_slice() {
        [] => format!("the contributors of {}", component.name),
        authors => authors.join(", "),
    };
    let known = [
        ("Apache-2.0", APACHE_2_0),
        ("MIT", MIT),
        ("BSD-3-Clause", BSD_3_CLAUSE),
    ];
    let known = known.iter().find(|(name, _)| licences.contains(name));
    let note = "This component is published without a licence text.";
    let text = match known {
        Some((name, text)) => {
            let text = text.trim_matches('\n');
            format!("{note} It is used under {name}.\n\nCopyright (c) {holders}\n\n{text}")
        }
        None => {
            let licence = component.licence.to_spdx();
            let list = "https://spdx.org/licenses/";
            format!("{note} Its licence is {licence}; {list} has the text.")
        }
    };
    LicenceText { file: None, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::{component::Origin, inventory::tests::part};

    #[test]
    fn texts_are_found_wherever_a_component_has_them() {
        let folder = std::env::temp_dir().join(format!("xtask-licences-{}", std::process::id()));
        for (path, text) in [
            ("LICENSE-MIT", "\nmit\r\ntext\n\n"),
            ("Licence.txt", "a"),
            ("NOTICE", "b"),
            ("LICENSES/ISC.txt", "c"),
            ("third_party/fiat/LICENSE", "d"),
            ("src/license.rs", "no text"),
            ("src/lib.rs", "no text"),
            ("a/b/c/d/LICENSE", "too deep"),
        ] {
            let file = folder.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let mut component = part(Origin::Crates, "a", "MIT");
        component.folder = Some(folder.clone());
        let found = of(&component).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.file.as_deref().unwrap(), it.text.as_str()))
            .collect();
        let want = [
            ("LICENSE-MIT", "mit\ntext"),
            ("LICENSES/ISC.txt", "c"),
            ("Licence.txt", "a"),
            ("NOTICE", "b"),
            ("third_party/fiat/LICENSE", "d"),
        ];
        assert_eq!(found, want);
        fs::remove_dir_all(&folder).unwrap();
        assert!(of(&component).is_err(), "a source that is gone is an error");
    }

    #[test]
    fn a_component_without_a_text_gets_the_standard_one() {
        let text = |licence: &str, authors: &[&str]| {
            let mut component = part(Origin::Crates, "a", licence);
            component.authors = authors.iter().map(|&author| author.to_owned()).collect();
            let found = of(&component).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].file, None);
            found[0].text.clone()
        };
        let mit = text("MIT", &["A", "B <b@example.org>"]);
        assert!(
            mit.contains("Copyright (c) A, B <b@example.org>\n\nPermission is"),
            "{mit}"
        );
        let choice = text("MIT OR Apache-2.0", &[]);
        assert!(choice.contains("used under Apache-2.0"), "{choice}");
        assert!(
            choice.contains("Copyright (c) the contributors of a"),
            "{choice}"
        );
        assert!(text("BSD-3-Clause", &[]).contains("Neither the name"));
        let other = text("Zlib", &[]);
        assert!(other.ends_with("Its licence is Zlib; https://spdx.org/licenses/ has the text."));
    }
}

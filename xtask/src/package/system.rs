//! Libraries of the machine that builds: a static program contains parts of them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{
    component::{Component, Origin},
    licence::Expression,
};
use crate::process::query;

/// Folder of licence texts on Debian.
const TEXTS: &str = "/usr/share/common-licenses";

/// A library that the linker adds.
struct Library {
    name: &'static str,
    licence: &'static str,
    /// Where its source is.
    source: &'static str,
    /// Prints its version, perhaps after a word.
    version: (&'static str, &'static [&'static str]),
    /// Name of its licence text in [`TEXTS`], for a licence whose text has to accompany it.
    text: Option<&'static str>,
}

static LIBRARIES: [Library; 3] = [
    Library {
        name: "glibc",
        // A user who has the source can link another version: `cargo xtask package` does.
        licence: "LGPL-2.1-or-later",
        source: "https://sourceware.org/git/glibc.git",
        version: ("getconf", &["GNU_LIBC_VERSION"]),
        text: Some("LGPL-2.1"),
    },
    Library {
        name: "libgcc",
        // The exception lets programs of any licence contain it.
        licence: "GPL-3.0-or-later WITH GCC-exception-3.1",
        source: "https://gcc.gnu.org/git/gcc.git",
        version: ("gcc", &["-dumpfullversion"]),
        text: None,
    },
    Library {
        name: "rust-std",
        licence: "MIT OR Apache-2.0",
        source: "https://github.com/rust-lang/rust",
        version: ("rustc", &["--version"]),
        text: None,
    },
];

/// Lists the libraries with the versions of this machine.
pub(super) fn linked() -> Result<Vec<Component>> {
    LIBRARIES.iter().map(Library::component).collect()
}

impl Library {
    fn component(&self) -> Result<Component> {
        let (program, arguments) = self.version;
        let printed = query(Command::new(program).args(arguments))?;
        let version = version(&printed)
            .with_context(|| format!("{program} prints no version: {printed:?}"))?;
        Ok(Component {
            origin: Origin::Listed,
            name: self.name.to_owned(),
            version: version.to_owned(),
            licence: Expression::parse(self.licence)?,
            authors: Vec::new(),
            folder: None,
            sha256: None,
            repository: Some(self.source.to_owned()),
        })
    }
}

/// The first word that begins with a digit.
fn version(printed: &str) -> Option<&str> {
    let mut words = printed.split_whitespace();
    words.find(|word| word.starts_with(|char: char| char.is_ascii_digit()))
}

/// File with the licence text of a library, if it has to accompany the library.
pub(super) fn licence_text(component: &Component) -> Option<PathBuf> {
    let mut libraries = LIBRARIES.iter();
    let library = libraries.find(|it| it.name == component.name)?;
    Some(Path::new(TEXTS).join(library.text?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        assert_eq!(version("glibc 2.36"), Some("2.36"));
        assert_eq!(version("12.2.0\n"), Some("12.2.0"));
        assert_eq!(
            version("rustc 1.95.0 (59807616e 2026-04-14)"),
            Some("1.95.0")
        );
        assert_eq!(version("no version"), None);
    }

    #[test]
    fn every_library_has_a_version_on_a_machine_that_builds() {
        let all = linked().unwrap();
        let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["glibc", "libgcc", "rust-std"]);
        let text = licence_text(&all[0]);
        assert_eq!(
            text,
            Some(PathBuf::from("/usr/share/common-licenses/LGPL-2.1"))
        );
        assert_eq!(licence_text(&all[1]), None);
    }
}

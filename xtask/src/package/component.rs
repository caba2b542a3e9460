//! A part of a shipped program that others wrote, or a crate of this repository.

use std::{fmt::Write, path::PathBuf};

use super::licence::Expression;

/// Where a component comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// This repository.
    Own,
    /// The registry of crates.
    Crates,
    /// The registry of npm.
    Npm,
    /// Neither: a library of the machine that builds, or software inside a crate. Each is listed in the
    /// code, with a licence that was read.
    Listed,
}

/// One component.
#[derive(Clone, Debug)]
pub(super) struct Component {
    /// Where it comes from.
    pub(super) origin: Origin,
    /// Its name there.
    pub(super) name: String,
    /// Its version there.
    pub(super) version: String,
    /// What its authors allow.
    pub(super) licence: Expression,
    /// Holders of the copyright, for a licence text that the component does not have itself.
    pub(super) authors: Vec<String>,
    /// Folder of its source, or of what is bundled of it. None for listed ones.
    pub(super) folder: Option<PathBuf>,
    /// SHA-256 of its source as it is published, in hexadecimal digits.
    pub(super) sha256: Option<String>,
    /// Address of its source.
    pub(super) repository: Option<String>,
}

impl Component {
    /// Name in the notation of package URLs: the same in every tool that reads such lists.
    pub(super) fn purl(&self) -> String {
        let kind = match self.origin {
            Origin::Own | Origin::Listed => "generic",
            Origin::Crates => "cargo",
            Origin::Npm => "npm",
        };
        purl(kind, &self.name, &self.version)
    }

    /// Name and version, for readers.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// A package URL. The name may have a namespace before a slash.
pub(super) fn purl(kind: &str, name: &str, version: &str) -> String {
    let name = name.split('/').map(encode).collect::<Vec<_>>().join("/");
    format!("pkg:{kind}/{name}@{}", encode(version))
}

/// Encodes the characters with a meaning of their own.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            other => write!(encoded, "%{other:02X}").expect("strings take everything"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_urls_are_unambiguous() {
        assert_eq!(purl("cargo", "serde", "1.0.229"), "pkg:cargo/serde@1.0.229");
        let scoped = purl("npm", "@xterm/xterm", "6.0.0");
        assert_eq!(scoped, "pkg:npm/%40xterm/xterm@6.0.0");
        let build = purl("cargo", "wasi", "0.11.1+snapshot");
        assert_eq!(build, "pkg:cargo/wasi@0.11.1%2Bsnapshot");
    }
}

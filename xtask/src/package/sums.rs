//! Checksums of what is published.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::step::hex;

/// Name of the file with the checksums.
const FILE: &str = "SHA256SUMS";
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// SHA-256 of a file, in hexadecimal digits.
pub(super) fn of_file(path: &Path) -> Result<String> {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(hex(&hash.finalize())),
                length => hash.update(&chunk[..length]),
            }
        }
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// Writes the checksums of files in a folder, as `sha256sum --check` reads them.
pub(super) fn write(folder: &Path, names: &[String]) -> Result<()> {
    let mut names: Vec<_> = names.iter().collect();
    names.sort();
    let mut text = String::new();
    for name in names {
        let sum = of_file(&folder.join(name))?;
        text.push_str(&format!("{sum}  {name}\n"));
    }
    let file = folder.join(FILE);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::run;

    #[test]
    fn sums_are_those_that_the_systems_program_checks() {
        let folder = std::env::temp_dir().join(format!("xtask-sums-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("b"), vec![7_u8; CHUNK + 1]).unwrap();
        fs::write(folder.join("a"), "").unwrap();
        write(&folder, &["b".to_owned(), "a".to_owned()]).unwrap();
        let text = fs::read_to_string(folder.join(FILE)).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n";
        assert!(text.starts_with(empty), "{text}");
        let check = || {
            let mut check = Command::new("sha256sum");
            run(check
                .args(["--check", "--strict", FILE])
                .current_dir(&folder))
        };
        check().unwrap();
        fs::write(folder.join("b"), "other").unwrap();
        assert!(check().is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}

//! The seccomp profile of sandboxes. The engine's API takes the profile itself, while an operator names
//! a file.

use std::{fs, io, path::PathBuf};

/// Words of the engine instead of a profile.
const WORDS: [&str; 2] = ["unconfined", "builtin"];
/// Largest file that is read, in bytes. The engine's own profile has 12 KiB.
const FILE_MAX: u64 = 1 << 20;

/// Why a profile cannot be used. The messages do not repeat its content.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Not an object in JSON.
    #[error("must be unconfined, builtin, a profile as JSON, or a file with one")]
    NotAProfile,
}

/// Returns the profile as the engine takes it: the text of a profile, or one of its words.
pub(super) fn profile(value: &str) -> Result<String, SeccompError> {
    let value = value.trim();
    if WORDS.contains(&value) {
        return Ok(value.to_owned());
    }
    let text = match value.starts_with('{') {
        true => value.to_owned(),
        false => {
            let path = PathBuf::from(value);
            read(&path).map_err(|source| SeccompError::Unreadable { path, source })?
        }
    };
    match serde_json::from_str(&text) {
        Ok(serde_json::Value::Object(_)) => Ok(text),
        _ => Err(SeccompError::NotAProfile),
    }
}

fn read(path: &std::path::Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    if metadata.len() > FILE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stands_for_the_profile_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#;
        fs::write(&path, text).unwrap();
        let named = path.to_str().unwrap();
        assert_eq!(profile(named).unwrap(), text);
        assert_eq!(profile(text).unwrap(), text);
        assert_eq!(profile(" unconfined ").unwrap(), "unconfined");
        fs::write(&path, "[\"hunter2\"]").unwrap();
        let error = profile(named).unwrap_err().to_string();
        assert!(
            error.contains("profile") && !error.contains("hunter2"),
            "{error}"
        );
        for missing in ["runtime/default", "/no/such/file", "/dev/null", "{"] {
            assert!(profile(missing).is_err(), "{missing}");
        }
    }
}

//! `init-config`: a file that works as it is (contract: lifecycle §16).

use std::path::{Path, PathBuf};

/// A Docker configuration with every key this release reads.
const DOCKER: &str = include_str!("example.docker.toml");

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// It would overwrite something.
    #[error("{0} exists; use --force to overwrite it")]
    Exists(PathBuf),
    /// It cannot be written.
    #[error("{path}: cannot be written")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Writes the example configuration, with mode 0600 because a key will be put into it.
///
/// # Errors
/// When the file exists and `force` is not given, or it cannot be written.
pub fn write_example(path: &Path, force: bool) -> Result<(), InitError> {
    let failed = |source| InitError::Write {
        path: path.to_owned(),
        source,
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let opened = if force {
        options.write(true).create(true).truncate(true).open(path)
    } else {
        options.write(true).create_new(true).open(path)
    };
    let mut file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(InitError::Exists(path.to_owned()));
        }
        result => result.map_err(failed)?,
    };
    std::io::Write::write_all(&mut file, DOCKER.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_loads_without_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/sandbox.toml");
        write_example(&path, false).unwrap();
        let loaded = super::super::load(Some(&path), &|_| None).unwrap();
        assert_eq!(loaded.unknown, []);
        assert_eq!(loaded.config.notes(), [""; 0]);
        assert_eq!(loaded.config.docker.publish_host, "127.0.0.1");
        assert!(matches!(
            write_example(&path, false),
            Err(InitError::Exists(_))
        ));
        write_example(&path, true).unwrap();
    }
}

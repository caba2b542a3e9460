//! Path resolution by the kernel's rules.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use crate::error::{ApiError, ApiResult};

/// Rejects invalid paths.
///
/// # Errors
/// 400 when the path is empty or contains a NUL.
pub(crate) fn must_name_something(given: &OsStr) -> ApiResult<()> {
    if given.is_empty() {
        return Err(ApiError::invalid("path must not be empty"));
    }
    if given.as_bytes().contains(&0) {
        return Err(ApiError::invalid("path must not contain NUL"));
    }
    Ok(())
}

/// Makes a path absolute relative to the working directory, and normalises it by the kernel's
/// rules: `..` after a link refers to the parent of the link's target.
///
/// A `..` that the kernel cannot resolve stays in the path, so that the kernel reports the error.
///
/// # Errors
/// When the working directory was deleted.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let joined = std::path::absolute(path)?;
    let mut clean = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => match above(&clean) {
                Some(above) => clean = above,
                None => return Ok(joined.components().collect()),
            },
            other => clean.push(other),
        }
    }
    Ok(clean)
}

/// Parent that the kernel finds for `..` in a directory. `None` when the path is not a directory.
pub(crate) fn above(directory: &Path) -> Option<PathBuf> {
    let is_link = directory.symlink_metadata().ok()?.is_symlink();
    let mut above = if is_link {
        directory.canonicalize().ok()?
    } else {
        directory.to_owned()
    };
    if !above.is_dir() {
        return None;
    }
    // The root is its own parent.
    above.pop();
    Some(above)
}

/// Creates a directory and its missing parents.
///
/// # Errors
/// The kernel's error; if a file is in the way, its path.
pub fn create_directories(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, NotADirectory};
    std::fs::create_dir_all(path).map_err(|error| {
        let mut existing = path
            .ancestors()
            .filter(|path| path.symlink_metadata().is_ok());
        match existing.next() {
            Some(obstacle)
                if matches!(error.kind(), AlreadyExists | NotADirectory) && !obstacle.is_dir() =>
            {
                let why = format!("{} is not a directory", obstacle.display());
                io::Error::new(NotADirectory, why)
            }
            _ => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn absolute_paths_are_clean() {
        let absolute = |path| absolute(Path::new(path)).unwrap();
        assert_eq!(absolute("/usr/./bin/../lib//x/"), Path::new("/usr/lib/x"));
        assert_eq!(absolute("/../.."), Path::new("/"));
        assert_eq!(absolute("x"), std::env::current_dir().unwrap().join("x"));
    }

    #[test]
    fn the_parent_is_the_kernel_s() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir_all(at("releases/7")).unwrap();
        fs::write(at("releases/conf"), "").unwrap();
        symlink("releases/7", at("current")).unwrap();
        symlink(place.path(), at("here")).unwrap();
        let real = place.path().canonicalize().unwrap();
        let clean = |path: &str| absolute(&at(path)).unwrap();
        assert_eq!(clean("current/../conf"), real.join("releases/conf"));
        assert_eq!(clean("releases/7/.././conf/"), at("releases/conf"));
        assert_eq!(clean("here/releases/../x"), at("here/x"));
        for stays in ["absent/../x", "releases/conf/../x"] {
            assert_eq!(clean(stays), at(stays), "the kernel refuses it");
        }
    }

    #[test]
    fn a_blocking_file_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("a"), file.join("a/b")] {
            let error = create_directories(&path).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{} is not a directory", file.display())
            );
        }
        create_directories(&place.path().join("a/b/../c")).unwrap();
        assert!(place.path().join("a/c").is_dir());
    }
}

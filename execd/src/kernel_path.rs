//! Path resolution by the kernel's rules.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
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
/// See [`create_directories_with`].
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    create_directories_with(path, |_| Ok(()))
}

/// Creates a directory and its missing parents, and passes each new one to `created`, parents first,
/// as an `O_PATH` descriptor. Directories that exist are not passed.
///
/// # Errors
/// The kernel's error, and that of the function; if a file is in the way, its path.
pub(crate) fn create_directories_with(
    path: &Path,
    created: impl FnMut(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, NotADirectory};
    create_missing(path, created).map_err(|error| {
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

/// Creates the missing end of a path. Each directory is created in the open one above it, so that a
/// process that exchanges a name meanwhile cannot redirect later steps.
fn create_missing(
    path: &Path,
    mut created: impl FnMut(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let mut missing = Vec::new();
    let mut existing = path;
    let mut directory = loop {
        match openat(CWD, existing, OPEN, Mode::empty()) {
            Ok(directory) => break directory,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let (Some(last), Some(above)) = (existing.components().next_back(), existing.parent())
        else {
            return Err(Errno::NOENT.into());
        };
        missing.push(last.as_os_str());
        existing = above;
    };
    for name in missing.into_iter().rev() {
        let made = mkdirat(&directory, name, Mode::from_raw_mode(0o777));
        let flags = match made {
            // The name of a new directory is no link, unless another process exchanged it.
            Ok(()) => OPEN | OFlags::NOFOLLOW,
            // A dangling link, or another process created it meanwhile.
            Err(Errno::EXIST) => OPEN,
            Err(errno) => return Err(errno.into()),
        };
        let opened = openat(&directory, name, flags, Mode::empty());
        directory = opened.map_err(|errno| made.err().unwrap_or(errno))?;
        if made.is_ok() {
            created(&directory)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{fd::AsRawFd, unix::fs::symlink},
    };

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
        symlink("absent", place.path().join("dangling")).unwrap();
        let error = create_directories(&place.path().join("dangling/a")).unwrap_err();
        assert!(error.to_string().ends_with("dangling is not a directory"));
    }

    #[test]
    fn only_new_directories_are_reported() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |path: &str| real.join(path);
        fs::create_dir_all(at("there/deep")).unwrap();
        symlink("there", at("link")).unwrap();
        let created = |path: &str| {
            let mut all = Vec::new();
            let note = |directory: &OwnedFd| {
                let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
                all.push(fs::read_link(name)?);
                Ok(())
            };
            create_directories_with(&at(path), note).map(|()| all)
        };
        for path in ["there/deep", "link", "link/deep"] {
            assert_eq!(created(path).unwrap(), Vec::<PathBuf>::new(), "{path}");
        }
        let new = ["there/new", "there/new/er"].map(at);
        assert_eq!(created("link/new/er").unwrap(), new);
        assert_eq!(
            created("there/new/er/est").unwrap(),
            [at("there/new/er/est")]
        );
    }

    #[test]
    fn a_directory_that_another_process_exchanged_for_a_link_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir(at("other")).unwrap();
        // What the owner of a new directory may do while those below it are created.
        let mut parents = 0;
        let exchange = |_: &OwnedFd| {
            parents += 1;
            if parents == 1 {
                fs::rename(at("a"), at("moved"))?;
                symlink("other", at("a"))?;
            }
            Ok(())
        };
        create_directories_with(&at("a/b/c"), exchange).unwrap();
        assert_eq!(parents, 3);
        assert!(at("moved/b/c").is_dir());
        assert_eq!(fs::read_dir(at("other")).unwrap().count(), 0);
    }
}

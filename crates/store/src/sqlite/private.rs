//! The store's files: only for this user, and only for one server at a time.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Makes folder and file without access for others (sessions lie in it) and takes the lock.
pub(super) fn prepare(path: &Path) -> io::Result<File> {
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    private_file(path)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let lock = private_file(&PathBuf::from(beside))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another server uses it; give each a store.path of its own",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_private_and_locked_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/store.db");
        let lock = prepare(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(
            prepare(&path)
                .unwrap_err()
                .to_string()
                .contains("another server")
        );
        drop(lock);
        assert!(prepare(&path).is_ok());
    }
}

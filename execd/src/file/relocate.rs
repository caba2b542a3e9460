//! Moving and deleting (contract: execd §10.2, §10.3, §10.8).

use std::{fs, io, os::unix::fs::symlink, path::Path};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::error::{ApiError, ApiResult};

/// Deletes a file or a link; what is absent is fine.
pub(super) fn delete_file(path: &Path) -> ApiResult<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => Err(ApiError::runtime(format!(
            "error deleting file: path is a directory: {}",
            path.display()
        ))),
        Ok(_) => gone(path, fs::remove_file(path)),
        Err(error) => gone(path, Err(error)),
    }
}

/// Deletes a directory with all that is in it; what is absent is fine.
pub(super) fn delete_tree(path: &Path) -> ApiResult<()> {
    if path == Path::new("/") {
        return Err(ApiError::runtime(
            "error deleting directory: / is not deleted",
        ));
    }
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => gone(path, fs::remove_dir_all(path)),
        Ok(_) => gone(path, fs::remove_file(path)),
        Err(error) => gone(path, Err(error)),
    }
}

fn gone(path: &Path, deleted: io::Result<()>) -> ApiResult<()> {
    match deleted {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let message = format!("error deleting {}: {error}", path.display());
            Err(ApiError::runtime(message))
        }
        _ => Ok(()),
    }
}

/// Moves an entry to a path that must not exist. Between filesystems it is copied, then deleted.
pub(super) fn rename(from: &Path, to: &Path) -> ApiResult<()> {
    from.symlink_metadata()
        .map_err(|error| ApiError::file(from, &error))?;
    let exists = || {
        let message = format!(
            "error moving file: destination path already exists: {}",
            to.display()
        );
        ApiError::runtime(message)
    };
    let failed = |error: io::Error| {
        let (from, to) = (from.display(), to.display());
        ApiError::runtime(format!("error moving file: {from} to {to}: {error}"))
    };
    if to.symlink_metadata().is_ok() {
        return Err(exists());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(exists()),
        Err(Errno::XDEV) => {
            if let Err(error) = copy(from, to) {
                // Half a copy is worth nothing, and the source is still whole.
                let _partial = remove(to);
                return Err(failed(error));
            }
            remove(from).map_err(failed)
        }
        // Filesystems that cannot refuse to replace.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to).map_err(failed),
        Err(errno) => Err(failed(errno.into())),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Copies files, directories and links with mode, owner and times as far as allowed.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in walkdir::WalkDir::new(from)
        .follow_root_links(false)
        .contents_first(false)
    {
        let entry = entry?;
        let below = entry.path().strip_prefix(from).expect("walked below it");
        // Joining an empty path would add a slash, which a file does not take.
        let target = if below.as_os_str().is_empty() {
            to.to_owned()
        } else {
            to.join(below)
        };
        let meta = entry.metadata()?;
        let kind = entry.file_type();
        if kind.is_dir() {
            fs::create_dir(&target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        } else {
            let text = format!(
                "{} is neither file, directory nor link",
                entry.path().display()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        keep(&target, &meta)?;
    }
    Ok(())
}

fn keep(path: &Path, meta: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    // Not everybody may give files away; then they stay ours.
    let _refused = std::os::unix::fs::lchown(path, Some(meta.uid()), Some(meta.gid()));
    if meta.is_symlink() {
        return Ok(());
    }
    fs::set_permissions(path, meta.permissions())?;
    if meta.is_file() {
        let times = fs::FileTimes::new().set_modified(meta.modified()?);
        fs::File::open(path)?.set_times(times)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn moving_makes_parents_and_never_replaces() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        assert_eq!(rename(&at("absent"), &at("c")).unwrap_err().status(), 404);
        assert_eq!(rename(&at("a"), &at("b")).unwrap_err().status(), 500);
        rename(&at("a"), &at("new/deep/a")).unwrap();
        assert_eq!(fs::read(at("new/deep/a")).unwrap(), b"a");
        symlink("nowhere", at("dangling")).unwrap();
        rename(&at("dangling"), &at("moved")).unwrap();
        delete_file(&at("moved")).unwrap();
        assert!(at("moved").symlink_metadata().is_err());
    }

    #[test]
    fn copies_keep_what_they_can() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir_all(at("from/sub")).unwrap();
        fs::write(at("from/sub/f"), "text").unwrap();
        fs::set_permissions(at("from/sub/f"), fs::Permissions::from_mode(0o751)).unwrap();
        symlink("sub/f", at("from/link")).unwrap();
        copy(&at("from"), &at("to")).unwrap();
        let meta = fs::metadata(at("to/sub/f")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o751);
        assert_eq!(fs::read_link(at("to/link")).unwrap(), Path::new("sub/f"));
        copy(&at("from/sub/f"), &at("single")).unwrap();
        assert_eq!(fs::read(at("single")).unwrap(), b"text");
    }

    #[test]
    fn deleting_what_is_absent_is_fine() {
        let place = tempfile::tempdir().unwrap();
        let absent = place.path().join("absent");
        delete_file(&absent).unwrap();
        delete_tree(&absent).unwrap();
        assert!(delete_file(place.path()).is_err());
        assert!(delete_tree(Path::new("/")).is_err());
    }
}

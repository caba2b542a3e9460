//! Moves and deletions (contract: execd §10.2, §10.3, §10.8).

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, symlink},
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, OFlags, RenameFlags, Timespec, Timestamps, renameat_with, utimensat},
    io::Errno,
};

use super::permission::Change;
use crate::{
    error::{ApiError, ApiResult, client_message},
    kernel_path,
    removal::{Closed, remove},
};

/// Deletes a file or a link; an absent one is no error.
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

/// Rejects paths that end in `.` or `..`, as `rm` does: their meaning depends on execd's working
/// directory, and few clients intend that.
pub(super) fn must_be_deletable_by_name(given: &OsStr) -> ApiResult<()> {
    let mut names = given.as_bytes().rsplit(|byte| *byte == b'/');
    if matches!(names.find(|name| !name.is_empty()), Some(b"." | b"..")) {
        let given = given.display();
        let message = format!("error deleting directory: path must not end in . or ..: {given}");
        return Err(ApiError::invalid(message));
    }
    Ok(())
}

/// Deletes a directory with its contents; an absent one is no error.
///
/// Rejects the root, execd's working directory and its parents: relative paths would have no
/// meaning afterwards.
pub(super) fn delete_tree(path: &Path) -> ApiResult<()> {
    let refuse = |why| {
        let message = format!("error deleting directory: {} {why}", path.display());
        Err(ApiError::invalid(message))
    };
    if path == Path::new("/") {
        return refuse("is the root");
    }
    if holds_working_directory(path) {
        return refuse("holds execd's working directory");
    }
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => gone(path, remove(path, Closed::Kept)),
        Ok(_) => gone(path, fs::remove_file(path)),
        Err(error) => gone(path, Err(error)),
    }
}

/// Whether deleting an entry would delete the working directory. Deleting a link to it would not.
fn holds_working_directory(path: &Path) -> bool {
    let is_directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let real = path.canonicalize().ok().filter(|_| is_directory);
    let current = std::env::current_dir().ok();
    real.zip(current)
        .is_some_and(|(real, current)| current.starts_with(real))
}

fn gone(path: &Path, deleted: io::Result<()>) -> ApiResult<()> {
    match deleted {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let why = client_message(&error);
            let message = format!("error deleting {}: {why}", path.display());
            Err(ApiError::runtime(message))
        }
        _ => Ok(()),
    }
}

/// Moves an entry to a path that must not exist. Between file systems it copies, then deletes.
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
        let (from, to, why) = (from.display(), to.display(), client_message(&error));
        ApiError::runtime(format!("error moving file: {from} to {to}: {why}"))
    };
    if to.symlink_metadata().is_ok() {
        return Err(exists());
    }
    if let Some(parent) = to.parent() {
        kernel_path::create_directories(parent).map_err(failed)?;
    }
    match rename_new(from, to) {
        Err(Errno::XDEV) => across(from, to).map_err(failed),
        Err(Errno::EXIST) => Err(exists()),
        moved => moved.map_err(|errno| failed(errno.into())),
    }
}

/// Renames to a path that must not exist.
fn rename_new(from: &Path, to: &Path) -> rustix::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // File systems without `RENAME_NOREPLACE`.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::rename(from, to),
        moved => moved,
    }
}

/// Moves to another file system. The copy is made next to the target and renamed once it is
/// complete; the source is deleted last.
fn across(from: &Path, to: &Path) -> io::Result<()> {
    let into = to.parent().unwrap_or(to).canonicalize()?;
    if from.symlink_metadata()?.is_dir() && into.starts_with(from.canonicalize()?) {
        let text = "a directory cannot be moved into itself";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let name = format!(".execd-move-{}", uuid::Uuid::new_v4().simple());
    let temporary = into.join(name);
    let copied = copy(from, &temporary).and_then(|()| Ok(rename_new(&temporary, to)?));
    if copied.is_err() {
        // A partial copy is useless, and the source is still complete.
        let _partial = remove(&temporary, Closed::Kept);
        return copied;
    }
    remove(from, Closed::Kept)
}

/// Copies files, directories and links; keeps mode, owner and times as far as permitted.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut directories = Vec::new();
    for entry in walkdir::WalkDir::new(from).follow_root_links(false) {
        let entry = entry?;
        let below = entry.path().strip_prefix(from).expect("walked below it");
        // Joining an empty path would add a slash, which is invalid for a file.
        let target = if below.as_os_str().is_empty() {
            to.to_owned()
        } else {
            to.join(below)
        };
        let meta = entry.metadata()?;
        let kind = entry.file_type();
        if kind.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(&target)?;
            directories.push((target, meta));
            continue;
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
    // Creating entries needs the directory's permission and changes its time.
    let mut inmost_first = directories.iter().rev();
    inmost_first.try_for_each(|(path, meta)| keep(path, meta))
}

fn keep(path: &Path, meta: &fs::Metadata) -> io::Result<()> {
    // Unprivileged users cannot change owners; the copy then belongs to execd's user.
    let _refused = std::os::unix::fs::lchown(path, Some(meta.uid()), Some(meta.gid()));
    if !meta.is_symlink() {
        let mode = Change {
            mode: Some(meta.mode() & 0o7777),
            ..Change::default()
        };
        // Another process may have put a link in its place.
        mode.apply_at(path, OFlags::NOFOLLOW)?;
    }
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: meta.atime(),
            tv_nsec: meta.atime_nsec(),
        },
        last_modification: Timespec {
            tv_sec: meta.mtime(),
            tv_nsec: meta.mtime_nsec(),
        },
    };
    // Some file systems keep their own times.
    let _refused = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_move_creates_parents_and_replaces_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        let moved = rename(&at("absent"), &at("c"));
        assert!(matches!(moved, Err(ApiError::FileNotFound(_))));
        let moved = rename(&at("a"), &at("b"));
        assert!(matches!(moved, Err(ApiError::System(_))));
        rename(&at("a"), &at("new/deep/a")).unwrap();
        assert_eq!(fs::read(at("new/deep/a")).unwrap(), b"a");
        symlink("nowhere", at("dangling")).unwrap();
        rename(&at("dangling"), &at("moved")).unwrap();
        delete_file(&at("moved")).unwrap();
        assert!(at("moved").symlink_metadata().is_err());
    }

    #[test]
    fn copies_keep_modes_times_and_links() {
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
        let modified = |path: &str| fs::metadata(at(path)).unwrap().modified().unwrap();
        for path in ["from", "from/sub", "from/sub/f"] {
            assert_eq!(modified(path), modified(&path.replace("from", "to")));
        }
        assert_eq!(fs::read(at("single")).unwrap(), b"text");
    }

    #[test]
    fn a_move_between_file_systems_is_complete_or_undone() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        let names = || fs::read_dir(place.path()).unwrap().count();
        fs::create_dir_all(at("from/sub")).unwrap();
        fs::write(at("from/sub/f"), "text").unwrap();
        fs::set_permissions(at("from/sub"), fs::Permissions::from_mode(0o555)).unwrap();
        assert!(across(&at("from"), &at("from/sub/to")).is_err());
        rustix::fs::mkfifoat(CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        assert!(across(&at("pipe"), &at("to")).is_err());
        fs::write(at("taken"), "").unwrap();
        assert!(across(&at("from"), &at("taken")).is_err());
        assert_eq!(names(), 3, "nothing was left behind");
        fs::set_permissions(at("from/sub"), fs::Permissions::from_mode(0o755)).unwrap();
        across(&at("from"), &at("to")).unwrap();
        assert_eq!(fs::read(at("to/sub/f")).unwrap(), b"text");
        assert_eq!(names(), 3, "the source is gone");
    }

    #[test]
    fn deleting_an_absent_path_succeeds() {
        let place = tempfile::tempdir().unwrap();
        let absent = place.path().join("absent");
        delete_file(&absent).unwrap();
        delete_tree(&absent).unwrap();
        assert!(delete_file(place.path()).is_err());
    }

    #[test]
    fn the_working_directory_and_its_parents_are_not_deleted() {
        let here = std::env::current_dir().unwrap();
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        symlink(&here, &link).unwrap();
        for (path, holds) in [
            (Path::new("/"), true),
            (&here, true),
            (here.parent().unwrap(), true),
            (&here.join("src"), false),
            (place.path(), false),
            (&link, false),
        ] {
            assert_eq!(holds_working_directory(path), holds, "{path:?}");
        }
        let root = delete_tree(Path::new("/"));
        assert!(matches!(root, Err(ApiError::Invalid(_))), "{root:?}");
        for (given, fine) in [
            (".", false),
            ("..", false),
            ("x/.", false),
            ("x/..//", false),
            ("x/", true),
            ("a/../x", true),
            ("..x", true),
            ("/", true),
        ] {
            let allowed = must_be_deletable_by_name(given.as_ref()).is_ok();
            assert_eq!(allowed, fine, "{given}");
        }
    }
}

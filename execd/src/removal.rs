//! Removal of directories however deep they are: their depth is chosen by programs, and neither the stack
//! of a thread nor its descriptors may depend on it.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, chmodat, fchmod, openat, renameat, unlinkat},
    io::Errno,
};

/// How a directory is opened: links are never followed.
pub(crate) const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);
/// Levels that are entered at once. What is deeper is moved up first.
const LEVELS: usize = 64;

/// What happens to directories whose contents the caller may not change, though it owns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// They stay, with an error.
    Kept,
    /// They are opened, and removed.
    Opened,
}

/// Removes an entry with its contents; an absent one is no error. Links are removed, not followed.
///
/// # Errors
/// When something cannot be removed; what was removed before is gone.
pub(crate) fn remove(path: &Path, closed: Closed) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let name = CString::new(name.as_bytes())?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let parent = openat(CWD, parent, flags, Mode::empty())?;
    remove_at(parent.as_fd(), &name, closed)
}

/// The same for an entry of an open directory.
pub(crate) fn remove_at(parent: BorrowedFd<'_>, name: &CStr, closed: Closed) -> io::Result<()> {
    if unlinked(parent, name, Closed::Kept)? {
        return Ok(());
    }
    let root = match entered(parent, name, closed) {
        Err(Errno::NOENT) => return Ok(()),
        root => root?,
    };
    let mut removal = Removal {
        root: &root,
        closed,
        moved: 0,
    };
    // Each pass removes what the pass before has moved up. What other processes add meanwhile is not waited
    // for: then the directory is not empty, which is an error.
    loop {
        let before = removal.moved;
        removal.empty(root.as_fd(), 0)?;
        if removal.moved == before {
            break;
        }
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The removal of a directory.
struct Removal<'a> {
    root: &'a OwnedFd,
    closed: Closed,
    /// Directories that were moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Removes what a directory contains, or moves it to the top.
    fn empty(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for name in names(&directory)? {
            if unlinked(directory, &name, self.closed)? {
                continue;
            }
            if depth < LEVELS {
                match entered(directory, &name, self.closed) {
                    Err(Errno::NOENT) => continue,
                    inner => self.empty(inner?.as_fd(), depth + 1)?,
                }
            }
            match unlinkat(directory, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) if depth == LEVELS => {
                    self.moved += 1;
                    // No program knows it before.
                    let top = format!(".execd-removed-{}", uuid::Uuid::new_v4().simple());
                    renameat(directory, &name, self.root, top)?;
                }
                // Another process adds to it.
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Removes what is no directory. Returns whether it is gone.
fn unlinked(directory: BorrowedFd<'_>, name: &CStr, closed: Closed) -> io::Result<bool> {
    let unlink = || unlinkat(directory, name, AtFlags::empty());
    let outcome = match unlink() {
        Err(Errno::ACCESS) if closed == Closed::Opened && fchmod(directory, Mode::RWXU).is_ok() => {
            unlink()
        }
        outcome => outcome,
    };
    match outcome {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn entered(directory: BorrowedFd<'_>, name: &CStr, closed: Closed) -> rustix::io::Result<OwnedFd> {
    let open = || openat(directory, name, DIRECTORY, Mode::empty());
    match open() {
        Err(Errno::ACCESS)
            if closed == Closed::Opened
                && chmodat(directory, name, Mode::RWXU, AtFlags::empty()).is_ok() =>
        {
            open()
        }
        opened => opened,
    }
}

/// Names of the entries of a directory.
pub(crate) fn names(directory: &impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    /// Makes nested directories, deeper than a path may be long, with a file in each.
    fn nested(path: &Path, levels: usize) {
        let mut at = openat(CWD, path, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&at, c"file", flags, Mode::RUSR).unwrap();
            at = openat(&at, c"d", DIRECTORY, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn depth_needs_neither_stack_nor_descriptors() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        fs::create_dir_all(path.join("wide")).unwrap();
        nested(&path, 5000);
        nested(&path.join("wide"), 200);
        let small = std::thread::Builder::new().stack_size(128 << 10);
        let removed = small.spawn({
            let path = path.clone();
            move || remove(&path, Closed::Kept)
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!path.exists());
        remove(&path, Closed::Opened).unwrap();
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (kept, path) = (place.path().join("kept"), place.path().join("a"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        fs::create_dir(&path).unwrap();
        symlink(&kept, path.join("link")).unwrap();
        remove(&path, Closed::Opened).unwrap();
        symlink(&kept, &path).unwrap();
        remove(&path, Closed::Opened).unwrap();
        assert!(kept.join("file").exists() && !path.exists());
        assert!(
            ["/", "a/.."]
                .iter()
                .all(|path| remove(Path::new(path), Closed::Kept).is_err())
        );
    }

    #[test]
    fn a_directory_without_rights_is_removed_by_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        fs::create_dir_all(path.join("b/c")).unwrap();
        fs::write(path.join("b/file"), "").unwrap();
        for closed in ["b/c", "b", ""] {
            let none = fs::Permissions::from_mode(0o000);
            fs::set_permissions(path.join(closed), none).unwrap();
        }
        remove(&path, Closed::Opened).unwrap();
        assert!(!path.exists());
    }
}

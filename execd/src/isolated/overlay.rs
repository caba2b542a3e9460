//! Whiteouts and opaque directories, the kernel's format of deletions
//! (Documentation/filesystems/overlayfs).

use std::{
    fs::Metadata,
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

/// Levels of directories that are compared and applied. Programs choose how deep they nest them.
const LEVELS: usize = 200;
/// Stack for as many, in bytes.
const STACK: usize = 8 << 20;

/// The attribute of an opaque directory. In a session without a user namespace the kernel ignores the
/// other one, which every process may set.
pub(super) fn opaque(userns: bool) -> &'static str {
    match userns {
        true => "user.overlay.opaque",
        false => "trusted.overlay.opaque",
    }
}

/// Runs work that descends as deep as [`check_depth`] allows.
///
/// # Errors
/// When no thread can be started for it.
pub(super) fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work)?;
        thread
            .join()
            .map_err(|_| io::Error::other("internal error"))
    })
}

/// Refuses what lies too deep.
///
/// # Errors
/// Beyond [`LEVELS`].
pub(super) fn check_depth(depth: usize) -> io::Result<()> {
    if depth > LEVELS {
        let text = format!("its directories are nested more than {LEVELS} levels deep");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Opens the directory below an overlay, whose path was resolved before, as a place. Links on the path
/// are not followed: a process may have put them there since.
///
/// # Errors
/// `ELOOP` for a link.
pub(super) fn open_resolved(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Whether an entry marks a deletion.
pub(super) fn is_whiteout(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == 0
}

/// Whether a directory hides the one below it.
pub(super) fn is_opaque(directory: &Path, attribute: &str) -> bool {
    let mut value = [0; 1];
    let len = rustix::fs::lgetxattr(directory, attribute, &mut value);
    len == Ok(1) && value == *b"y"
}

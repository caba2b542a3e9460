//! Commit of a session's changes to the lower directory (docs/adr/0005-isolated-execution.md).
//!
//! The overlay is not mounted meanwhile. The daemon has more rights than the session, and other
//! processes may change the tree, so no path is followed: every directory is opened relative to its
//! parent, and links are never treated as directories. An interrupted commit can be repeated from
//! the beginning, because every entry is replaced by its final state.

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
        chownat, fchmod, fchown, fgetxattr, futimens, makedev, mkdirat, mknodat, openat, openat2,
        readlinkat, renameat, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

use super::overlay::{check_depth, deep};
use crate::removal::{Closed, DIRECTORY, names, remove_at};

/// Applies an upper directory to the lower one. `opaque` is the attribute of directories that hide the
/// lower ones. Owner and mode of the two directories themselves
/// are excluded: the kernel took them from the session.
pub(super) fn apply(upper: &Path, lower: &Path, opaque: &'static str) -> io::Result<()> {
    let upper = openat(CWD, upper, DIRECTORY, Mode::empty())?;
    // Its path was resolved before, and a process may have put a link there since.
    let links = ResolveFlags::NO_SYMLINKS;
    let lower = openat2(CWD, lower, DIRECTORY, Mode::empty(), links)?;
    let commit = Commit { opaque };
    deep(|| commit.directory(&upper, &lower, false, 0))?
}

/// How a session's changes are read.
struct Commit {
    /// The attribute that marks an opaque directory.
    opaque: &'static str,
}

impl Commit {
    /// Applies one directory; a new one has no entries to hide.
    fn directory(
        &self,
        upper: &OwnedFd,
        lower: &OwnedFd,
        new: bool,
        depth: usize,
    ) -> io::Result<()> {
        check_depth(depth)?;
        if !new && self.is_opaque(upper) {
            for name in names(lower)? {
                if statat(upper, &*name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                    remove(lower, &name)?;
                }
            }
        }
        for name in names(upper)? {
            let now = statat(upper, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
            let failure = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", name.to_string_lossy()))
            };
            self.entry(upper, lower, &name, &now, depth)
                .map_err(failure)?;
        }
        Ok(())
    }

    fn entry(
        &self,
        upper: &OwnedFd,
        lower: &OwnedFd,
        name: &CStr,
        now: &Stat,
        depth: usize,
    ) -> io::Result<()> {
        let kind = FileType::from_raw_mode(now.st_mode);
        if kind == FileType::CharacterDevice && now.st_rdev == makedev(0, 0) {
            return remove(lower, name);
        }
        if kind == FileType::Directory {
            let above = openat(upper, name, DIRECTORY, Mode::empty())?;
            let (below, new) = match openat(lower, name, DIRECTORY, Mode::empty()) {
                Ok(below) => (below, false),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    remove(lower, name)?;
                    mkdirat(lower, name, Mode::RWXU)?;
                    (openat(lower, name, DIRECTORY, Mode::empty())?, true)
                }
                Err(errno) => return Err(errno.into()),
            };
            self.directory(&above, &below, new, depth + 1)?;
            return look_like(&below, now);
        }
        let temporary = format!(".execd-commit-{}", uuid::Uuid::new_v4().simple());
        let made = match kind {
            FileType::RegularFile => copy(upper, lower, name, &temporary, now),
            FileType::Symlink => readlinkat(upper, name, Vec::new())
                .and_then(|target| symlinkat(target, lower, &temporary))
                .map_err(io::Error::from)
                .and_then(|()| own(lower, &temporary, now)),
            FileType::Fifo => {
                let mode = Mode::from_raw_mode(now.st_mode & 0o7777);
                mknodat(lower, &temporary, FileType::Fifo, mode, 0)
                    .map_err(io::Error::from)
                    .and_then(|()| own(lower, &temporary, now))
            }
            // Sockets are useless to any process but their creator.
            _ => return Ok(()),
        };
        let placed = made.and_then(|()| match renameat(lower, &temporary, lower, name) {
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                remove(lower, name)?;
                Ok(renameat(lower, &temporary, lower, name)?)
            }
            placed => Ok(placed?),
        });
        if placed.is_err() {
            let _absent = unlinkat(lower, &temporary, AtFlags::empty());
        }
        placed
    }

    fn is_opaque(&self, directory: &OwnedFd) -> bool {
        let mut value = [0; 1];
        fgetxattr(directory, self.opaque, &mut value) == Ok(1) && value == *b"y"
    }
}

fn copy(
    upper: &OwnedFd,
    lower: &OwnedFd,
    name: &CStr,
    temporary: &str,
    now: &Stat,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut from = File::from(openat(upper, name, flags, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut to = File::from(openat(lower, temporary, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut from, &mut to)?;
    look_like(&to, now)
}

/// Copies owner, mode and times. The owner comes first, because a change of owner clears mode bits.
fn look_like(fd: &impl AsFd, now: &Stat) -> io::Result<()> {
    fchown(
        fd,
        Some(Uid::from_raw(now.st_uid)),
        Some(Gid::from_raw(now.st_gid)),
    )?;
    fchmod(fd, Mode::from_raw_mode(now.st_mode & 0o7777))?;
    futimens(fd, &times(now))?;
    Ok(())
}

fn own(lower: &OwnedFd, name: &str, now: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(now.st_uid), Gid::from_raw(now.st_gid));
    chownat(lower, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(lower, name, &times(now), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn times(now: &Stat) -> Timestamps {
    let time = |seconds: i64, nanos: i64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(0);
    Timestamps {
        last_access: time(now.st_atime, nanos(now.st_atime_nsec)),
        last_modification: time(now.st_mtime, nanos(now.st_mtime_nsec)),
    }
}

/// Removes an entry with its contents; an absent one is no error.
fn remove(directory: &OwnedFd, name: &CStr) -> io::Result<()> {
    remove_at(directory.as_fd(), name, Closed::Kept)
}

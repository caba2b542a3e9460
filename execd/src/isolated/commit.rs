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
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chownat,
        fchmod, fchown, fgetxattr, futimens, makedev, mkdirat, mknodat, openat, readlinkat,
        renameat, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

/// Applies an upper directory to the lower one. Owner and mode of the two directories themselves
/// are excluded: the kernel took them from the session.
pub(super) fn apply(upper: &Path, lower: &Path) -> io::Result<()> {
    let open = |path: &Path| openat(CWD, path, DIRECTORY, Mode::empty());
    directory(&open(upper)?, &open(lower)?, false)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

/// Applies one directory; a new one has no entries to hide.
fn directory(upper: &OwnedFd, lower: &OwnedFd, new: bool) -> io::Result<()> {
    if !new && is_opaque(upper) {
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
        entry(upper, lower, &name, &now).map_err(failure)?;
    }
    Ok(())
}

fn entry(upper: &OwnedFd, lower: &OwnedFd, name: &CStr, now: &Stat) -> io::Result<()> {
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
        directory(&above, &below, new)?;
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
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let inner = openat(directory, name, DIRECTORY, Mode::empty())?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    Ok(unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn is_opaque(directory: &OwnedFd) -> bool {
    ["trusted.overlay.opaque", "user.overlay.opaque"]
        .iter()
        .any(|name| {
            let mut value = [0; 1];
            fgetxattr(directory, *name, &mut value) == Ok(1) && value == *b"y"
        })
}

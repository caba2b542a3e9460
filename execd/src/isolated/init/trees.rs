//! Copies of mounts: how they are taken, attached and made read-only.

use std::{ffi::CString, io, os::fd::OwnedFd, path::Path};

use nix::libc;
use rustix::{
    fs::CWD,
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use crate::isolated::overlay::open_resolved;

/// Copies a mount with its submounts.
const TREE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE
    .union(OpenTreeFlags::AT_RECURSIVE)
    .union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

/// Copies the mount at a path, with its submounts.
pub(super) fn tree(path: impl AsRef<Path>) -> rustix::io::Result<OwnedFd> {
    open_tree(CWD, path.as_ref(), TREE)
}

/// Copies the mount at an open place, with its submounts.
pub(super) fn held_tree(place: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    open_tree(place, "", TREE | OpenTreeFlags::AT_EMPTY_PATH)
}

/// Attaches a tree, perhaps at the end of a link.
pub(super) fn put(tree: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    move_mount(tree, "", CWD, path, flags)
}

/// Attaches a tree at a path without links.
pub(super) fn put_resolved(tree: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let place = open_resolved(path)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &place, "", flags)
}

/// Argument of `mount_setattr`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Makes the mount at a path and its submounts read-only.
pub(super) fn read_only(path: &Path) -> rustix::io::Result<()> {
    set_read_only(path, path != Path::new("/dev"))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Makes the mount at a path read-only, and perhaps its submounts.
#[expect(unsafe_code, reason = "no dependency offers this system call")]
pub(super) fn set_read_only(path: &Path, recursive: bool) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = Attributes {
        set: libc::MOUNT_ATTR_RDONLY,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: both pointers are valid until the call returns, the second for the given number of
    // bytes; the kernel only reads.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

//! Metadata of an entry.

use std::{
    fs::Metadata,
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use jiff::Timestamp;
use osb_protocol::execd::file::{FileInfo, FileKind, mode_to_wire};

use crate::identity::Names;

/// Reads the metadata of an entry without following a link.
pub(super) fn of(path: &Path, names: &Names) -> io::Result<FileInfo> {
    Ok(from(path, &path.symlink_metadata()?, names))
}

/// Converts metadata that is already available.
pub(super) fn from(path: &Path, meta: &Metadata, names: &Names) -> FileInfo {
    FileInfo {
        path: path.to_string_lossy().into_owned(),
        kind: kind(meta),
        size: meta.size(),
        modified_at: time(meta.mtime(), meta.mtime_nsec()),
        created_at: time(meta.ctime(), meta.ctime_nsec()),
        owner: names.user(meta.uid()),
        group: names.group(meta.gid()),
        mode: mode_to_wire(meta.mode()),
        target: None,
        lossy: false,
    }
}

fn kind(meta: &Metadata) -> FileKind {
    let kind = meta.file_type();
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        debug_assert!(
            kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
        );
        FileKind::Other
    }
}

/// Converts a time. Times that the wire format cannot express become the Unix epoch.
fn time(seconds: i64, nanos: i64) -> Timestamp {
    let nanos = i32::try_from(nanos).unwrap_or(0);
    Timestamp::new(seconds, nanos).unwrap_or(Timestamp::UNIX_EPOCH)
}

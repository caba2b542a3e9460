//! Whiteouts and opaque directories, the kernel's format of deletions
//! (Documentation/filesystems/overlayfs).

use std::{
    fs::Metadata,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

/// Attributes of an opaque directory; user namespaces use the second.
const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// Whether an entry marks a deletion.
pub(super) fn is_whiteout(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == 0
}

/// Whether a directory hides the one below it.
pub(super) fn is_opaque(directory: &Path) -> bool {
    OPAQUE.iter().any(|name| {
        let mut value = [0; 1];
        let len = rustix::fs::lgetxattr(directory, *name, &mut value);
        len == Ok(1) && value == *b"y"
    })
}

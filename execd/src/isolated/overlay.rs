//! How the kernel writes down what is gone (Documentation/filesystems/overlayfs).

use std::{
    fs::Metadata,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

/// Says that nothing below shines through a directory; the second in user namespaces.
const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// Whether an entry stands for one that was deleted.
pub(super) fn is_whiteout(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == 0
}

/// Whether nothing below shines through a directory.
pub(super) fn is_opaque(directory: &Path) -> bool {
    OPAQUE.iter().any(|name| {
        let mut value = [0; 1];
        let len = rustix::fs::lgetxattr(directory, *name, &mut value);
        len == Ok(1) && value == *b"y"
    })
}

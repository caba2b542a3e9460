//! Upper directories, which hold what sessions write (contract: execd A7).

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use rustix::fs::fstat;
use tracing::warn;
use walkdir::WalkDir;

use super::overlay::open_resolved;
use crate::removal::{Closed, remove};

/// Name that marks a directory as created by execd.
const MARK: &str = "upper";

/// Directory of one session, removed with [`Upper::remove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upper {
    directory: PathBuf,
}

/// Upper and work directory of one overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) upper: PathBuf,
    pub(super) work: PathBuf,
}

/// Owner of an upper directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Whether a user namespace maps the daemon's files to the session's user.
    pub(super) userns: bool,
}

impl Upper {
    /// Creates a directory for a session.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let private = |path: &Path, parents| {
            fs::DirBuilder::new()
                .recursive(parents)
                .mode(0o700)
                .create(path)
        };
        private(root, true)?;
        let directory = root.join(uuid::Uuid::new_v4().simple().to_string());
        private(&directory, false)?;
        Ok(Self { directory })
    }

    /// Directories of the n-th persistent overlay, from 0.
    pub(super) fn slot(&self, index: usize) -> Slot {
        let named = |what: &str| match index {
            0 => self.directory.join(what),
            _ => self.directory.join(format!("{what}-{index}")),
        };
        Slot {
            upper: named(MARK),
            work: named("work"),
        }
    }

    /// Disk usage in bytes.
    pub(super) fn bytes(&self) -> u64 {
        bytes(&self.directory)
    }

    /// Removes the directory with its contents.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.directory, Closed::Opened)
    }
}

impl Slot {
    /// Prepares the directories for a mount over `lower`. Earlier changes are kept.
    pub(super) fn prepare(&self, lower: &Path, owner: Owner) -> io::Result<()> {
        // The kernel uses the work directory for a single mount.
        remove(&self.work, Closed::Opened)?;
        fs::DirBuilder::new().mode(0o700).create(&self.work)?;
        match fs::create_dir(&self.upper) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        }
        // The root of the merged view takes owner and mode from this directory.
        let mode = fstat(open_resolved(lower)?)?.st_mode & 0o7777;
        fs::set_permissions(&self.upper, fs::Permissions::from_mode(mode))?;
        if owner.userns {
            Ok(())
        } else {
            chown(&self.upper, Some(owner.uid), Some(owner.gid))
        }
    }

    /// Discards all changes.
    pub(super) fn clear(&self) -> io::Result<()> {
        remove(&self.upper, Closed::Opened)
    }
}

/// Disk usage of a directory tree in bytes. Entries that vanish meanwhile do not count.
fn bytes(directory: &Path) -> u64 {
    let entries = WalkDir::new(directory).follow_root_links(false).into_iter();
    let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
    sizes.map(|meta| meta.blocks() * 512).sum()
}

/// Directories of earlier daemons.
pub(super) fn stale(root: &Path) -> Vec<PathBuf> {
    let is_directory = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_directory(path) && is_directory(&path.join(MARK)))
        .collect()
}

/// Removes the directories of earlier daemons.
pub(super) fn sweep(stale: &[PathBuf]) {
    for directory in stale {
        if let Err(error) = remove(directory, Closed::Opened) {
            warn!(directory = %directory.display(), %error, "a stale upper was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner {
        uid: 0,
        gid: 0,
        userns: true,
    };

    #[test]
    fn only_what_is_ours_is_swept() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        let old = Upper::new(&root).unwrap();
        old.slot(0).prepare(place.path(), OWNER).unwrap();
        fs::write(old.slot(0).upper.join("f"), "x").unwrap();
        fs::create_dir(root.join("other")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        fs::create_dir_all(place.path().join("elsewhere/upper")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", root.join("link")).unwrap();
        sweep(&stale(&root));
        let mut left: Vec<_> = fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["file", "link", "other"]);
        assert!(place.path().join("elsewhere/upper").is_dir());
        assert!(stale(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn slots_are_named_as_the_contract_says_and_keep_what_was_written() {
        let place = tempfile::tempdir().unwrap();
        let upper = Upper::new(place.path()).unwrap();
        assert!(upper.slot(0).upper.ends_with("upper") && upper.slot(0).work.ends_with("work"));
        let slot = upper.slot(1);
        assert!(slot.upper.ends_with("upper-1") && slot.work.ends_with("work-1"));
        slot.prepare(Path::new("/tmp"), OWNER).unwrap();
        let mode = fs::metadata(&slot.upper).unwrap().mode() & 0o7777;
        assert_eq!(mode, fs::metadata("/tmp").unwrap().mode() & 0o7777);
        fs::write(slot.upper.join("f"), vec![1; 10_000]).unwrap();
        fs::write(slot.work.join("f"), "").unwrap();
        slot.prepare(Path::new("/tmp"), OWNER).unwrap();
        assert!(slot.upper.join("f").exists() && !slot.work.join("f").exists());
        assert!(upper.bytes() >= 10_000);
        upper.remove().unwrap();
        assert_eq!(upper.bytes(), 0);
    }
}

//! Changes of a session: the difference between an upper directory and the lower one, in the
//! kernel's overlay format.

use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use osb_protocol::execd::{
    file::FileKind,
    isolated::{ChangeKind, IsolatedChange, IsolatedDiff},
};

use super::overlay::{check_depth, deep, is_opaque, is_whiteout, open_resolved};
use crate::limits;

/// Adds the changes of one overlay, sorted by path. `shown` is its path in the session.
pub(super) fn diff(
    upper: &Path,
    lower: &Path,
    shown: &Path,
    opaque: &'static str,
    to: &mut IsolatedDiff,
) -> io::Result<()> {
    let held = open_resolved(lower)?;
    let lower = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let mut diff = Diff { opaque, to };
    deep(|| diff.directory(upper, Some(&lower), shown, 0))?
}

/// A comparison under way.
struct Diff<'a> {
    /// The attribute that marks an opaque directory.
    opaque: &'static str,
    to: &'a mut IsolatedDiff,
}

impl Diff<'_> {
    /// Compares one directory. `lower` is the directory visible through it, if any; `shown` is its path
    /// in the session.
    fn directory(
        &mut self,
        upper: &Path,
        lower: Option<&Path>,
        shown: &Path,
        depth: usize,
    ) -> io::Result<()> {
        check_depth(depth)?;
        let opaque = self.opaque;
        let mut names: Vec<_> = fs::read_dir(upper)?
            .map(|entry| entry.map(|entry| (entry.file_name(), true)))
            .collect::<io::Result<_>>()?;
        // An opaque directory hides everything below it, so entries that it lacks are deleted.
        if let Some(lower) = lower.filter(|_| is_opaque(upper, opaque)) {
            for entry in fs::read_dir(lower)? {
                let name = entry?.file_name();
                if upper.join(&name).symlink_metadata().is_err() {
                    names.push((name, false));
                }
            }
        }
        names.sort();
        for (name, present) in names {
            let (above, path) = (upper.join(&name), shown.join(&name));
            let below = lower.map(|lower| lower.join(&name));
            let before = below
                .as_ref()
                .and_then(|below| below.symlink_metadata().ok());
            // The session may change the entry at any time.
            let now = above
                .symlink_metadata()
                .ok()
                .filter(|now| present && !is_whiteout(now));
            match (before, now) {
                (None, None) => {}
                (Some(_), None) => push(&path, ChangeKind::Deleted, None, self.to),
                (before, Some(now)) if now.is_dir() => {
                    let shines = before.as_ref().is_some_and(fs::Metadata::is_dir);
                    let same = |before: &fs::Metadata| {
                        let facts = |meta: &fs::Metadata| (meta.mode(), meta.uid(), meta.gid());
                        facts(before) == facts(&now)
                    };
                    match &before {
                        None => push(&path, ChangeKind::Added, Some(&now), self.to),
                        Some(before) if same(before) => {}
                        Some(_) => push(&path, ChangeKind::Modified, Some(&now), self.to),
                    }
                    let below = below.as_deref().filter(|_| shines);
                    match self.directory(&above, below, &path, depth + 1) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        result => result?,
                    }
                }
                (Some(_), Some(now)) => push(&path, ChangeKind::Modified, Some(&now), self.to),
                (None, Some(now)) => push(&path, ChangeKind::Added, Some(&now), self.to),
            }
        }
        Ok(())
    }
}

fn push(path: &Path, change: ChangeKind, now: Option<&fs::Metadata>, to: &mut IsolatedDiff) {
    if to.changes.len() >= limits::ENTRIES {
        to.truncated = true;
        return;
    }
    let kind = now.map(|meta| {
        let kind = meta.file_type();
        match () {
            () if kind.is_dir() => FileKind::Directory,
            () if kind.is_symlink() => FileKind::Symlink,
            () if kind.is_fifo() || kind.is_socket() => FileKind::Other,
            () => FileKind::File,
        }
    });
    to.changes.push(IsolatedChange {
        path: path.to_string_lossy().into_owned(),
        change,
        kind,
        size: now.filter(|meta| meta.is_file()).map(fs::Metadata::len),
    });
}

/// Total size of all files in a list of changes.
pub(super) fn bytes(diff: &IsolatedDiff) -> u64 {
    diff.changes.iter().filter_map(|change| change.size).sum()
}

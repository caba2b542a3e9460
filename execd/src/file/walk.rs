//! A walk through directories, within limits of entries and time.

use std::{
    ffi::OsString,
    fs::{self, FileType},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Instant,
};

use osb_protocol::execd::file::FindStop;
use tokio_util::sync::CancellationToken;

/// Where file systems are that the kernel makes up: they have no end, and reading them may wait.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/sys/fs/cgroup"];

/// An entry below the root of a walk.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// What it is; a link is a link.
    pub(super) kind: FileType,
}

/// A directory on the way.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// The entries that are still to come, the next one last.
    entries: Vec<(OsString, FileType)>,
}

/// The entries below a directory, in lexical order, each directory before its contents. Links are
/// not followed, entries that vanish or are unreadable are skipped, and so are the kernel's own
/// file systems.
///
/// The limits count while a directory is read: one directory may have more entries than there is
/// memory for, and only a directory that was read can be sorted.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    /// From the root to where the walk is.
    open: Vec<Directory>,
    /// The directory that came last, whose entries come next.
    entered: Option<PathBuf>,
    /// Entries that may still be read.
    left: usize,
    until: Instant,
    unwanted: &'a CancellationToken,
    /// Devices of the kernel's own file systems.
    kernel: Vec<u64>,
    cut: Option<FindStop>,
}

impl<'a> Walk<'a> {
    /// Begins a walk through `most` entries.
    pub(super) fn new(
        root: &Path,
        most: usize,
        until: Instant,
        unwanted: &'a CancellationToken,
    ) -> Self {
        Self {
            open: Vec::new(),
            entered: Some(root.to_owned()),
            left: most,
            until,
            unwanted,
            kernel: kernel_devices(),
            cut: None,
        }
    }

    /// The limit because of which some entries do not come, if there is one.
    pub(super) fn cut(&self) -> Option<FindStop> {
        self.cut
    }

    /// Reads a directory as far as the limits allow.
    fn enter(&mut self, path: PathBuf) {
        let Ok(listed) = fs::read_dir(&path) else {
            return;
        };
        let mut entries = Vec::new();
        for entry in listed.flatten() {
            if self.left == 0 {
                self.cut = Some(FindStop::Entries);
                break;
            }
            if Instant::now() >= self.until {
                self.cut = Some(FindStop::Time);
                break;
            }
            if self.unwanted.is_cancelled() {
                break;
            }
            self.left -= 1;
            if let Ok(kind) = entry.file_type() {
                entries.push((entry.file_name(), kind));
            }
        }
        entries.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.open.push(Directory { path, entries });
    }
}

impl Iterator for Walk<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if let Some(path) = self.entered.take() {
            self.enter(path);
        }
        loop {
            let directory = self.open.last_mut()?;
            let Some((name, kind)) = directory.entries.pop() else {
                self.open.pop();
                continue;
            };
            let path = directory.path.join(name);
            if kind.is_dir() {
                if is_kernels(&path, &self.kernel) {
                    continue;
                }
                self.entered = Some(path.clone());
            }
            return Some(Entry { path, kind });
        }
    }
}

/// Devices of the kernel's own file systems, where they are mounted.
fn kernel_devices() -> Vec<u64> {
    let device = |path: &str| fs::metadata(path).ok().map(|meta| meta.dev());
    let root = device("/");
    let devices = KERNEL.iter().filter_map(|path| device(path));
    devices.filter(|it| Some(*it) != root).collect()
}

/// Whether a directory is in one of them.
fn is_kernels(path: &Path, kernel: &[u64]) -> bool {
    path.symlink_metadata()
        .is_ok_and(|meta| kernel.contains(&meta.dev()))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, time::Duration};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn directories_come_before_their_contents_and_limits_count_while_they_are_read() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir_all(at("b/deep")).unwrap();
        for file in ["c", "a", "b/deep/x", "b/f"] {
            fs::write(at(file), "").unwrap();
        }
        symlink("/", at("b/link")).unwrap();
        let unwanted = CancellationToken::new();
        let walked = |most: usize, until: Instant| {
            let mut walk = Walk::new(place.path(), most, until, &unwanted);
            let mut found = Vec::new();
            for entry in walk.by_ref() {
                let below = entry.path.strip_prefix(place.path()).unwrap();
                found.push(below.to_string_lossy().into_owned());
            }
            (found, walk.cut())
        };
        let later = Instant::now() + LONG;
        let all = ["a", "b", "b/deep", "b/deep/x", "b/f", "b/link", "c"];
        let whole = (all.map(str::to_owned).to_vec(), None);
        assert_eq!(walked(100, later), whole);
        assert_eq!(walked(all.len(), later), whole, "none is left out");
        let (found, cut) = walked(all.len() - 1, later);
        assert_eq!((found.len(), cut), (6, Some(FindStop::Entries)));
        let (found, cut) = walked(2, later);
        assert_eq!((found.len(), cut), (2, Some(FindStop::Entries)));
        let (found, cut) = walked(100, Instant::now());
        assert_eq!((found.len(), cut), (0, Some(FindStop::Time)));
    }

    #[test]
    fn the_kernels_file_systems_are_left_out() {
        let kernel = kernel_devices();
        assert!(is_kernels(Path::new("/proc"), &kernel));
        assert!(!is_kernels(Path::new("/usr"), &kernel));
    }
}

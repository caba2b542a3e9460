//! `GET /files/find`, an addition to the contract: entries by their names and files by their content,
//! within limits of entries, bytes and time.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    time::Instant,
};

use osb_protocol::execd::file::{FileKind, FindStop, Found, FoundEntry};
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;
use walkdir::{DirEntry, WalkDir};

use super::{
    content::{self, Needle},
    glob::Glob,
};
use crate::{
    error::{ApiError, ApiResult},
    http::Query,
    limits,
};

/// Where file systems are that the kernel makes up: they have no end, and reading them may wait.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/sys/fs/cgroup"];

/// What is searched for.
pub(super) struct Wanted {
    name: Glob,
    /// `None` searches for names alone.
    text: Option<Needle>,
    most: usize,
}

impl Wanted {
    /// Of a request.
    ///
    /// # Errors
    /// 400 for a bad pattern, text or limit.
    pub(super) fn of(query: &Query) -> ApiResult<Self> {
        let name = Glob::new(query.get("pattern").unwrap_or_default())
            .map_err(|error| ApiError::invalid(error.to_string()))?;
        let ignores_case = query.get("ignore_case") == Some("true");
        let text = match query.get("text").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) if text.len() > limits::FIND_TEXT => {
                let message = format!("text has more than {} bytes", limits::FIND_TEXT);
                return Err(ApiError::invalid(message));
            }
            Some(text) if text.contains(['\n', '\0']) => {
                return Err(ApiError::invalid("text must be within one line"));
            }
            Some(text) => Some(Needle::new(text, ignores_case)),
        };
        let most = match query.get("limit").filter(|limit| !limit.is_empty()) {
            None => limits::FIND_ENTRIES,
            Some(limit) => limit.parse().map_err(|_| {
                ApiError::invalid(format!("invalid query parameter 'limit': {limit}"))
            })?,
        };
        Ok(Self {
            name,
            text,
            most: most.clamp(1, limits::FIND_ENTRIES),
        })
    }
}

/// Searches below `root`, in lexical order. Links below it are not followed, entries that vanish or
/// are unreadable are skipped, and so are the kernel's own file systems.
pub(super) fn find(root: &Path, wanted: &Wanted, unwanted: &CancellationToken) -> ApiResult<Found> {
    let meta = root
        .metadata()
        .map_err(|error| ApiError::file(root, &error))?;
    if meta.is_dir() {
        std::fs::read_dir(root).map_err(|error| ApiError::file(root, &error))?;
    }
    let kernel = kernel_devices();
    let walk = WalkDir::new(root)
        .follow_root_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| !is_kernels(entry, &kernel));
    let mut search = Search {
        found: Found::default(),
        lines: 0,
        read: 0,
        until: Instant::now() + limits::FIND_TIME,
        unwanted,
    };
    for (number, entry) in walk.enumerate() {
        if unwanted.is_cancelled() {
            return Err(ApiError::runtime("the client disconnected"));
        }
        let stop = if number >= limits::ENTRIES {
            Some(FindStop::Entries)
        } else {
            search.stop(wanted.most)
        };
        if stop.is_some() {
            search.found.stopped = stop;
            break;
        }
        // The root itself was asked for.
        let Some(entry) = entry
            .ok()
            .filter(|entry| entry.depth() > 0 || !meta.is_dir())
        else {
            continue;
        };
        if wanted.name.matches(&entry.file_name().to_string_lossy()) {
            search.look(&entry, wanted.text.as_ref());
        }
    }
    Ok(search.found)
}

/// A search under way.
struct Search<'a> {
    found: Found,
    lines: usize,
    read: u64,
    until: Instant,
    unwanted: &'a CancellationToken,
}

impl Search<'_> {
    /// The limit that is reached, if one is.
    fn stop(&self, most: usize) -> Option<FindStop> {
        if self.found.entries.len() >= most || self.lines >= limits::FIND_ALL_LINES {
            Some(FindStop::Matches)
        } else if self.read >= limits::FIND_BYTES {
            Some(FindStop::Bytes)
        } else if Instant::now() >= self.until {
            Some(FindStop::Time)
        } else {
            None
        }
    }

    /// Adds an entry, if it has the text.
    fn look(&mut self, entry: &DirEntry, text: Option<&Needle>) {
        let Ok(meta) = entry.metadata() else {
            return;
        };
        let kind = entry.file_type();
        let mut found = FoundEntry {
            path: entry.path().to_string_lossy().into_owned(),
            kind: match () {
                () if kind.is_dir() => FileKind::Directory,
                () if kind.is_file() => FileKind::File,
                () if kind.is_symlink() => FileKind::Symlink,
                () => FileKind::Other,
            },
            size: meta.len(),
            count: 0,
            partial: false,
            lines: Vec::new(),
        };
        if let Some(needle) = text {
            if found.kind != FileKind::File {
                return;
            }
            let (until, unwanted) = (self.until, self.unwanted);
            let goes_on = || Instant::now() < until && !unwanted.is_cancelled();
            let most = limits::FIND_FILE.min(limits::FIND_BYTES.saturating_sub(self.read));
            let searched =
                open(entry.path()).and_then(|file| content::search(file, needle, most, goes_on));
            // A file that is no text has no lines.
            let Ok(Some(in_file)) = searched else {
                return;
            };
            self.read += in_file.read;
            self.found.searched += 1;
            if in_file.count == 0 {
                return;
            }
            self.lines += in_file.lines.len();
            found.count = in_file.count;
            found.partial = in_file.partial;
            found.lines = in_file.lines;
        }
        self.found.entries.push(found);
    }
}

/// Opens what was a regular file a moment ago, without waiting for anything that took its place.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Devices of the kernel's own file systems, where they are mounted.
fn kernel_devices() -> Vec<u64> {
    let device = |path: &str| std::fs::metadata(path).ok().map(|meta| meta.dev());
    let root = device("/");
    let devices = KERNEL.iter().filter_map(|path| device(path));
    devices.filter(|it| Some(*it) != root).collect()
}

fn is_kernels(entry: &DirEntry, kernel: &[u64]) -> bool {
    let is_below = entry.depth() > 0 && entry.file_type().is_dir();
    is_below
        && entry
            .metadata()
            .is_ok_and(|meta| kernel.contains(&meta.dev()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn query(text: &str) -> Query {
        Query::of(&format!("/x?{text}").parse().unwrap())
    }

    fn found(root: &Path, text: &str) -> Found {
        let wanted = Wanted::of(&query(text)).unwrap();
        find(root, &wanted, &CancellationToken::new()).unwrap()
    }

    #[test]
    fn names_and_texts_are_found_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir_all(at("notes/deep")).unwrap();
        fs::write(at("a.txt"), "one\ntwo\n").unwrap();
        fs::write(at("notes/deep/b.txt"), "TWO two\n").unwrap();
        fs::write(at("notes/c.bin"), b"two\0").unwrap();
        symlink("/", at("notes/root.txt")).unwrap();
        let shown = |text: &str| {
            let found = found(place.path(), text);
            assert_eq!(found.stopped, None);
            let prefix = format!("{}/", place.path().display());
            let entries = found.entries.into_iter();
            let shown: Vec<_> = entries
                .map(|it| (it.path.replacen(&prefix, "", 1), it.count, it.lines.len()))
                .collect();
            (found.searched, shown)
        };
        let plain = |paths: &[&str]| {
            let shown = paths.iter().map(|path| ((*path).to_owned(), 0, 0));
            (0, shown.collect::<Vec<_>>())
        };
        assert_eq!(
            shown("pattern=*.txt"),
            plain(&["a.txt", "notes/deep/b.txt", "notes/root.txt"])
        );
        assert_eq!(shown("pattern=deep"), plain(&["notes/deep"]));
        let (searched, hits) = shown("text=two&ignore_case=true");
        assert_eq!(searched, 2, "the one that is no text is not counted");
        assert_eq!(
            hits,
            [
                ("a.txt".to_owned(), 1, 1),
                ("notes/deep/b.txt".to_owned(), 2, 1)
            ]
        );
        assert_eq!(shown("text=two&pattern=b*").1.len(), 1);
        let one = found(place.path(), "limit=1");
        assert_eq!(
            (one.entries.len(), one.stopped),
            (1, Some(FindStop::Matches))
        );
        symlink("notes", at("link")).unwrap();
        assert_eq!(found(&at("link"), "pattern=b.txt").entries.len(), 1);
        assert_eq!(found(&at("a.txt"), "text=one").entries.len(), 1);
    }

    #[test]
    fn bad_requests_are_refused_and_unwanted_searches_end() {
        for bad in [
            "pattern=[",
            "text=a%0Ab",
            "limit=-1",
            &format!("text={}", "x".repeat(5_000)),
        ] {
            let refused = Wanted::of(&query(bad));
            assert!(matches!(refused, Err(ApiError::Invalid(_))), "{bad}");
        }
        let place = tempfile::tempdir().unwrap();
        let wanted = Wanted::of(&query("text=a")).unwrap();
        let unwanted = CancellationToken::new();
        let absent = find(&place.path().join("none"), &wanted, &unwanted);
        assert!(matches!(absent, Err(ApiError::FileNotFound(_))));
        unwanted.cancel();
        assert!(find(place.path(), &wanted, &unwanted).is_err());
    }

    #[test]
    fn the_kernels_file_systems_are_left_out() {
        let kernel = kernel_devices();
        let walk = WalkDir::new("/").max_depth(1).into_iter();
        let kept: Vec<_> = walk
            .filter_entry(|entry| !is_kernels(entry, &kernel))
            .flatten()
            .map(DirEntry::into_path)
            .collect();
        assert!(!kept.contains(&"/proc".into()), "{kept:?}");
        assert!(kept.contains(&"/usr".into()), "{kept:?}");
    }
}

//! `GET /files/find`, an addition to the contract: entries by their names and files by their content,
//! within limits of entries, bytes and time.

use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Instant,
};

use osb_protocol::execd::file::{FileKind, FindStop, Found, FoundEntry};
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;

use super::{
    content::{self, Needle},
    glob::Glob,
    walk::Walk,
};
use crate::{
    error::{ApiError, ApiResult},
    http::Query,
    limits,
};

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
    let failed = |error| ApiError::file(root, &error);
    let until = Instant::now() + limits::FIND_TIME;
    let text = wanted.text.as_ref();
    let mut search = Search {
        found: Found::default(),
        lines: 0,
        read: 0,
        until,
        unwanted,
    };
    if !root.metadata().map_err(failed)?.is_dir() {
        let kind = root.symlink_metadata().map_err(failed)?.file_type();
        let name = root.file_name().unwrap_or_default();
        if wanted.name.matches(&name.to_string_lossy()) {
            search.look(root, kind, text);
        }
        return Ok(search.found);
    }
    std::fs::read_dir(root).map_err(failed)?;
    let mut walk = Walk::new(root, limits::ENTRIES, until, unwanted);
    loop {
        if unwanted.is_cancelled() {
            return Err(ApiError::runtime("the client disconnected"));
        }
        // A limit ends the search only where something is left to search.
        let Some(entry) = walk.next() else {
            break;
        };
        if let Some(stop) = search.stop(wanted.most) {
            search.found.stopped = Some(stop);
            break;
        }
        let name = entry.path.file_name().unwrap_or_default();
        if wanted.name.matches(&name.to_string_lossy()) {
            search.look(&entry.path, entry.kind, text);
        }
    }
    let mut found = search.found;
    found.stopped = found.stopped.or_else(|| walk.cut());
    Ok(found)
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
        } else {
            self.exhausted()
        }
    }

    /// The limit that is reached of those that may end the search in the middle of a file.
    fn exhausted(&self) -> Option<FindStop> {
        if self.read >= limits::FIND_BYTES {
            Some(FindStop::Bytes)
        } else if Instant::now() >= self.until {
            Some(FindStop::Time)
        } else {
            None
        }
    }

    /// Adds an entry, if it has the text.
    fn look(&mut self, path: &Path, kind: FileType, text: Option<&Needle>) {
        let Ok(meta) = path.symlink_metadata() else {
            return;
        };
        let mut found = FoundEntry {
            path: path.to_string_lossy().into_owned(),
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
            lossy: path.to_str().is_none(),
        };
        if let Some(needle) = text {
            if found.kind != FileKind::File {
                return;
            }
            let (until, unwanted) = (self.until, self.unwanted);
            let goes_on = || Instant::now() < until && !unwanted.is_cancelled();
            let most = limits::FIND_FILE.min(limits::FIND_BYTES.saturating_sub(self.read));
            let Ok(file) = open(path) else {
                return;
            };
            let mut file = Counted { file, bytes: 0 };
            let searched = content::search(&mut file, needle, most, goes_on);
            // Reading what turns out to be no text takes as long.
            self.read += file.bytes;
            // A file that is no text has no lines.
            let Ok(Some(in_file)) = searched else {
                return;
            };
            self.found.searched += 1;
            if in_file.partial {
                // After the last file no other one shows that a limit is reached.
                self.found.stopped = self.exhausted();
            }
            if in_file.count == 0 {
                self.found.cut += u64::from(in_file.partial);
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

/// A file, and how much of it was read.
struct Counted {
    file: File,
    bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.bytes += read as u64;
        Ok(read)
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
    fn a_search_that_ends_with_the_last_entry_was_not_stopped() {
        let place = tempfile::tempdir().unwrap();
        for file in ["a", "b", "c"] {
            fs::write(place.path().join(file), "text").unwrap();
        }
        for (query, stopped) in [
            ("limit=2", Some(FindStop::Matches)),
            ("limit=3", None),
            ("limit=3&text=text", None),
        ] {
            let found = found(place.path(), query);
            assert_eq!(found.stopped, stopped, "{query}");
        }
    }

    #[test]
    fn a_limit_that_is_reached_in_the_last_file_is_reported() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("long");
        fs::write(&file, "abc\n".repeat(limits::FIND_READ)).unwrap();
        let meta = file.symlink_metadata().unwrap();
        let unwanted = CancellationToken::new();
        let searched = |left: u64, text: &str| {
            let mut search = Search {
                found: Found::default(),
                lines: 0,
                read: limits::FIND_BYTES - left,
                until: Instant::now() + limits::FIND_TIME,
                unwanted: &unwanted,
            };
            let needle = Needle::new(text, false);
            search.look(&file, meta.file_type(), Some(&needle));
            let found = search.found;
            (found.stopped, found.cut, found.entries.len())
        };
        let stopped = Some(FindStop::Bytes);
        assert_eq!(searched(1, "abc"), (stopped, 0, 1));
        assert_eq!(searched(1, "none"), (stopped, 1, 0), "not silently");
        assert_eq!(searched(meta.len(), "none"), (None, 0, 0), "just enough");
    }
}

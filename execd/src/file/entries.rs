//! Directory walks: search and list (contract: execd §10.6, §10.9).

use std::{io, path::Path};

use osb_protocol::execd::file::{FileInfo, FileKind};
use tokio_util::sync::CancellationToken;
use walkdir::WalkDir;

use super::{glob::Glob, info};
use crate::{
    error::{ApiError, ApiResult},
    identity::Names,
    limits,
};

/// Entries below `root`, except directories, whose base name matches, in lexical order. Links are
/// reported, not followed. Entries that vanish or are unreadable are skipped.
pub(super) fn search(
    root: &Path,
    pattern: &str,
    names: &Names,
    unwanted: &CancellationToken,
) -> ApiResult<Vec<FileInfo>> {
    let glob = Glob::new(pattern).map_err(|error| ApiError::runtime(error.to_string()))?;
    let failed = |error| ApiError::file(root, &error);
    if root.symlink_metadata().map_err(failed)?.is_dir() {
        std::fs::read_dir(root).map_err(failed)?;
    }
    let mut found = Found::default();
    for entry in walk(root).into_iter().flatten() {
        still_wanted(unwanted)?;
        let matches =
            !entry.file_type().is_dir() && glob.matches(&entry.file_name().to_string_lossy());
        if matches && let Ok(info) = info::of(entry.path(), names) {
            found.push(info)?;
        }
    }
    Ok(found.0)
}

/// What a list does with symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// A root that is a link is no directory; where links lead is not said.
    Opaque,
    /// A root that leads to a directory is one; links have their target, and paths that are not UTF-8
    /// are marked.
    Resolved,
}

/// Entries below `root` up to a depth: each directory before its contents, in lexical order. Links
/// below the root are never followed.
pub(super) fn list(
    root: &Path,
    depth: usize,
    links: Links,
    names: &Names,
    unwanted: &CancellationToken,
) -> ApiResult<Vec<FileInfo>> {
    let meta = match links {
        Links::Opaque => root.symlink_metadata(),
        Links::Resolved => root.metadata(),
    };
    if !meta.map_err(|error| ApiError::file(root, &error))?.is_dir() {
        let message = format!("path is not a directory: {}", root.display());
        return Err(ApiError::invalid(message));
    }
    std::fs::read_dir(root).map_err(|error| ApiError::file(root, &error))?;
    let mut found = Found::default();
    // `WalkDir` raises a maximum depth below its minimum to the minimum.
    if depth > 0 {
        for entry in walk(root)
            .follow_root_links(links == Links::Resolved)
            .min_depth(1)
            .max_depth(depth)
            .into_iter()
            .flatten()
        {
            still_wanted(unwanted)?;
            if let Some(mut info) = present(info::of(entry.path(), names), entry.path())? {
                info.lossy = links == Links::Resolved && entry.path().to_str().is_none();
                if links == Links::Resolved && info.kind == FileKind::Symlink {
                    // A link that vanished meanwhile leads nowhere.
                    let target = std::fs::read_link(entry.path()).ok();
                    info.target = target.map(|target| target.to_string_lossy().into_owned());
                }
                found.push(info)?;
            }
        }
    }
    Ok(found.0)
}

/// Stops a walk after its client disconnected.
fn still_wanted(unwanted: &CancellationToken) -> ApiResult<()> {
    if unwanted.is_cancelled() {
        Err(ApiError::runtime("the client disconnected"))
    } else {
        Ok(())
    }
}

fn walk(root: &Path) -> WalkDir {
    WalkDir::new(root)
        .follow_root_links(false)
        .sort_by_file_name()
}

/// Entries may vanish during the walk.
fn present(info: io::Result<FileInfo>, path: &Path) -> ApiResult<Option<FileInfo>> {
    match info {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ApiError::file(path, &error)),
    }
}

#[derive(Default)]
struct Found(Vec<FileInfo>);

impl Found {
    fn push(&mut self, info: FileInfo) -> ApiResult<()> {
        if self.0.len() >= limits::ENTRIES {
            let message = format!("more than {} entries: ask for less", limits::ENTRIES);
            return Err(ApiError::runtime(message));
        }
        self.0.push(info);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{ffi::OsStrExt, fs::symlink},
    };

    use super::*;
    use crate::identity::Accounts;

    fn wanted() -> CancellationToken {
        CancellationToken::new()
    }

    fn tree() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir_all(at("b/c")).unwrap();
        for file in ["a.txt", "b/x.txt", "b/c/y.txt", "z.rs"] {
            fs::write(at(file), file).unwrap();
        }
        symlink("/", at("b/link.txt")).unwrap();
        place
    }

    fn shown(root: &Path, found: &[FileInfo]) -> Vec<String> {
        let prefix = format!("{}/", root.display());
        found
            .iter()
            .map(|info| info.path.replacen(&prefix, "", 1))
            .collect()
    }

    #[test]
    fn listing_is_pre_order_and_stops_at_the_depth() {
        let place = tree();
        let names = Accounts::default().names();
        let list = |depth| {
            shown(
                place.path(),
                &list(place.path(), depth, Links::Opaque, &names, &wanted()).unwrap(),
            )
        };
        assert!(list(0).is_empty());
        assert_eq!(list(1), ["a.txt", "b", "z.rs"]);
        assert_eq!(
            list(2),
            ["a.txt", "b", "b/c", "b/link.txt", "b/x.txt", "z.rs"]
        );
        assert_eq!(list(9).len(), 7);
    }

    #[test]
    fn roots_must_be_directories() {
        let place = tree();
        let names = Accounts::default().names();
        let error = |path: &str| {
            let root = place.path().join(path);
            let listed = list(&root, 1, Links::Opaque, &names, &wanted());
            listed.unwrap_err()
        };
        assert!(matches!(error("a.txt"), ApiError::Invalid(_)));
        assert!(matches!(error("b/link.txt"), ApiError::Invalid(_)));
        assert!(matches!(error("absent"), ApiError::FileNotFound(_)));
    }

    #[test]
    fn links_are_resolved_on_request() {
        let place = tree();
        let names = Accounts::default().names();
        let at = |path: &str| place.path().join(path);
        symlink("b", at("to-b")).unwrap();
        symlink("z.rs", at("to-z")).unwrap();
        let resolved = |path: &str| list(&at(path), 2, Links::Resolved, &names, &wanted());
        let found = resolved("to-b").unwrap();
        assert_eq!(
            shown(&at("to-b"), &found),
            ["c", "c/y.txt", "link.txt", "x.txt"]
        );
        let targets = |found: &[FileInfo]| -> Vec<_> {
            found
                .iter()
                .filter_map(|info| info.target.clone())
                .collect()
        };
        assert_eq!(targets(&found), ["/"]);
        assert_eq!(targets(&resolved("").unwrap()), ["/", "b", "z.rs"]);
        let opaque = list(place.path(), 2, Links::Opaque, &names, &wanted()).unwrap();
        assert!(targets(&opaque).is_empty());
        assert!(matches!(resolved("to-z"), Err(ApiError::Invalid(_))));
    }

    #[test]
    fn paths_that_are_not_utf8_are_marked_on_request() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join(OsStr::from_bytes(b"caf\xe9"))).unwrap();
        fs::write(place.path().join(OsStr::from_bytes(b"caf\xe9/in")), "").unwrap();
        // A name that has the replacement character itself.
        fs::write(place.path().join("caf\u{fffd}!"), "").unwrap();
        let names = Accounts::default().names();
        let listed = |links| {
            let found = list(place.path(), 2, links, &names, &wanted()).unwrap();
            let marks: Vec<bool> = found.iter().map(|info| info.lossy).collect();
            (shown(place.path(), &found), marks)
        };
        let paths = ["caf\u{fffd}", "caf\u{fffd}/in", "caf\u{fffd}!"];
        let (mut found, marks) = listed(Links::Resolved);
        let marked = found.iter().zip(&marks).filter(|(_, lossy)| **lossy);
        let mut marked: Vec<_> = marked.map(|(path, _)| path.clone()).collect();
        marked.sort();
        assert_eq!(marked, paths[..2]);
        found.sort();
        assert_eq!(found, [paths[0], paths[2], paths[1]].map(str::to_owned));
        assert_eq!(listed(Links::Opaque).1, [false; 3]);
    }

    #[test]
    fn search_returns_links_and_never_directories() {
        let place = tree();
        let names = Accounts::default().names();
        let search = |path: &str, pattern: &str| {
            let found = search(&place.path().join(path), pattern, &names, &wanted())?;
            Ok::<_, ApiError>(shown(place.path(), &found))
        };
        assert_eq!(
            search("", "*.txt").unwrap(),
            ["a.txt", "b/c/y.txt", "b/link.txt", "b/x.txt"]
        );
        assert_eq!(search("a.txt", "").unwrap(), ["a.txt"]);
        assert_eq!(search("b/link.txt", "").unwrap(), ["b/link.txt"]);
        assert!(matches!(
            search("absent", ""),
            Err(ApiError::FileNotFound(_))
        ));
        assert!(matches!(search("", "["), Err(ApiError::System(_))));
        let unwanted = wanted();
        unwanted.cancel();
        assert!(super::search(place.path(), "", &names, &unwanted).is_err());
        assert!(list(place.path(), 1, Links::Opaque, &names, &unwanted).is_err());
    }
}

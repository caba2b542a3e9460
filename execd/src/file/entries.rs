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

/// Entries below `root` up to a depth: each directory before its contents, in lexical order.
pub(super) fn list(
    root: &Path,
    depth: usize,
    names: &Names,
    unwanted: &CancellationToken,
) -> ApiResult<Vec<FileInfo>> {
    let is = info::of(root, names).map_err(|error| ApiError::file(root, &error))?;
    if is.kind != FileKind::Directory {
        let message = format!("path is not a directory: {}", root.display());
        return Err(ApiError::invalid(message));
    }
    std::fs::read_dir(root).map_err(|error| ApiError::file(root, &error))?;
    let mut found = Found::default();
    // `WalkDir` raises a maximum depth below its minimum to the minimum.
    if depth > 0 {
        for entry in walk(root)
            .min_depth(1)
            .max_depth(depth)
            .into_iter()
            .flatten()
        {
            still_wanted(unwanted)?;
            if let Some(info) = present(info::of(entry.path(), names), entry.path())? {
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
    use std::{fs, os::unix::fs::symlink};

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
                &list(place.path(), depth, &names, &wanted()).unwrap(),
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
            let listed = list(&place.path().join(path), 1, &names, &wanted());
            listed.unwrap_err()
        };
        assert!(matches!(error("a.txt"), ApiError::Invalid(_)));
        assert!(matches!(error("b/link.txt"), ApiError::Invalid(_)));
        assert!(matches!(error("absent"), ApiError::FileNotFound(_)));
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
        assert!(list(place.path(), 1, &names, &unwanted).is_err());
    }
}

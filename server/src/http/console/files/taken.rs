//! Which of the files that a browser is about to upload exist already.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use axum::http::StatusCode;
use osb_client::ExecdClient;
use osb_protocol::execd::file::FileKind;
use tokio::time::timeout;

use super::{super::daemons::DaemonFailure, ANSWER};

/// Most names of one request.
const MOST: usize = 10_000;

/// Of a folder that is uploaded: the names of its files, and of its folders.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inside<'a> {
    files: BTreeSet<&'a str>,
    folders: BTreeSet<&'a str>,
}

/// Those of the paths below `folder` where something is. Lists only folders that exist on both sides.
pub(super) async fn taken(
    execd: &ExecdClient,
    folder: &str,
    below: &[&str],
) -> Result<Vec<String>, DaemonFailure> {
    if below.len() > MOST {
        return Err(DaemonFailure::Words(
            "These are too many files at once.".to_owned(),
        ));
    }
    timeout(4 * ANSWER, async {
        let inside = folders(below);
        let mut taken = Vec::new();
        let mut next = VecDeque::from([String::new()]);
        while let Some(at) = next.pop_front() {
            let Some(wanted) = inside.get(at.trim_end_matches('/')) else {
                continue;
            };
            let here = format!("{}/{at}", folder.trim_end_matches('/'));
            let entries = match execd.list_links(&here, 1).await {
                Ok(entries) => entries,
                // Gone meanwhile, or no folder: the upload reports why it cannot be.
                Err(osb_client::Error::Api(refusal))
                    if matches!(
                        refusal.status,
                        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for entry in entries {
                let name = entry.path.rsplit('/').next().unwrap_or_default();
                if wanted.files.contains(name) {
                    taken.push(format!("{at}{name}"));
                }
                let is_way = matches!(entry.kind, FileKind::Directory | FileKind::Symlink);
                if is_way && wanted.folders.contains(name) {
                    next.push_back(format!("{at}{name}/"));
                }
            }
        }
        Ok(taken)
    })
    .await?
}

/// What is in each folder, by its path without a slash at the end.
fn folders<'a>(below: &[&'a str]) -> BTreeMap<&'a str, Inside<'a>> {
    let mut folders = BTreeMap::<&str, Inside<'_>>::new();
    for path in below {
        let mut path = *path;
        let mut is_file = true;
        loop {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let inside = folders.entry(above).or_default();
            let is_new = match is_file {
                true => inside.files.insert(name),
                false => inside.folders.insert(name),
            };
            if above.is_empty() || !is_new {
                break;
            }
            (path, is_file) = (above, false);
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sorted_into_their_folders() {
        let folders = folders(&["p/src/a", "p/src/b", "p/c", "d"]);
        let inside = |files: &[&'static str], folders: &[&'static str]| Inside {
            files: files.iter().copied().collect(),
            folders: folders.iter().copied().collect(),
        };
        let expected = [
            ("", inside(&["d"], &["p"])),
            ("p", inside(&["c"], &["src"])),
            ("p/src", inside(&["a", "b"], &[])),
        ];
        assert_eq!(folders.into_iter().collect::<Vec<_>>(), expected);
    }
}

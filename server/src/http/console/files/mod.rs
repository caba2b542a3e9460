//! The files of sandboxes, for pages of the console: over the execd of the sandbox, which knows who
//! may do what in it.

mod archive;
mod find;
mod part;
mod routes;
mod taken;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use axum::http::StatusCode;
use osb_app::{
    error::ConsoleError,
    files::{
        Asked, Change, Entry, FOLDER_ROWS, FileView, Folder, Opened, Replaced, Saved,
        backend::FileBackend,
    },
};
use osb_client::{
    ExecdClient,
    execd::{Portion, Upload},
};
use osb_protocol::{
    SandboxId, WireTime,
    execd::file::{FileInfo, FileKind, Found, Move, Permission, Replacement},
};
use tokio::time::timeout;

pub(super) use routes::{router, uploads};

use super::{
    super::audited::Noted,
    ConsoleState,
    daemons::{DaemonFailure, Daemons},
    for_request::ForRequest,
    memory::Memory,
    session::Admitted,
};

/// Longest time that execd may take for one answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Longest path that Linux takes, in bytes.
const PATH_MAX: usize = 4096;

/// [`FileBackend`] over execd.
pub(super) struct SandboxFiles {
    daemons: Daemons,
    /// What the request has read.
    memory: Memory,
}

/// A failure as a page shows it, for something at this path.
fn shown(failure: DaemonFailure, path: &str) -> ConsoleError {
    failure.shown(|error| match error.status() {
        Some(StatusCode::NOT_FOUND) => nothing_at(path),
        _ => error.to_string(),
    })
}

impl ForRequest for SandboxFiles {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        Self {
            daemons: Daemons::for_request(state, admitted, noted),
            memory: Memory::of_request(),
        }
    }
}

impl SandboxFiles {
    /// Reaches the execd of a sandbox for something at this path.
    fn execd(&self, id: &SandboxId, path: &str) -> Result<ExecdClient, DaemonFailure> {
        self.daemons.set_object(id);
        self.daemons.note("path", path);
        check(path)?;
        Ok(self.daemons.execd(id)?)
    }

    async fn opened(
        &self,
        id: &SandboxId,
        path: &str,
        from: u64,
        as_bytes: bool,
    ) -> Result<Opened, DaemonFailure> {
        let execd = self.execd(id, path)?;
        match timeout(ANSWER, execd.list_links(path, 1)).await? {
            Ok(entries) => Ok(Opened::Folder(folder(path, entries, from))),
            // No folder.
            Err(osb_client::Error::Api(refusal)) if refusal.status == StatusCode::BAD_REQUEST => {
                let file = file(&execd, path, from, as_bytes).await?;
                Ok(Opened::File(Box::new(file)))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn saved(
        &self,
        id: &SandboxId,
        path: &str,
        text: String,
        stamp: Option<String>,
    ) -> Result<Saved, DaemonFailure> {
        let execd = self.execd(id, path)?;
        let now = match timeout(ANSWER, info(&execd, path)).await? {
            Ok(now) => Some(entry(now).stamp()),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(unsaved) = unsaved(now.as_deref(), stamp.as_deref()) {
            return Ok(unsaved);
        }
        let upload = Upload {
            path: path.to_owned(),
            permission: Permission::default(),
            content: text.into(),
        };
        timeout(ANSWER, execd.upload([upload])).await??;
        let stamp = entry(timeout(ANSWER, info(&execd, path)).await??).stamp();
        Ok(Saved::Done { stamp })
    }

    async fn changed(&self, id: &SandboxId, change: Change) -> Result<(), DaemonFailure> {
        match change {
            Change::NewFile(path) => {
                let execd = self.execd(id, &path)?;
                must_be_free(&execd, &path).await?;
                let upload = Upload {
                    path,
                    permission: Permission::default(),
                    content: "".into(),
                };
                timeout(ANSWER, execd.upload([upload])).await??;
            }
            Change::NewFolder(path) => {
                let execd = self.execd(id, &path)?;
                must_be_free(&execd, &path).await?;
                let folder = BTreeMap::from([(path, Permission::default())]);
                timeout(ANSWER, execd.make_directories(&folder)).await??;
            }
            Change::Move { from, to } => {
                let execd = self.execd(id, &from)?;
                check(&to)?;
                self.daemons.note("to", to.as_str());
                must_be_free(&execd, &to).await?;
                let moves = [Move {
                    src: from,
                    dest: to,
                }];
                // Another filesystem means a copy.
                timeout(4 * ANSWER, execd.move_files(&moves)).await??;
            }
            Change::Remove(path) => {
                let execd = self.execd(id, &path)?;
                timeout(4 * ANSWER, execd.delete_directories(&[&path])).await??;
            }
            Change::Mode(path, mode) => {
                let execd = self.execd(id, &path)?;
                self.daemons.note("mode", mode);
                let permission = Permission {
                    mode: mode.into(),
                    ..Permission::default()
                };
                let permissions = BTreeMap::from([(path, permission)]);
                timeout(ANSWER, execd.set_permissions(&permissions)).await??;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl FileBackend for SandboxFiles {
    async fn open(
        &self,
        id: &SandboxId,
        path: &str,
        from: u64,
        as_bytes: bool,
    ) -> Result<Opened, ConsoleError> {
        let name = format!("files/{id}/{path}/{from}/{as_bytes}");
        let read = async {
            let opened = self.opened(id, path, from, as_bytes).await;
            opened.map_err(|failure| shown(failure, path))
        };
        self.memory.once(name, read).await
    }

    async fn find(&self, id: &SandboxId, path: &str, asked: &Asked) -> Result<Found, ConsoleError> {
        let name = format!("find/{id}/{path}/{asked:?}");
        let read = async {
            let found = async { find::find(&self.execd(id, path)?, path, asked).await };
            found.await.map_err(|failure| shown(failure, path))
        };
        self.memory.once(name, read).await
    }

    async fn taken(
        &self,
        id: &SandboxId,
        folder: &str,
        below: &[&str],
    ) -> Result<Vec<String>, ConsoleError> {
        let taken = async { taken::taken(&self.execd(id, folder)?, folder, below).await };
        taken.await.map_err(|failure| shown(failure, folder))
    }

    async fn replace(
        &self,
        id: &SandboxId,
        folder: &str,
        paths: &[&str],
        old: &str,
        new: &str,
    ) -> Result<Replaced, ConsoleError> {
        let replacement = Replacement {
            old: old.to_owned(),
            new: new.to_owned(),
        };
        let replaced = async {
            let execd = self.execd(id, folder)?;
            self.daemons.note("replaced_in", paths.len());
            find::replace(&execd, folder, paths, &replacement).await
        };
        let replaced = replaced.await;
        if let Ok(replaced) = &replaced {
            self.daemons.note("replaced", replaced.places);
            if !replaced.failed.is_empty() {
                self.daemons.note("failed_in", replaced.failed.len());
            }
        }
        self.daemons.settle(&replaced);
        replaced.map_err(|failure| shown(failure, folder))
    }

    async fn save(
        &self,
        id: &SandboxId,
        path: &str,
        text: String,
        stamp: Option<String>,
    ) -> Result<Saved, ConsoleError> {
        let saved = self.saved(id, path, text, stamp).await;
        if matches!(saved, Ok(Saved::Conflict | Saved::Gone)) {
            self.daemons.note("conflict", true);
        }
        self.daemons.settle(&saved);
        saved.map_err(|failure| shown(failure, path))
    }

    async fn change(&self, id: &SandboxId, change: Change) -> Result<(), ConsoleError> {
        let path = match &change {
            Change::NewFile(path)
            | Change::NewFolder(path)
            | Change::Remove(path)
            | Change::Mode(path, _)
            | Change::Move { from: path, .. } => path.clone(),
        };
        let changed = self.changed(id, change).await;
        self.daemons.settle(&changed);
        changed.map_err(|failure| shown(failure, &path))
    }
}

/// Why nothing is shown at a path. An execd that does not mark names that are not UTF-8 shows them with
/// replacement characters, and does not know the result.
fn nothing_at(path: &str) -> String {
    let mut text = format!("There is nothing at {path}.");
    if path.contains(char::REPLACEMENT_CHARACTER) {
        text += " If its name is not UTF-8, the console cannot open it: use a terminal.";
    }
    text
}

/// Refuses what is no absolute path.
fn check(path: &str) -> Result<(), DaemonFailure> {
    let why = match path {
        _ if !path.starts_with('/') => "must begin with a slash",
        _ if path.contains('\0') => "must not contain NUL",
        _ if path.len() > PATH_MAX => "is longer than a path may be",
        _ => return Ok(()),
    };
    Err(DaemonFailure::Words(format!("path: {why}")))
}

async fn info(execd: &ExecdClient, path: &str) -> Result<FileInfo, osb_client::Error> {
    let infos = execd.info(&[path]).await?;
    infos.into_values().next().ok_or_else(|| {
        osb_client::Error::Api(osb_client::ApiError {
            status: StatusCode::NOT_FOUND,
            code: "FILE_NOT_FOUND".to_owned(),
            message: "execd said nothing about the file".to_owned(),
            request_id: None,
        })
    })
}

fn is_absent(error: &osb_client::Error) -> bool {
    matches!(error, osb_client::Error::Api(refusal) if refusal.status == StatusCode::NOT_FOUND)
}

/// Why a text is not written: the file with the stamp `now` is not the one that is to be replaced.
/// `None` stands for no file.
fn unsaved(now: Option<&str>, replaced: Option<&str>) -> Option<Saved> {
    match (now, replaced) {
        (None, Some(_)) => Some(Saved::Gone),
        (now, replaced) if now != replaced => Some(Saved::Conflict),
        _ => None,
    }
}

/// Refuses a path where something is.
async fn must_be_free(execd: &ExecdClient, path: &str) -> Result<(), DaemonFailure> {
    match timeout(ANSWER, info(execd, path)).await? {
        Ok(_) => Err(DaemonFailure::Words(format!(
            "There is something at {path} already."
        ))),
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Entries of a folder from number `from` on: folders first, then by name.
fn folder(path: &str, found: Vec<FileInfo>, from: u64) -> Folder {
    let mut entries: Vec<Entry> = found.into_iter().map(entry).collect();
    entries.sort_by(|a, b| {
        let is_file = |entry: &Entry| entry.kind != FileKind::Directory;
        (is_file(a), &a.name).cmp(&(is_file(b), &b.name))
    });
    let total = entries.len();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(total);
    Folder {
        path: path.to_owned(),
        entries: entries.into_iter().skip(from).take(FOLDER_ROWS).collect(),
        from,
        total,
    }
}

fn entry(info: FileInfo) -> Entry {
    let name = info.path.rsplit('/').next().unwrap_or_default().to_owned();
    Entry {
        name,
        kind: info.kind,
        target: info.target,
        size: info.size,
        modified_at: WireTime::new(info.modified_at),
        owner: info.owner,
        group: info.group,
        mode: info.mode,
        lossy: info.lossy,
    }
}

/// A part of a file.
async fn file(
    execd: &ExecdClient,
    path: &str,
    from: u64,
    as_bytes: bool,
) -> Result<FileView, DaemonFailure> {
    let entry = entry(timeout(ANSWER, info(execd, path)).await??);
    if entry.kind == FileKind::Other {
        let message = format!("{path} is a device, a pipe or a socket, and not read here.");
        return Err(DaemonFailure::Words(message));
    }
    let wanted = if as_bytes { part::BYTES } else { part::TEXT };
    let portion = Portion::Bytes(from..=from.saturating_add(wanted as u64 - 1));
    let read = async {
        let download = execd.download(path, portion).await?;
        let size = download.total().unwrap_or_default();
        Ok::<_, osb_client::Error>((size, part::read(download, wanted).await?))
    };
    let (size, bytes) = match timeout(ANSWER, read).await? {
        Ok(read) => read,
        Err(osb_client::Error::Api(refusal))
            if refusal.status == StatusCode::RANGE_NOT_SATISFIABLE =>
        {
            let message = format!("{path} has no byte {from}.");
            return Err(DaemonFailure::Words(message));
        }
        Err(error) => return Err(error.into()),
    };
    let (content, from, length) = part::content(&bytes, from, size, as_bytes);
    Ok(FileView {
        path: path.to_owned(),
        entry,
        size,
        from,
        length,
        content,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, kind: FileKind) -> FileInfo {
        FileInfo {
            path: path.to_owned(),
            kind,
            size: 1,
            modified_at: "2026-01-02T03:04:05.5Z".parse().unwrap(),
            created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            owner: "root".to_owned(),
            group: "root".to_owned(),
            mode: 644,
            target: None,
            lossy: false,
        }
    }

    #[test]
    fn folders_come_first_and_large_ones_in_parts() {
        let all = vec![
            found("/a/c", FileKind::File),
            found("/a/b", FileKind::Directory),
            found("/a/a", FileKind::Symlink),
        ];
        let names = |folder: &Folder| {
            let names = folder.entries.iter().map(|entry| entry.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&folder("/a", all.clone(), 0)), ["b", "a", "c"]);
        assert_eq!(names(&folder("/a", all.clone(), 2)), ["c"]);
        assert!(folder("/a", all, 99).entries.is_empty());
        let many = (0..1_200).map(|n| found(&format!("/a/{n:04}"), FileKind::File));
        let part = folder("/a", many.collect(), 1_000);
        assert_eq!(
            (part.from, part.total, part.entries.len()),
            (1_000, 1_200, 200)
        );
        assert_eq!(part.entries[0].name, "1000");
    }

    #[test]
    fn a_stamp_changes_with_time_and_size() {
        let one = found("/a", FileKind::File);
        let mut later = one.clone();
        later.modified_at = "2026-01-02T03:04:05.500001Z".parse().unwrap();
        let mut longer = one.clone();
        longer.size = 2;
        let stamp = |info: &FileInfo| entry(info.clone()).stamp();
        assert_ne!(stamp(&one), stamp(&later));
        assert_ne!(stamp(&one), stamp(&longer));
        assert_eq!(stamp(&one), stamp(&one));
    }

    #[test]
    fn a_text_replaces_only_the_file_that_was_read() {
        for (now, replaced, expected) in [
            (Some("a"), Some("a"), None),
            (Some("b"), Some("a"), Some(Saved::Conflict)),
            (None, Some("a"), Some(Saved::Gone)),
            (None, None, None),
            // It was written anew by another while the user was asked.
            (Some("b"), None, Some(Saved::Conflict)),
        ] {
            assert_eq!(unsaved(now, replaced), expected, "{now:?} {replaced:?}");
        }
    }

    #[test]
    fn a_name_that_may_not_be_utf8_is_explained() {
        assert_eq!(nothing_at("/a/é"), "There is nothing at /a/é.");
        let text = nothing_at("/a/caf\u{fffd}");
        assert!(text.contains("not UTF-8"), "{text}");
    }

    #[test]
    fn only_absolute_paths_are_taken() {
        assert!(check("/a b/é").is_ok());
        for bad in [
            "",
            "a",
            "~/x",
            "/a\0",
            &format!("/{}", "x".repeat(PATH_MAX)),
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }
}

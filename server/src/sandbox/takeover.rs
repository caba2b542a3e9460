//! Renewals and metadata of sandboxes that another server made, which kept them in files (contract:
//! lifecycle §17.10, §19). They are read at the start, stored for the sandboxes that exist, and then
//! not read again unless the other server has written them since.
//!
//! ```text
//! {folder}/{sandbox}.json              {"team": "core"}
//! {folder}/_expiration/{sandbox}.json  {"expires_at": "2031-05-01T10:00:00+00:00"}
//! {folder}/_imported                   written by this server; its time is that of the import
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use osb_protocol::{SandboxId, WireTime};
use osb_service::ErrorChain;
use osb_store::Changes;
use serde::{Deserialize, de::DeserializeOwned};
use tracing::{info, warn};

use super::Service;

/// Folder with expiries.
const EXPIRATION: &str = "_expiration";
/// Marks an import.
const MARKER: &str = "_imported";
/// Longest file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Most files of a folder.
const FILES_MAX: usize = 100_000;

/// What the files of another server say.
#[derive(Debug, Default)]
pub struct ForeignFiles {
    folder: PathBuf,
    changes: HashMap<SandboxId, Changes>,
    /// When they were read; `None` if there is nothing to mark.
    read_at: Option<SystemTime>,
    /// Whether an earlier start has imported them, so that these are newer than the store.
    were_imported: bool,
    has_failed: bool,
}

#[derive(Deserialize)]
struct Expiration {
    expires_at: String,
}

impl ForeignFiles {
    /// Reads the files that were written since the last import. Those that cannot be read are left
    /// out with a warning.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let now = SystemTime::now();
        let imported = modified(&folder.join(MARKER));
        let mut files = Self {
            folder: folder.to_owned(),
            read_at: folder.is_dir().then_some(now),
            were_imported: imported.is_some(),
            ..Self::default()
        };
        each_file(
            folder,
            imported,
            |id, metadata: BTreeMap<String, String>| {
                files.changes.entry(id).or_default().metadata = Some(metadata);
                Ok(())
            },
        );
        let expiration = folder.join(EXPIRATION);
        each_file(&expiration, imported, |id, Expiration { expires_at }| {
            let at = WireTime::parse(&expires_at).map_err(io::Error::other)?;
            files.changes.entry(id).or_default().expires_at = Some(at);
            Ok(())
        });
        files
    }

    /// What the files say about a sandbox that the store does not know better.
    fn take(&mut self, id: &SandboxId, stored: &Changes) -> Option<Changes> {
        let mut found = self.changes.remove(id)?;
        if !self.were_imported {
            // A marker that could not be written must not undo what happened since.
            found.expires_at = found.expires_at.filter(|_| stored.expires_at.is_none());
            found.metadata = found.metadata.filter(|_| stored.metadata.is_none());
        }
        Some(found)
    }

    /// Remembers that the files were imported, unless one could not be stored.
    pub(super) fn finish(&mut self) {
        let Some(read_at) = self.read_at.take().filter(|_| !self.has_failed) else {
            return;
        };
        let marked = || {
            let marker = File::create(self.folder.join(MARKER))?;
            marker.set_modified(read_at)
        };
        if let Err(error) = marked() {
            let folder = self.folder.display();
            warn!(%error, %folder, "cannot mark the imported files; the next start reads them again");
        }
    }
}

/// When a file was written.
fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|file| file.modified()).ok()
}

/// Reads every `{sandbox}.json` of a folder that is newer than `after`.
fn each_file<T: DeserializeOwned>(
    folder: &Path,
    after: Option<SystemTime>,
    mut use_it: impl FnMut(SandboxId, T) -> io::Result<()>,
) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
    for path in files.take(FILES_MAX) {
        let is_old = modified(&path).is_none_or(|at| after.is_some_and(|after| at <= after));
        let Some(id) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        if is_old {
            continue;
        }
        let mut read = || {
            let mut text = String::new();
            File::open(&path)?
                .take(FILE_MAX)
                .read_to_string(&mut text)?;
            use_it(SandboxId::new(id), serde_json::from_str(&text)?)
        };
        if let Err(error) = read() {
            warn!(%error, file = %path.display(), "cannot import the file of another server");
        }
    }
}

impl Service {
    /// Stores what files say about a sandbox that was found, and adds it to what the store `knows`.
    pub(super) async fn import(
        &self,
        id: &SandboxId,
        files: &mut ForeignFiles,
        known: &mut Changes,
    ) {
        let Some(found) = files.take(id, known) else {
            return;
        };
        let store = &self.inner.store;
        let stored = async {
            if let Some(at) = found.expires_at {
                store.set_expiry(id, at).await?;
            }
            if let Some(metadata) = &found.metadata {
                store.set_metadata(id, metadata).await?;
            }
            Ok::<_, osb_store::StoreError>(())
        };
        match stored.await {
            Ok(()) => info!(sandbox = %id, "took over renewal and metadata of another server"),
            Err(error) => {
                files.has_failed = true;
                let error = ErrorChain(&error);
                warn!(sandbox = %id, %error, "cannot store what another server kept in files");
            }
        }
        // Also if it was not stored: without its renewal the sandbox would end now.
        known.expires_at = found.expires_at.or(known.expires_at);
        known.metadata = found.metadata.or_else(|| known.metadata.take());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn write(folder: &Path, name: &str, text: &str, at: SystemTime) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(at)
            .unwrap();
    }

    fn metadata(value: &str) -> Option<BTreeMap<String, String>> {
        Some([("k".to_owned(), value.to_owned())].into())
    }

    #[test]
    fn files_are_read_once_and_again_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let hour = Duration::from_secs(3600);
        let before = SystemTime::now() - hour;
        write(folder, "a.json", r#"{"k": "v"}"#, before);
        write(
            folder,
            "_expiration/a.json",
            r#"{"expires_at": "2031-05-01T12:00:00.5+02:00"}"#,
            before,
        );
        write(folder, "broken.json", "{", before);
        write(
            folder,
            "_expiration/broken.json",
            r#"{"expires_at": "soon"}"#,
            before,
        );
        write(folder, "notes.txt", "{}", before);
        let mut files = ForeignFiles::read(folder);
        assert_eq!(files.changes.len(), 1, "{files:?}");
        let found = files.take(&"a".into(), &Changes::default()).unwrap();
        assert_eq!(found.metadata, metadata("v"));
        assert_eq!(
            found.expires_at.unwrap().to_string(),
            "2031-05-01T10:00:00.500000Z"
        );
        files.finish();
        let again = ForeignFiles::read(folder);
        assert_eq!(again.changes.len(), 0, "{again:?}");
        write(
            folder,
            "a.json",
            r#"{"k": "newer"}"#,
            SystemTime::now() + hour,
        );
        let mut newer = ForeignFiles::read(folder);
        let stored = Changes {
            metadata: metadata("older"),
            ..Changes::default()
        };
        let found = newer.take(&"a".into(), &stored).unwrap();
        assert_eq!(found.metadata, metadata("newer"));
    }

    #[test]
    fn without_a_mark_the_store_knows_better() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            "a.json",
            r#"{"k": "file"}"#,
            SystemTime::now(),
        );
        write(
            folder.path(),
            "_expiration/a.json",
            r#"{"expires_at": "2031-05-01T12:00:00Z"}"#,
            SystemTime::now(),
        );
        let mut files = ForeignFiles::read(folder.path());
        let stored = Changes {
            metadata: metadata("store"),
            ..Changes::default()
        };
        let found = files.take(&"a".into(), &stored).unwrap();
        assert!(
            found.metadata.is_none() && found.expires_at.is_some(),
            "{found:?}"
        );
        files.has_failed = true;
        files.finish();
        assert_eq!(ForeignFiles::read(folder.path()).changes.len(), 1);
    }

    #[test]
    fn nothing_is_marked_where_no_server_kept_files() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        ForeignFiles::read(&absent).finish();
        assert!(!absent.exists());
    }
}

//! Renewals and metadata of sandboxes that another server made, which kept them in files (contract:
//! lifecycle §17.10, §19). The files of a sandbox are read when the runtime is first seen to have it,
//! and what they say is stored together with their digests. A file whose digest is stored is not
//! imported again, however often the server starts; one that the other server has written since is.
//!
//! ```text
//! {folder}/{sandbox}.json              {"team": "core"}
//! {folder}/_expiration/{sandbox}.json  {"expires_at": "2031-05-01T10:00:00+00:00"}
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::Origin;
use osb_service::ErrorChain;
use osb_store::{Changes, ForeignImport, ImportedFiles, Store, StoreError};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::Service;

/// Folder with expiries.
const EXPIRATION: &str = "_expiration";
/// Longest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The folder in which another server kept files, if there is one.
#[derive(Clone, Debug, Default)]
pub struct ForeignFiles(Option<PathBuf>);

impl ForeignFiles {
    /// The files in a folder, which need not exist.
    #[must_use]
    pub fn in_folder(folder: PathBuf) -> Self {
        Self(Some(folder))
    }
}

/// What is imported from files, and what was.
#[derive(Debug)]
pub(super) struct Imports {
    folder: Option<PathBuf>,
    imported: HashMap<SandboxId, ImportedFiles>,
    /// Files that were read and not used yet.
    files: HashMap<SandboxId, SandboxFiles>,
}

/// The files of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SandboxFiles {
    expires_at: Option<WireTime>,
    metadata: Option<BTreeMap<String, String>>,
    digests: ImportedFiles,
}

#[derive(Deserialize)]
struct Expiration {
    expires_at: String,
}

impl Imports {
    /// Reads from the store what was imported.
    pub(super) async fn of(files: ForeignFiles, store: &dyn Store) -> Result<Self, StoreError> {
        let imported = match files.0 {
            Some(_) => store.imported_files().await?,
            None => HashMap::new(),
        };
        Ok(Self {
            folder: files.0,
            imported,
            files: HashMap::new(),
        })
    }

    /// Reads the files of these sandboxes.
    pub(super) async fn read(&mut self, ids: Vec<SandboxId>) {
        let Some(folder) = self.folder.clone().filter(|_| !ids.is_empty()) else {
            return;
        };
        let read = tokio::task::spawn_blocking(move || {
            let all = ids.into_iter().map(|id| {
                let files = SandboxFiles::read(&folder, &id);
                (id, files)
            });
            all.filter(|(_, files)| *files != SandboxFiles::default())
                .collect()
        });
        match read.await {
            Ok(files) => self.files = files,
            Err(error) => warn!(%error, "cannot read the files of another server"),
        }
    }

    /// Forgets files that were read and not used.
    pub(super) fn forget_files(&mut self) {
        self.files.clear();
    }

    /// What is to be stored about a sandbox; `None` if there is nothing new. Its labels say whose it
    /// is, which a history written without them needs.
    fn take(&mut self, origin: &Origin, stored: &Changes) -> Option<ForeignImport> {
        let imported = self.imported.get(&origin.id).copied().unwrap_or_default();
        let files = self.files.remove(&origin.id)?;
        let import = files.news(imported, stored)?;
        Some(ForeignImport {
            tenant: origin.tenant.as_deref().map(str::to_owned),
            ..import
        })
    }
}

impl SandboxFiles {
    /// Reads the files of a sandbox. One that cannot be read is left out with a warning.
    fn read(folder: &Path, id: &SandboxId) -> Self {
        let id = id.as_str();
        // Ids are labels, which any user of the engine can choose.
        if id.is_empty() || id.contains(['/', '\0']) {
            return Self::default();
        }
        let mut files = Self::default();
        let file = folder.join(format!("{id}.json"));
        if let Some((digest, metadata)) = read(&file, |text| Ok(serde_json::from_slice(text)?)) {
            files.metadata = Some(metadata);
            files.digests.metadata = Some(digest);
        }
        let file = folder.join(EXPIRATION).join(format!("{id}.json"));
        let expiry = read(&file, |text| {
            let Expiration { expires_at } = serde_json::from_slice(text)?;
            WireTime::parse(&expires_at).map_err(io::Error::other)
        });
        if let Some((digest, expires_at)) = expiry {
            files.expires_at = Some(expires_at);
            files.digests.expiry = Some(digest);
        }
        files
    }

    /// What the files say that is not stored yet. What is stored about a sandbox is newer than files
    /// that were never imported, and older than those that changed since their import.
    fn news(self, imported: ImportedFiles, stored: &Changes) -> Option<ForeignImport> {
        let is_news = |digest: Option<[u8; 32]>, imported: Option<[u8; 32]>, is_stored: bool| {
            digest != imported && (imported.is_some() || !is_stored)
        };
        let (found, has) = (self.digests, stored);
        let files = ImportedFiles {
            expiry: found.expiry.or(imported.expiry),
            metadata: found.metadata.or(imported.metadata),
        };
        let expiry = is_news(found.expiry, imported.expiry, has.expires_at.is_some());
        let metadata = is_news(found.metadata, imported.metadata, has.metadata.is_some());
        (files != imported).then(|| ForeignImport {
            expires_at: self.expires_at.filter(|_| expiry),
            metadata: self.metadata.filter(|_| metadata),
            tenant: None,
            files,
        })
    }
}

/// Reads a file and its digest. `None` if there is no such file, and with a warning if it is unusable.
fn read<T>(file: &Path, parse: impl FnOnce(&[u8]) -> io::Result<T>) -> Option<([u8; 32], T)> {
    let read = || -> io::Result<([u8; 32], T)> {
        let mut text = Vec::new();
        File::open(file)?.take(FILE_MAX).read_to_end(&mut text)?;
        let digest = Sha256::digest(&text).into();
        Ok((digest, parse(&text)?))
    };
    match read() {
        Ok(read) => Some(read),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            warn!(%error, file = %file.display(), "cannot import the file of another server");
            None
        }
    }
}

impl Service {
    /// Stores what files say about a sandbox that was found, and adds it to what the store `knows`.
    pub(super) async fn import(&self, origin: &Origin, imports: &mut Imports, known: &mut Changes) {
        let id = &origin.id;
        let Some(import) = imports.take(origin, known) else {
            return;
        };
        match self.inner.store.import(id, &import).await {
            Ok(()) => {
                info!(sandbox = %id, "took over renewal and metadata of another server");
                imports.imported.insert(id.clone(), import.files);
            }
            Err(error) => {
                let error = ErrorChain(&error);
                warn!(sandbox = %id, %error, "cannot store what another server kept in files; the next start tries again");
            }
        }
        // Also if it was not stored: without its renewal the sandbox would end now.
        known.expires_at = import.expires_at.or(known.expires_at);
        known.metadata = import.metadata.or_else(|| known.metadata.take());
        known.tenant = import.tenant.or_else(|| known.tenant.take());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }

    fn metadata(value: &str) -> Option<BTreeMap<String, String>> {
        Some([("k".to_owned(), value.to_owned())].into())
    }

    fn stored(value: &str) -> Changes {
        Changes {
            metadata: metadata(value),
            ..Changes::default()
        }
    }

    #[test]
    fn files_are_imported_once_and_again_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, "a.json", r#"{"k": "v"}"#);
        let expiry = r#"{"expires_at": "2031-05-01T12:00:00.5+02:00"}"#;
        write(folder, "_expiration/a.json", expiry);
        let read = || SandboxFiles::read(folder, &"a".into());
        let first = read().news(ImportedFiles::default(), &Changes::default());
        let first = first.unwrap();
        assert_eq!(first.metadata, metadata("v"));
        assert_eq!(
            first.expires_at.unwrap().to_string(),
            "2031-05-01T10:00:00.500000Z"
        );
        assert_eq!(read().news(first.files, &stored("renewed here")), None);
        // The same text, written again, as by a copy of the folder.
        write(folder, "a.json", r#"{"k": "v"}"#);
        assert_eq!(read().news(first.files, &stored("renewed here")), None);
        write(folder, "a.json", r#"{"k": "newer"}"#);
        let newer = read().news(first.files, &stored("older")).unwrap();
        assert_eq!(
            (newer.metadata, newer.expires_at),
            (metadata("newer"), None)
        );
        assert_ne!(newer.files, first.files);
    }

    #[test]
    fn what_is_stored_counts_more_than_files_that_were_never_imported() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a.json", r#"{"k": "file"}"#);
        let files = SandboxFiles::read(folder.path(), &"a".into());
        let import = files.news(ImportedFiles::default(), &stored("store"));
        let import = import.unwrap();
        assert_eq!(import.metadata, None);
        assert!(import.files.metadata.is_some(), "later changes are noticed");
    }

    #[test]
    fn files_that_are_absent_or_unusable_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, "broken.json", "{");
        write(
            folder,
            "_expiration/broken.json",
            r#"{"expires_at": "soon"}"#,
        );
        write(folder, "secret.json", r#"{"k": "v"}"#);
        for id in ["absent", "broken", "", "_expiration/../secret", "x\0"] {
            let files = SandboxFiles::read(folder, &id.into());
            assert_eq!(files, SandboxFiles::default(), "{id:?}");
        }
    }
}

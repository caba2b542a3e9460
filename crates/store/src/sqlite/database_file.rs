//! The store's files: private, one server at a time, and still those that were opened.
//!
//! SQLite's own locks are POSIX locks, which a process loses on a file as soon as it closes any
//! descriptor of it. So the database is opened here once, before SQLite does, and stays open until
//! SQLite is done. The lock on it is `flock`'s, which belongs to the descriptor and minds neither
//! SQLite nor by which name the file was opened.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use tracing::warn;

/// Files of a database beside it.
pub(super) const BESIDE: [&str; 2] = ["-wal", "-shm"];
/// Access of other users.
const OTHERS: u32 = 0o077;

/// The database file, as it was opened.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    /// As configured: this is what the next start will open.
    path: PathBuf,
    /// Without symbolic links.
    canonical: PathBuf,
    database: Node,
    /// The write-ahead log, which holds what is not in the database yet.
    wal: OnceLock<Node>,
    /// Keeps the lock, and the inode's number from being used again.
    _file: File,
    /// Keeps away servers of releases that know only this lock.
    _lock: Option<File>,
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    device: u64,
    inode: u64,
}

impl Node {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
        }
    }

    fn is_at(self, path: &Path) -> bool {
        path.metadata().is_ok_and(|file| Self::of(&file) == self)
    }
}

impl DatabaseFile {
    /// Makes folder and file without access for others (sessions lie in it) and takes the locks.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        let file = private_file(path)?;
        let canonical = path.canonicalize()?;
        let beside = private_file(&with_suffix(&canonical, ".lock"))?;
        lock(&beside)?;
        lock(&file)?;
        let found = file.metadata()?;
        if let Some(wide) = wide_permissions(&canonical) {
            warn!("{wide}");
        }
        if found.nlink() > 1 {
            warn!(
                path = %path.display(),
                links = found.nlink(),
                "the database has hard links: opened by another name it would miss its write-ahead log"
            );
        }
        Ok(Self {
            path: path.to_owned(),
            canonical,
            database: Node::of(&found),
            wal: OnceLock::new(),
            _file: file,
            _lock: Some(beside),
        })
    }

    /// Opens the file beside a server that may use it, without its locks. `None` without a file.
    pub(super) fn beside(path: &Path) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(Self {
            path: path.to_owned(),
            canonical: path.canonicalize()?,
            database: Node::of(&file.metadata()?),
            wal: OnceLock::new(),
            _file: file,
            _lock: None,
        }))
    }

    /// What SQLite opens: it keeps its write-ahead log beside the name it is given.
    pub(super) fn canonical(&self) -> &Path {
        &self.canonical
    }

    /// Notes which file the write-ahead log is, once SQLite has it open: until the last connection
    /// closes it stays the same.
    pub(super) fn note_wal(&self) {
        if let Ok(wal) = with_suffix(&self.canonical, "-wal").metadata() {
            self.wal.get_or_init(|| Node::of(&wal));
        }
    }

    /// Whether the next start would find what is written now.
    pub(super) fn is_in_place(&self) -> bool {
        let wal = |wal: Node| wal.is_at(&with_suffix(&self.canonical, "-wal"));
        self.database.is_at(&self.path) && self.wal.get().copied().is_none_or(wal)
    }
}

fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another server uses it; give each a store.path of its own",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Says which files of a database other users can read: sessions and keys lie in them.
pub(super) fn wide_permissions(store: &Path) -> Option<String> {
    let files = [store.to_owned()]
        .into_iter()
        .chain(BESIDE.map(|suffix| with_suffix(store, suffix)));
    let wide: Vec<String> = files
        .filter_map(|file| {
            let mode = file.metadata().ok()?.permissions().mode() & 0o777;
            (mode & OTHERS != 0).then(|| format!("{} ({mode:o})", file.display()))
        })
        .collect();
    (!wide.is_empty()).then(|| {
        let files = wide.join(", ");
        format!("other users have access to {files}; remove it (chmod 600): sessions are in there")
    })
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_private_and_locked_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/store.db");
        let taken = DatabaseFile::take(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        symlink(&path, folder.path().join("symbolic")).unwrap();
        std::fs::hard_link(&path, folder.path().join("hard")).unwrap();
        for name in ["new/store.db", "new/../new/store.db", "symbolic", "hard"] {
            let refused = DatabaseFile::take(&folder.path().join(name)).unwrap_err();
            assert!(refused.to_string().contains("another server"), "{name}");
        }
        drop(taken);
        assert!(DatabaseFile::take(&folder.path().join("symbolic")).is_ok());
    }

    #[test]
    fn another_file_by_the_same_name_is_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        std::fs::write(name("real"), []).unwrap();
        symlink(name("real"), name("store")).unwrap();
        let file = DatabaseFile::take(&name("store")).unwrap();
        std::fs::write(name("real-wal"), []).unwrap();
        file.note_wal();
        assert!(file.is_in_place());
        for (moved, other) in [("real", None), ("real-wal", None), ("store", Some("aside"))] {
            std::fs::rename(name(moved), name("aside")).unwrap();
            assert!(!file.is_in_place(), "{moved} is gone");
            match other {
                // The name leads elsewhere now.
                Some(_) => symlink(name("real-wal"), name(moved)).unwrap(),
                None => std::fs::write(name(moved), []).unwrap(),
            }
            assert!(!file.is_in_place(), "{moved} is another file");
            std::fs::rename(name("aside"), name(moved)).unwrap();
            assert!(file.is_in_place(), "{moved} is back");
        }
    }
}

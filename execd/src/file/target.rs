//! Where new content of a file goes until it is whole.
//!
//! A target that is absent or a plain file with one name is replaced at once by a temporary file
//! beside it, so that nobody sees half of it. Anything else (a link, a file with several names, a
//! mount point, a directory that takes no new files) is written in place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    file: File,
    /// Absent when it is written in place.
    temporary: Option<Temporary>,
}

impl Target {
    /// Opens a target; missing parents are made.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let existing = match path.symlink_metadata() {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let replaceable = existing
            .as_ref()
            .is_none_or(|meta| meta.is_file() && meta.nlink() == 1);
        if replaceable && let Some(target) = Self::beside(path, existing.as_ref()) {
            return Ok(target);
        }
        Self::in_place(path)
    }

    /// `None` when the directory takes no new file, or the file could not keep its owner.
    fn beside(path: &Path, existing: Option<&fs::Metadata>) -> Option<Self> {
        let name = format!(".execd-upload-{}", uuid::Uuid::new_v4().simple());
        let temporary = path.with_file_name(name);
        let file = create(&temporary, true).ok()?;
        let temporary = Temporary(temporary);
        if let Some(meta) = existing {
            let own = file.metadata().ok()?;
            if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
                fchown(&file, Some(meta.uid()), Some(meta.gid())).ok()?;
            }
            let mode = fs::Permissions::from_mode(meta.mode() & 0o7777);
            file.set_permissions(mode).ok()?;
        }
        Some(Self {
            path: path.to_owned(),
            file,
            temporary: Some(temporary),
        })
    }

    fn in_place(path: &Path) -> io::Result<Self> {
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            // Opening a pipe would wait for its reader, perhaps for ever.
            let text = "exists and is not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self {
            path: path.to_owned(),
            file: create(path, false)?,
            temporary: None,
        })
    }

    /// The path that has the content now: permissions are set there.
    pub(super) fn current(&self) -> &Path {
        self.temporary
            .as_ref()
            .map_or(&self.path, |temporary| &temporary.0)
    }

    /// Puts the content in its place. `durable` waits until it is on the disk.
    pub(super) fn finish(self, durable: bool) -> io::Result<()> {
        if durable {
            self.file.sync_all()?;
        }
        if let Some(temporary) = self.temporary {
            match fs::rename(&temporary.0, &self.path) {
                Ok(()) => std::mem::forget(temporary),
                // A mount point cannot be replaced, only filled.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    let mut content = File::open(&temporary.0)?;
                    let mut file = create(&self.path, false)?;
                    io::copy(&mut content, &mut file)?;
                    if durable {
                        file.sync_all()?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        match self.path.parent().filter(|_| durable) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn create(path: &Path, new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o777);
    if new {
        options.create_new(true);
    } else {
        options.create(true).truncate(true);
    }
    options.open(path)
}

/// A file that vanishes unless it got its place.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may be gone with its directory.
        let _gone = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut target = Target::open(path)?;
        target.write_all(text.as_bytes())?;
        target.finish(true)
    }

    #[test]
    fn plain_files_are_replaced_and_keep_their_mode() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/deep/f");
        write(&path, "one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        let mut held = Target::open(&path).unwrap();
        held.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one", "nobody sees half of it");
        drop(held);
        write(&path, "two").unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(meta.mode() & 0o777, 0o640);
        assert_ne!(meta.ino(), before);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn links_and_shared_files_are_written_in_place() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        write(&at("f"), "one").unwrap();
        fs::hard_link(at("f"), at("hard")).unwrap();
        symlink("f", at("soft")).unwrap();
        write(&at("hard"), "two").unwrap();
        assert_eq!(fs::read(at("f")).unwrap(), b"two");
        write(&at("soft"), "three").unwrap();
        assert_eq!(fs::read(at("f")).unwrap(), b"three");
        assert!(at("soft").symlink_metadata().unwrap().is_symlink());
        assert!(write(place.path(), "x").is_err());
    }
}

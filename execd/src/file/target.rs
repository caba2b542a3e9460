//! Destination of new file content until it is complete.
//!
//! An absent target, or a regular file with one name, is replaced atomically by a temporary file
//! next to it, so that no reader sees half of it. Any other target (a link, a file with several
//! names, a mount point, a directory that accepts no new files) is written in place.
//!
//! Writing seals the content first and places it later, so that several files can be placed once
//! all are complete.
//!
//! Only the daemon may read the content until it is sealed. Owner and mode are set on the open
//! file, never by name: the owner of the directory may replace names meanwhile.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use rustix::fs::OFlags;

use super::permission::Change;
use crate::{blocking, kernel_path};

/// Mode of an incomplete file.
const PRIVATE: u32 = 0o600;

/// File that is being written.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    file: File,
    /// Requested owner and mode.
    wanted: Change,
    /// Final mode unless the client requests another. `None` keeps the current one.
    mode: Option<u32>,
    /// `None` when the target is written in place.
    temporary: Option<Temporary>,
}

impl Target {
    /// Opens a target and creates missing parents, which get the requested owner as well.
    pub(super) fn open(path: &Path, wanted: Change) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            let owner = wanted.of_parents();
            kernel_path::create_directories_with(parent, |new| owner.apply_to_held(new))?;
        }
        let existing = match path.symlink_metadata() {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let replaceable = existing
            .as_ref()
            .is_none_or(|meta| meta.is_file() && meta.nlink() == 1);
        if replaceable && let Some(target) = Self::beside(path, existing.as_ref(), wanted) {
            return Ok(target);
        }
        let (file, new) = in_place(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            wanted,
            mode: new.then_some(*DEFAULT_MODE),
            temporary: None,
        })
    }

    /// Creates a temporary file next to the target. `None` if the directory accepts no new file, or
    /// the file could not keep its owner.
    fn beside(path: &Path, existing: Option<&fs::Metadata>, wanted: Change) -> Option<Self> {
        let name = format!(".execd-upload-{}", uuid::Uuid::new_v4().simple());
        let temporary = path.with_file_name(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.mode(PRIVATE).custom_flags(flag(OFlags::NOFOLLOW));
        let file = options.open(&temporary).ok()?;
        let temporary = Temporary(temporary);
        if let Some(meta) = existing {
            let own = file.metadata().ok()?;
            if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
                fchown(&file, Some(meta.uid()), Some(meta.gid())).ok()?;
            }
        }
        let kept = existing.map(|meta| meta.mode() & 0o7777);
        Some(Self {
            path: path.to_owned(),
            file,
            wanted,
            mode: Some(kept.unwrap_or(*DEFAULT_MODE)),
            temporary: Some(temporary),
        })
    }

    /// Sets owner and mode, and closes the file. With `durable` it waits until the content is on
    /// disk.
    pub(super) fn seal(self, durable: bool) -> io::Result<Sealed> {
        self.wanted.apply_to(&self.file)?;
        if let Some(mode) = self.mode.filter(|_| self.wanted.mode.is_none()) {
            let mode = fs::Permissions::from_mode(mode);
            self.file.set_permissions(mode)?;
        }
        if durable {
            self.file.sync_all()?;
        }
        Ok(Sealed {
            inode: inode(&self.file)?,
            path: self.path,
            temporary: self.temporary,
            wanted: self.wanted,
            durable,
        })
    }

    /// Seals and places the content.
    pub(super) fn finish(self, durable: bool) -> io::Result<()> {
        self.seal(durable)?.place()
    }
}

/// Complete content that is not in its place yet, unless it was written in place. It holds no
/// descriptor, so there may be many.
#[derive(Debug)]
pub(super) struct Sealed {
    path: PathBuf,
    temporary: Option<Temporary>,
    /// Device and inode of the written file.
    inode: (u64, u64),
    wanted: Change,
    durable: bool,
}

impl Sealed {
    /// Moves the content to its place.
    pub(super) fn place(mut self) -> io::Result<()> {
        if let Some(temporary) = self.temporary.take() {
            match fs::rename(&temporary.0, &self.path) {
                Ok(()) => std::mem::forget(temporary),
                // A mount point cannot be replaced, only overwritten.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    self.fill(&temporary)?;
                }
                Err(error) => return Err(error),
            }
        }
        match self.path.parent().filter(|_| self.durable) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    fn fill(&self, from: &Temporary) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flag(OFlags::NOFOLLOW));
        let mut content = options.open(&from.0)?;
        if inode(&content)? != self.inode {
            return Err(io::Error::other("the temporary file was exchanged"));
        }
        let (mut file, _) = in_place(&self.path)?;
        io::copy(&mut content, &mut file)?;
        self.wanted.apply_to(&file)?;
        if self.durable {
            file.sync_all()?;
        }
        Ok(())
    }
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens and truncates the file at a path, following a link. Returns whether it is new.
fn in_place(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    // Opening a FIFO must not wait for its reader.
    options
        .write(true)
        .mode(PRIVATE)
        .custom_flags(flag(OFlags::NONBLOCK));
    let (file, new) = match options.open(path) {
        Ok(file) => (file, false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (options.create(true).truncate(false).open(path)?, true)
        }
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        let text = "exists and is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    file.set_len(0)?;
    Ok((file, new))
}

fn flag(flag: OFlags) -> i32 {
    i32::try_from(flag.bits()).expect("a flag fits")
}

/// Mode of a new file (contract: execd §10.10): all bits that the daemon's umask allows. `umask(2)`
/// can only read the mask by changing it for all threads, so the value comes from `/proc`.
static DEFAULT_MODE: LazyLock<u32> = LazyLock::new(|| {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    0o777 & !mask.unwrap_or(0o022)
});

/// Temporary file, deleted on drop unless it was placed.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // The file may have vanished with its directory. An aborted request drops this on a worker.
        let _gone = blocking::in_place(|| fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut target = Target::open(path, Change::default())?;
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
        let mut held = Target::open(&path, Change::default()).unwrap();
        held.write_all(b"half").unwrap();
        assert_eq!(
            fs::read(&path).unwrap(),
            b"one",
            "no reader sees half of it"
        );
        drop(held);
        write(&path, "two").unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(meta.mode() & 0o777, 0o640);
        assert_ne!(meta.ino(), before);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn new_content_is_private_until_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let only = || fs::read_dir(place.path()).unwrap().next().unwrap().unwrap();
        let target = Target::open(&path, Change::default()).unwrap();
        assert_eq!(mode(&only().path()), 0o600);
        target.finish(false).unwrap();
        assert_eq!(mode(&path), *DEFAULT_MODE);
        let wanted = Change {
            mode: Some(0o4750),
            ..Change::default()
        };
        let target = Target::open(&path, wanted).unwrap();
        target.finish(false).unwrap();
        assert_eq!(mode(&path), 0o4750);
        // Another process may replace the name; owner and mode must not be set on the replacement.
        let other = place.path().join("other");
        fs::write(&other, "").unwrap();
        let before = mode(&other);
        let mut target = Target::open(&path, wanted).unwrap();
        let temporary = target.temporary.as_ref().unwrap().0.clone();
        fs::remove_file(&temporary).unwrap();
        symlink(&other, &temporary).unwrap();
        target.write_all(b"text").unwrap();
        target.finish(false).unwrap();
        assert_eq!((mode(&other), fs::read(&other).unwrap()), (before, vec![]));
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
        symlink("absent", at("dangling")).unwrap();
        write(&at("dangling"), "four").unwrap();
        let mode = fs::metadata(at("absent")).unwrap().mode() & 0o7777;
        assert_eq!(mode, *DEFAULT_MODE);
    }
}

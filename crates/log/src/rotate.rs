//! Log file that is rotated when it is full.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use rustix::fs::OFlags;

/// Limits of a log file and its backups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RotationLimits {
    /// Maximum bytes of a file before it is rotated.
    bytes: u64,
    /// Maximum number of backups.
    backups: usize,
    /// Maximum age of a backup since its last write.
    age: Duration,
}

impl RotationLimits {
    /// Limits of the contract (execd §1.4).
    pub(crate) const DEFAULT: Self = Self {
        bytes: 100 << 20,
        backups: 10,
        age: Duration::from_secs(30 * 24 * 3600),
    };
}

/// Format of the rotation time in the name of a backup. Names sort by time.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S.%9f";
/// Shape of such a time: 0 stands for a digit.
const STAMP_SHAPE: &str = "0000-00-00T00-00-00.000000000";

/// Log file with rotation.
#[derive(Debug)]
pub(crate) struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    /// Whether the file is a regular file. Terminals and pipes are not rotated.
    regular: bool,
    bounds: RotationLimits,
}

impl RotatingFile {
    /// Opens a file for appending, and creates missing parent directories.
    pub(crate) fn open(path: &Path, bounds: RotationLimits) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = append(&path)?;
        let meta = file.metadata()?;
        let opened = Self {
            path,
            file,
            size: meta.len(),
            regular: meta.is_file(),
            bounds,
        };
        opened.delete_old_backups();
        Ok(opened)
    }

    /// Rotates the file if this many more bytes do not fit.
    pub(crate) fn rotate_if_full(&mut self, bytes: u64) {
        let full = self.size > 0 && self.size + bytes > self.bounds.bytes;
        if full && self.regular {
            // If the rotation fails, a log above its limit is better than none.
            let _kept = self.rotate();
        }
    }

    /// Counts appended bytes.
    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.size += bytes;
    }

    fn rotate(&mut self) -> io::Result<()> {
        let stamp = Timestamp::now().strftime(STAMP).to_string();
        fs::rename(&self.path, self.aside(&stamp))?;
        self.file = append(&self.path)?;
        self.size = 0;
        self.delete_old_backups();
        Ok(())
    }

    /// Renames `execd.log` to `execd-TIME.log`.
    fn aside(&self, stamp: &str) -> PathBuf {
        let (stem, extension) = self.name();
        self.path
            .with_file_name(format!("{stem}-{stamp}{extension}"))
    }

    /// File name without its extension, and the extension with its dot.
    fn name(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let extension = match self.path.extension() {
            Some(extension) => format!(".{}", extension.to_string_lossy()),
            None => String::new(),
        };
        (text(self.path.file_stem()), extension)
    }

    /// Deletes backups that are too old or too many.
    fn delete_old_backups(&self) {
        let (stem, extension) = self.name();
        let stamp_of = |name: &str| {
            let rest = name.strip_prefix(&stem)?.strip_prefix('-')?;
            let stamp = rest.strip_suffix(&extension)?.to_owned();
            has_shape(&stamp).then_some(stamp)
        };
        let folder = self
            .path
            .parent()
            .and_then(|folder| fs::read_dir(folder).ok());
        let mut stamps: Vec<String> = folder
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| stamp_of(&entry.file_name().to_string_lossy()))
            .collect();
        stamps.sort_unstable();
        let oldest = SystemTime::now().checked_sub(self.bounds.age);
        for (newer, stamp) in stamps.iter().rev().enumerate() {
            let path = self.aside(stamp);
            let written = fs::metadata(&path).and_then(|meta| meta.modified()).ok();
            if newer >= self.bounds.backups || written < oldest {
                // The next rotation tries again.
                let _left = fs::remove_file(path);
            }
        }
    }
}

impl AsFd for RotatingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn append(path: &Path) -> io::Result<File> {
    // Opening a pipe without a reader must not block the start of the daemon.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag fits");
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags);
    options.open(path)
}

fn has_shape(stamp: &str) -> bool {
    let zeroed = stamp
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c });
    zeroed.eq(STAMP_SHAPE.chars())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn write(log: &mut RotatingFile, lines: &str) {
        let bytes = lines.len() as u64;
        log.rotate_if_full(bytes);
        log.file.write_all(lines.as_bytes()).unwrap();
        log.add_bytes(bytes);
    }

    fn names(place: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn full_files_are_rotated_and_the_oldest_deleted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("execd.log");
        // A foreign file whose name has another format.
        fs::write(place.path().join("execd-notes.log"), "").unwrap();
        let bounds = RotationLimits {
            bytes: 10,
            backups: 2,
            ..RotationLimits::DEFAULT
        };
        let mut log = RotatingFile::open(&path, bounds).unwrap();
        for number in 0..9 {
            write(&mut log, &format!("line{number}"));
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line8");
        let aside = names(place.path());
        assert_eq!(aside.len(), 4, "{aside:?}");
        assert_eq!(
            fs::read_to_string(place.path().join(&aside[0])).unwrap(),
            "line4line5"
        );
        assert_eq!(
            fs::read_to_string(place.path().join(&aside[1])).unwrap(),
            "line6line7"
        );
        assert_eq!(aside[2..], ["execd-notes.log", "execd.log"]);

        // A reopened file is continued, and old backups are deleted first.
        let bounds = RotationLimits {
            age: Duration::ZERO,
            ..bounds
        };
        let mut log = RotatingFile::open(&path, bounds).unwrap();
        write(&mut log, "more");
        assert_eq!(fs::read_to_string(&path).unwrap(), "line8more");
        assert_eq!(names(place.path()), ["execd-notes.log", "execd.log"]);
    }

    #[test]
    fn a_line_longer_than_a_file_gets_its_own_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let bounds = RotationLimits {
            bytes: 3,
            ..RotationLimits::DEFAULT
        };
        let mut log = RotatingFile::open(&path, bounds).unwrap();
        for line in ["long line", "next"] {
            write(&mut log, line);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "next");
        assert_eq!(names(place.path()).len(), 2);
    }
}

//! A file that is put aside when it is full.

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

/// What is kept of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of the file before it is put aside.
    bytes: u64,
    /// Files put aside.
    backups: usize,
    /// Time since one of them was last written to.
    age: Duration,
}

impl Bounds {
    /// Those of the contract (execd §1.4).
    pub(crate) const DEFAULT: Self = Self {
        bytes: 100 << 20,
        backups: 10,
        age: Duration::from_secs(30 * 24 * 3600),
    };
}

/// When a file was put aside, in its name: sorts as it reads.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S.%9f";
/// A stamp with a 0 for each digit.
const STAMP_SHAPE: &str = "0000-00-00T00-00-00.000000000";

/// The file that is being written.
#[derive(Debug)]
pub(crate) struct Rotating {
    path: PathBuf,
    file: File,
    size: u64,
    /// A terminal or a pipe is only written to.
    regular: bool,
    bounds: Bounds,
}

impl Rotating {
    /// Opens a file to append to it; missing parents are made.
    pub(crate) fn open(path: &Path, bounds: Bounds) -> io::Result<Self> {
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
        opened.forget_old();
        Ok(opened)
    }

    /// Begins a new file if so many bytes do not fit into this one.
    pub(crate) fn make_room(&mut self, bytes: u64) {
        let full = self.size > 0 && self.size + bytes > self.bounds.bytes;
        if full && self.regular {
            // If that fails, a log that is too long is better than none.
            let _kept = self.put_aside();
        }
    }

    /// So many bytes were appended.
    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.size += bytes;
    }

    fn put_aside(&mut self) -> io::Result<()> {
        let stamp = Timestamp::now().strftime(STAMP).to_string();
        fs::rename(&self.path, self.aside(&stamp))?;
        self.file = append(&self.path)?;
        self.size = 0;
        self.forget_old();
        Ok(())
    }

    /// `execd.log` becomes `execd-STAMP.log`.
    fn aside(&self, stamp: &str) -> PathBuf {
        let (stem, extension) = self.name();
        self.path
            .with_file_name(format!("{stem}-{stamp}{extension}"))
    }

    /// The name without its extension, and the extension with its dot.
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

    /// Deletes what was put aside and is too old or too much.
    fn forget_old(&self) {
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
                // It is tried again with the next one.
                let _left = fs::remove_file(path);
            }
        }
    }
}

impl AsFd for Rotating {
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

    fn write(log: &mut Rotating, lines: &str) {
        let bytes = lines.len() as u64;
        log.make_room(bytes);
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
    fn full_files_are_put_aside_and_the_oldest_go() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("execd.log");
        // Neither ours nor like ours.
        fs::write(place.path().join("execd-notes.log"), "").unwrap();
        let bounds = Bounds {
            bytes: 10,
            backups: 2,
            ..Bounds::DEFAULT
        };
        let mut log = Rotating::open(&path, bounds).unwrap();
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

        // It goes on where it was, and what is old by now goes first.
        let bounds = Bounds {
            age: Duration::ZERO,
            ..bounds
        };
        let mut log = Rotating::open(&path, bounds).unwrap();
        write(&mut log, "more");
        assert_eq!(fs::read_to_string(&path).unwrap(), "line8more");
        assert_eq!(names(place.path()), ["execd-notes.log", "execd.log"]);
    }

    #[test]
    fn a_line_longer_than_a_file_gets_one_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let bounds = Bounds {
            bytes: 3,
            ..Bounds::DEFAULT
        };
        let mut log = Rotating::open(&path, bounds).unwrap();
        for line in ["long line", "next"] {
            write(&mut log, line);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "next");
        assert_eq!(names(place.path()).len(), 2);
    }
}

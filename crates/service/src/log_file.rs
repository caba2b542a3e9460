//! A log file of bounded size: when it is full it becomes `NAME.1`, `NAME.1` becomes `NAME.2`, and so
//! on (contract: lifecycle §14.2).

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Where a log is kept, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFileOptions {
    /// The file that is written to.
    pub path: PathBuf,
    /// Size at which it is set aside, in bytes.
    pub max_bytes: u64,
    /// Most files that are set aside.
    pub backups: u32,
}

/// A log file. Each write is one line.
#[derive(Debug)]
pub struct LogFile {
    options: LogFileOptions,
    file: File,
    size: u64,
}

impl LogFile {
    /// Opens the file for appending; it and the folders above it are made when missing, without
    /// access for other users.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(options: LogFileOptions) -> io::Result<Self> {
        let folder = options.path.parent();
        if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let file = append(&options.path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            options,
            file,
            size,
        })
    }

    fn rotate(&mut self) -> io::Result<()> {
        let LogFileOptions { path, backups, .. } = &self.options;
        // Another program removed or moved the file, or an earlier attempt ended after the rename.
        // The backups are not shifted again for it.
        if !path.try_exists()? {
            return self.reopen();
        }
        for number in (1..*backups).rev() {
            // One that is missing has not been written yet.
            let _ = fs::rename(backup(path, number), backup(path, number + 1));
        }
        match backups {
            0 => fs::remove_file(path)?,
            _ => fs::rename(path, backup(path, 1))?,
        }
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = append(&self.options.path)?;
        self.size = 0;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

fn backup(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(length) > self.options.max_bytes {
            // A log above its limit is better than none.
            let _ = self.rotate();
        }
        let written = self.file.write(line)?;
        self.size += u64::try_from(written).unwrap_or(0);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open(path: &Path, backups: u32) -> LogFile {
        let options = LogFileOptions {
            path: path.to_owned(),
            max_bytes: 10,
            backups,
        };
        LogFile::open(options).unwrap()
    }

    fn contents(path: &Path) -> Vec<String> {
        let backups = (1..5).map(|number| backup(path, number));
        let files = [path.to_owned()].into_iter().chain(backups);
        files
            .filter_map(|file| fs::read_to_string(file).ok())
            .collect()
    }

    #[test]
    fn a_full_file_is_set_aside_and_the_oldest_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/server.log");
        let mut log = open(&path, 2);
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "four\n",
            "five\n",
            "longer than the limit\n",
        ] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(
            contents(&path),
            ["longer than the limit\n", "four\nfive\n", "three\n"]
        );
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        drop(log);
        // What is there counts after a restart.
        open(&path, 2).write_all(b"six\n").unwrap();
        assert_eq!(contents(&path)[..2], ["six\n", "longer than the limit\n"]);
    }

    #[test]
    fn a_file_that_was_removed_is_made_again_and_the_backups_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        let mut log = open(&path, 3);
        for line in ["first 10\n", "second 1\n", "third 10\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        fs::remove_file(&path).unwrap();
        for line in ["fourth 1\n", "fifth 10\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(read(path.clone()), "fifth 10\n");
        assert_eq!(read(backup(&path, 1)), "fourth 1\n");
        assert_eq!(read(backup(&path, 2)), "second 1\n");
        assert_eq!(read(backup(&path, 3)), "first 10\n");
    }

    #[test]
    fn without_backups_a_full_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        let mut log = open(&path, 0);
        for line in ["one two\n", "three\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(contents(&path), ["three\n"]);
    }
}

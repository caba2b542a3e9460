//! Nameless files for output that does not fit in memory. No other process can open them, cleaning
//! the temporary directory does not affect them, and they vanish with their last handle.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags};

/// Creates a nameless file in `$TMPDIR`, or in another directory that accepts one.
///
/// # Errors
/// When no directory accepts one.
pub fn file() -> io::Result<File> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let preferred = std::env::var_os("TMPDIR").map(PathBuf::from);
    let places = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    for place in preferred.into_iter().chain(places) {
        match nameless(&place).or_else(|_| unlinked(&place)) {
            Ok(file) => return Ok(file),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn nameless(place: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, place, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(fd))
}

/// Fallback for file systems without `O_TMPFILE`.
fn unlinked(place: &Path) -> io::Result<File> {
    let path = place.join(format!(".execd-{}", uuid::Uuid::new_v4().simple()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn scratch_files_have_no_name() {
        let place = tempfile::tempdir().unwrap();
        for file in [file().unwrap(), unlinked(place.path()).unwrap()] {
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            file.write_all_at(b"abc", 2).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 5);
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}

//! The mark that a claim leaves: a file, because memory ends with a restart of the container, and a
//! container that served one client must never serve another.
//!
//! The file is there before the claim is accepted, which is enough for a restart of the container. That
//! a power cut does not lose it takes milliseconds of the disk, so the claim does not wait for that.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tracing::warn;

/// Most bytes of the file that are read.
const LENGTH: u64 = 1024;

/// The file of the mark, if there is to be one.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Option<PathBuf>);

impl Mark {
    pub(super) fn at(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    /// Claim that this sandbox was given before. An image may have the mark of another sandbox, which
    /// it was made from.
    pub(super) fn claim_of(&self, sandbox: &str) -> Option<String> {
        let text = read(self.0.as_deref()?).ok()?;
        let (marked, claim) = text.strip_suffix('\n')?.split_once('\n')?;
        (marked == sandbox).then(|| claim.to_owned())
    }

    /// Keeps a claim. Where it cannot be kept, as with an image whose user must not write there, the
    /// daemon remembers it until it ends.
    pub(super) fn keep(&self, sandbox: &str, claim: &str) -> Option<Kept> {
        let path = self.0.as_deref()?;
        let written = write(path, &format!("{sandbox}\n{claim}\n"));
        let file = written.inspect_err(|error| {
            warn!(path = %path.display(), %error, "the claim is forgotten with this process");
        });
        let folder = path.parent().map(Path::to_owned);
        file.ok().map(|file| Kept { file, folder })
    }
}

/// A claim that is kept, and that a power cut may lose.
#[derive(Debug)]
pub(super) struct Kept {
    file: fs::File,
    folder: Option<PathBuf>,
}

impl Kept {
    /// Writes it to the disk. This blocks.
    pub(super) fn sync(self) {
        let folder = self.folder.as_deref().map_or(Ok(()), |folder| {
            fs::File::open(folder).and_then(|folder| folder.sync_all())
        });
        if let Err(error) = self.file.sync_all().and(folder) {
            warn!(%error, "a power cut may lose the claim");
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() || meta.len() > LENGTH {
        return Err(io::ErrorKind::InvalidData.into());
    }
    fs::read_to_string(path)
}

/// Replaces the file as a whole.
fn write(path: &Path, text: &str) -> io::Result<fs::File> {
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::create_new(&beside)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    fs::rename(&beside, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_sandbox_and_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".claim");
        let mark = Mark::at(Some(path.clone()));
        assert_eq!(mark.claim_of("s-1"), None);
        let kept = mark.keep("s-1", "c-1").unwrap();
        let later = Mark::at(Some(path.clone()));
        assert_eq!(later.claim_of("s-1").as_deref(), Some("c-1"));
        kept.sync();
        assert_eq!(later.claim_of("s-1").as_deref(), Some("c-1"));
        assert_eq!(later.claim_of("s-2"), None, "of the image");
        later.keep("s-2", "c-2").unwrap();
        assert_eq!(mark.claim_of("s-2").as_deref(), Some("c-2"));
        for spoilt in ["", "s-2", "s-2\nc-2"] {
            fs::write(&path, spoilt).unwrap();
            assert_eq!(mark.claim_of("s-2"), None, "{spoilt:?}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert_eq!(mark.claim_of("s-2"), None, "a link");
        mark.keep("s-2", "c-3").unwrap();
        assert_eq!(mark.claim_of("s-2").as_deref(), Some("c-3"));
    }

    #[test]
    fn without_a_file_nothing_is_kept() {
        let mark = Mark::default();
        assert!(mark.keep("s-1", "c-1").is_none());
        assert_eq!(mark.claim_of("s-1"), None);
        let unwritable = Mark::at(Some("/proc/none/claim".into()));
        assert!(unwritable.keep("s-1", "c-1").is_none());
    }
}

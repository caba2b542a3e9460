//! The execd that sandboxes get. It is read from disk when a volume is filled, and not kept in memory.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::RuntimeError;

/// An open file, so an update that puts another in its place does not change this one.
#[derive(Clone, Debug)]
pub(super) struct ExecdBinary(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    size: u64,
    digest: [u8; 32],
}

impl ExecdBinary {
    /// Opens the file and reads it once, for its digest.
    pub(super) fn open(path: &Path) -> Result<Self, RuntimeError> {
        let opened = File::open(path).and_then(|mut file| {
            let mut content = Vec::new();
            file.read_to_end(&mut content)?;
            Ok(Opened {
                path: path.to_owned(),
                file,
                size: content.len() as u64,
                digest: Sha256::digest(&content).into(),
            })
        });
        match opened {
            Ok(opened) => Ok(Self(Arc::new(opened))),
            Err(error) => Err(unreadable(path, error)),
        }
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0.size
    }

    /// The start of its SHA-256 in hexadecimal digits, which names the build.
    pub(super) fn build(&self) -> String {
        let start = self.0.digest.iter().take(8);
        start.map(|byte| format!("{byte:02x}")).collect()
    }

    /// An archive of it, executable by all users.
    ///
    /// # Errors
    /// When the file cannot be read, or was overwritten since it was opened: a volume with another content
    /// would have the wrong name.
    pub(super) async fn archive(&self) -> Result<Bytes, RuntimeError> {
        let this = self.clone();
        let archived = tokio::task::spawn_blocking(move || this.archive_now());
        archived.await.map_err(|error| RuntimeError::Execd {
            reason: "cannot pack the binary".to_owned(),
            source: Some(error.into()),
        })?
    }

    fn archive_now(&self) -> Result<Bytes, RuntimeError> {
        let Opened {
            path,
            file,
            size,
            digest,
        } = &*self.0;
        let mut content = vec![0; usize::try_from(*size).unwrap_or(usize::MAX)];
        let is_whole = match file.read_exact_at(&mut content, 0) {
            Ok(()) => Sha256::digest(&content)[..] == digest[..],
            // It was shortened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(unreadable(path, error)),
        };
        if !is_whole {
            return Err(RuntimeError::Execd {
                reason: format!(
                    "{} was overwritten since the server was started: restart the server",
                    path.display()
                ),
                source: None,
            });
        }
        tar_of(&content).map_err(|error| RuntimeError::Execd {
            reason: "cannot pack the binary".to_owned(),
            source: Some(error.into()),
        })
    }
}

fn unreadable(path: &Path, error: io::Error) -> RuntimeError {
    RuntimeError::Execd {
        reason: format!("cannot read {}", path.display()),
        source: Some(error.into()),
    }
}

fn tar_of(binary: &[u8]) -> io::Result<Bytes> {
    let mut header = tar::Header::new_gnu();
    header.set_size(binary.len() as u64);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    let mut archive = tar::Builder::new(Vec::with_capacity(binary.len() + 4096));
    archive.append_data(&mut header, "execd", binary)?;
    archive.into_inner().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn content(binary: &ExecdBinary) -> Result<(u32, Vec<u8>), RuntimeError> {
        let archive = binary.archive().await?;
        let mut archive = tar::Archive::new(&archive[..]);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("execd"));
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        Ok((entry.header().mode().unwrap(), content))
    }

    #[tokio::test]
    async fn an_update_of_the_file_changes_nothing_and_an_overwritten_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("execd");
        fs::write(&path, "one").unwrap();
        let binary = ExecdBinary::open(&path).unwrap();
        // As `printf one | sha256sum` says.
        assert_eq!(
            (binary.size(), binary.build().as_str()),
            (3, "7692c3ad3540bb80")
        );
        fs::write(folder.path().join("new"), "two").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(content(&binary).await.unwrap(), (0o755, b"one".to_vec()));

        let binary = ExecdBinary::open(&path).unwrap();
        for overwritten in ["six", "x"] {
            fs::write(&path, overwritten).unwrap();
            let error = content(&binary).await.unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert!(error.contains("restart the server"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let error = ExecdBinary::open(&path).unwrap_err().to_string();
        assert!(error.contains("cannot read"), "{error}");
    }
}

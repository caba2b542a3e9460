//! What is remembered of each mounted bucket, in files beside the mount points: it outlives this process
//! exactly as long as the mounts do, and is readable by root only.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use osb_protocol::lifecycle::OssfsVolume;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Folder of the records. No bucket can have this name.
const FOLDER: &str = ".opensandbox";

/// A bucket that a server has mounted, or is about to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Its mount point.
    pub(super) path: PathBuf,
    /// Installation of the server.
    pub(super) instance: String,
    salt: String,
    /// Digest of everything that decides what the mount shows, and to whom.
    digest: String,
}

impl Record {
    pub(super) fn new(path: PathBuf, instance: &str, bucket: &OssfsVolume) -> Self {
        let salt = hex(&rand::rng().random::<[u8; 16]>());
        Self {
            path,
            instance: instance.to_owned(),
            digest: digest(&salt, bucket),
            salt,
        }
    }

    /// Whether the mount was made with this key, address and options.
    pub(super) fn fits(&self, bucket: &OssfsVolume) -> bool {
        self.digest == digest(&self.salt, bucket)
    }
}

fn digest(salt: &str, bucket: &OssfsVolume) -> String {
    let text = serde_json::to_vec(bucket).expect("texts");
    hex(&Sha256::new()
        .chain_update(salt)
        .chain_update(text)
        .finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The records below a root of mounts.
#[derive(Debug)]
pub(super) struct Records(PathBuf);

impl Records {
    pub(super) fn below(root: &Path) -> Self {
        Self(root.join(FOLDER))
    }

    fn file_of(&self, path: &Path) -> PathBuf {
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        self.0.join(hex(&digest[..16])).with_extension("json")
    }

    /// The record of a mount point.
    pub(super) fn find(&self, path: &Path) -> io::Result<Option<Record>> {
        match fs::read(self.file_of(path)) {
            Ok(text) => {
                let record: Option<Record> = serde_json::from_slice(&text).ok();
                Ok(record.filter(|record| record.path == path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All records. An unreadable one is none.
    pub(super) fn all(&self) -> io::Result<Vec<Record>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let texts = entries.flatten().filter_map(|it| fs::read(it.path()).ok());
        Ok(texts
            .filter_map(|text| serde_json::from_slice(&text).ok())
            .collect())
    }

    /// Stores a record, in place of an earlier one.
    pub(super) fn store(&self, record: &Record) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let file = self.file_of(&record.path);
        let unfinished = file.with_extension("new");
        let mut writing = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        writing.write_all(&serde_json::to_vec(record).map_err(io::Error::other)?)?;
        fs::rename(unfinished, file)
    }

    /// Removes a record.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(self.file_of(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use osb_protocol::lifecycle::OssfsVersion;

    use super::*;

    fn bucket(secret: &str) -> OssfsVolume {
        OssfsVolume {
            bucket: "data".to_owned(),
            endpoint: "https://oss.example".to_owned(),
            version: OssfsVersion::V2,
            options: None,
            access_key_id: "id".to_owned(),
            access_key_secret: secret.to_owned(),
        }
    }

    #[test]
    fn a_record_fits_only_what_the_mount_was_made_with() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::below(root.path());
        let path = root.path().join("data");
        assert_eq!(records.all().unwrap(), []);
        assert_eq!(records.find(&path).unwrap(), None);
        let record = Record::new(path.clone(), "us", &bucket("hunter2"));
        records.store(&record).unwrap();
        records.store(&record).unwrap();
        let found = records.find(&path).unwrap().unwrap();
        assert_eq!(records.all().unwrap(), std::slice::from_ref(&found));
        assert!(found.fits(&bucket("hunter2")) && !found.fits(&bucket("hunter3")));
        let elsewhere = OssfsVolume {
            endpoint: "https://other.example".to_owned(),
            ..bucket("hunter2")
        };
        assert!(!found.fits(&elsewhere));
        let file = records.file_of(&path);
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("hunter"), "{text}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&records.0)), (0o600, 0o700));
        records.remove(&path).unwrap();
        records.remove(&path).unwrap();
        assert_eq!(records.find(&path).unwrap(), None);
    }
}

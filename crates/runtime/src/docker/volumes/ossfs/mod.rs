//! Buckets of an object storage, mounted on the host and bound into sandboxes (contract: lifecycle
//! §17.9).
//!
//! ```text
//! {root}/{bucket}                    a mount point, shared by all sandboxes that ask for the whole bucket
//! {root}/.paths/{bucket}/{hash}      the same of a directory of it
//! {root}/.paths/{bucket}/{hash}-{n}  the same, with the n-th key or address that is in use
//! {root}/.opensandbox/               a record of each mount of a server: with which key it was made
//! ```
//!
//! A directory of a bucket is always a mount of its own, outside of every other mount. In a mounted bucket,
//! a sandbox that can write there could replace it by a link before the engine mounts it.
//!
//! Nothing is counted: who uses a mount follows from the labels of the containers and from the creates
//! in progress ([`super::ledger`]). A record is written before its mount is made and removed after it has
//! ended, so a crash at any point leaves a record that the sweep finds.

pub(super) mod mount_table;
mod program;
mod records;

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use osb_protocol::lifecycle::OssfsVolume;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::{info, warn};

use self::{
    mount_table::{MOUNT_TABLE, MountTable},
    program::Programs,
    records::{Record, Records},
};
use super::host_files::{self, AllowedPaths, Found};
use crate::{VolumeFailure, docker::StorageConfig};

/// Longest look at files: a storage that does not answer blocks its readers.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most mounts of one bucket, or of one directory of it, with different keys, addresses or options.
const PLACES: usize = 256;
/// Folder of the mounts of directories. No bucket can have this name.
const PATHS: &str = ".paths";

/// Mounts buckets.
#[derive(Debug)]
pub(super) struct Ossfs {
    root: PathBuf,
    in_container: bool,
    /// Directories that sandboxes may get.
    allowed: AllowedPaths,
    instance: String,
    table: PathBuf,
    records: Arc<Records>,
    programs: Programs,
}

/// Why a bucket cannot be mounted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) failure: VolumeFailure,
    pub(super) reason: String,
}

fn refuse<T>(failure: VolumeFailure, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        failure,
        reason: reason.into(),
    })
}

impl Ossfs {
    pub(super) fn new(config: &StorageConfig, instance: &str, allowed: AllowedPaths) -> Self {
        let root = config.ossfs_mount_root.clone();
        let secrets = std::env::temp_dir();
        Self {
            in_container: config.in_container,
            allowed,
            instance: instance.to_owned(),
            table: PathBuf::from(MOUNT_TABLE),
            records: Arc::new(Records::below(&root)),
            programs: Programs::new(config.programs.clone(), secrets, instance),
            root,
        }
    }

    /// Reads another table of mounts.
    #[cfg(test)]
    pub(super) fn set_table(&mut self, table: &Path) {
        table.clone_into(&mut self.table);
    }

    /// The n-th place where a bucket, or a directory of it, may be mounted on the host.
    fn place(&self, bucket: &str, sub_path: &[String], number: usize) -> PathBuf {
        if sub_path.is_empty() && number == 1 {
            return self.root.join(bucket);
        }
        let digest = Sha256::digest(sub_path.join("/"));
        let mut name = digest[..16].iter().fold(String::new(), |mut name, byte| {
            write!(name, "{byte:02x}").expect("a string takes any text");
            name
        });
        if number > 1 {
            write!(name, "-{number}").expect("a string takes any text");
        }
        self.root.join(PATHS).join(bucket).join(name)
    }

    /// Where to mount a bucket, or a directory of it: where it is mounted with the same key, address and
    /// options, or else a free place. A mount with others would give a sandbox what its own key may not
    /// read. The caller has the bucket's turn until it has mounted it there.
    pub(super) async fn choose(
        &self,
        bucket: &OssfsVolume,
        sub_path: &[String],
    ) -> Result<PathBuf, Refusal> {
        if !self.root.is_absolute() {
            let reason = "storage.ossfs_mount_root must be an absolute path";
            return refuse(VolumeFailure::OssfsRoot, reason);
        }
        let table = self.mounts()?;
        let mut free = None;
        for number in 1..=PLACES {
            let place = self.place(&bucket.bucket, sub_path, number);
            if table.has(&place) {
                if self.is_same(&place, bucket).await? {
                    return Ok(place);
                }
            } else if free.is_none() && !table.has_below(&place) {
                // What is below was mounted by another server, and a mount here would hide it.
                free = Some(place);
            }
        }
        free.map_or_else(
            || {
                let reason = format!(
                    "the bucket is mounted already with {PLACES} other keys, endpoints, versions or options"
                );
                refuse(VolumeFailure::OssfsCredentials, reason)
            },
            Ok,
        )
    }

    /// Mounts a bucket, or a directory of it, at the place that [`Self::choose`] has named, unless it is
    /// mounted there, and returns the directory to bind. The caller has the bucket's turn.
    pub(super) async fn provide(
        &self,
        bucket: &OssfsVolume,
        sub_path: &[String],
        path: PathBuf,
    ) -> Result<Found, Refusal> {
        if self.mounts()?.has(&path) {
            if self.answers(&path).await? {
                return self.find(path).await;
            }
            info!(mount = %path.display(), "a mounted bucket has lost its program, mounting it again");
            self.end(&path).await.or_else(|reason| {
                refuse(
                    VolumeFailure::OssfsMount,
                    format!("cannot end a broken mount: {reason}"),
                )
            })?;
        }
        self.mount(bucket, sub_path, &path).await?;
        self.find(path).await
    }

    /// Whether a mount was made with this key, address and options. Of one that no server has made, they
    /// are not known.
    async fn is_same(&self, point: &Path, bucket: &OssfsVolume) -> Result<bool, Refusal> {
        let (records, at) = (Arc::clone(&self.records), point.to_owned());
        let record = self.blocking(move || records.find(&at)).await?;
        Ok(record.is_some_and(|record| record.fits(bucket)))
    }

    /// Whether a mount point has a program that serves it.
    async fn answers(&self, point: &Path) -> Result<bool, Refusal> {
        let at = point.to_owned();
        let look = move || match rustix::fs::stat(&at) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(io::Error::from(error)),
        };
        self.blocking(look).await
    }

    async fn find(&self, point: PathBuf) -> Result<Found, Refusal> {
        let look = move || Ok(host_files::find_below(&point, &[]));
        let found = self.blocking(look).await?;
        found.or_else(|trouble| refuse(VolumeFailure::OssfsMount, trouble.to_string()))
    }

    async fn mount(
        &self,
        bucket: &OssfsVolume,
        prefix: &[String],
        path: &Path,
    ) -> Result<(), Refusal> {
        let root = self.root.clone();
        let made = self.blocking(move || {
            fs::create_dir_all(&root)?;
            fs::canonicalize(&root)
        });
        let real = made.await;
        let real = real.or_else(|it| refuse(VolumeFailure::OssfsRoot, it.reason))?;
        if real != self.root {
            // The kernel's table has the other path, so the mount would never be found again.
            let reason = format!(
                "storage.ossfs_mount_root leads through a symbolic link: set it to {}",
                real.display()
            );
            return refuse(VolumeFailure::OssfsRoot, reason);
        }
        if self.allowed.touch(&self.root) {
            let reason = "storage.ossfs_mount_root leads into a directory of storage.allowed_host_paths, or \
                          the other way round: a sandbox could replace the mounts of buckets";
            return refuse(VolumeFailure::OssfsRoot, reason);
        }
        if !self.mounts()?.reaches_host(&self.root, self.in_container) {
            let reason = "mounts of this server do not reach the engine: its process has a mount \
                          namespace of its own (docs/operations.md describes the settings of the service)";
            return refuse(VolumeFailure::OssfsMount, reason);
        }
        let below = path.strip_prefix(&self.root).into_iter();
        let below = below.flat_map(Path::iter);
        let parts: Vec<String> = below.map(|it| it.to_string_lossy().into_owned()).collect();
        let root = self.root.clone();
        let made = self
            .blocking(move || Ok(host_files::find_below(&root, &parts)))
            .await?;
        made.or_else(|trouble| refuse(VolumeFailure::OssfsRoot, trouble.to_string()))?;
        let record = Record::new(path.to_owned(), &self.instance, bucket);
        let records = Arc::clone(&self.records);
        let stored = self.blocking(move || records.store(&record)).await;
        stored.or_else(|it| refuse(VolumeFailure::OssfsRoot, it.reason))?;
        let mut mounted = self.programs.mount(bucket, prefix, path).await;
        if mounted.is_ok() && !self.mounts()?.has(path) {
            mounted = Err("the program ended without an error and mounted nothing".to_owned());
        }
        let Err(reason) = mounted else {
            info!(mount = %path.display(), "mounted a bucket");
            return Ok(());
        };
        if let Err(problem) = self.end(path).await {
            // The record stays, so the sweep tries again.
            warn!(mount = %path.display(), problem, "a failed mount of a bucket stays until the sweep");
        }
        refuse(VolumeFailure::OssfsMount, reason)
    }

    /// Ends the mounts that serve a path, unless a path in use is below them. The caller has the bucket's
    /// turn. `is_foreign`: another server made the mount, so there is no record of it.
    pub(super) async fn release(&self, path: &Path, in_use: &BTreeSet<PathBuf>, is_foreign: bool) {
        let records = Arc::clone(&self.records);
        let records = self.blocking(move || records.all()).await;
        let mut points: Vec<PathBuf> = match records {
            Ok(records) => records.into_iter().map(|it| it.path).collect(),
            Err(refusal) => {
                warn!(mount = %path.display(), reason = refusal.reason, "cannot read which buckets are mounted");
                return;
            }
        };
        points.retain(|point| path.starts_with(point));
        let is_ours = path.starts_with(&self.root) && path != self.root;
        let is_program = || self.mounts().is_ok_and(|table| table.has_program(path));
        if is_foreign && is_ours && points.is_empty() && is_program() {
            points.push(path.to_owned());
        }
        for point in points {
            if in_use.iter().any(|used| used.starts_with(&point)) {
                continue;
            }
            match self.end(&point).await {
                Ok(()) => info!(mount = %point.display(), "ended the mount of a bucket"),
                Err(reason) => warn!(
                    mount = %point.display(),
                    reason,
                    code = "VOLUME::OSSFS_UNMOUNT_FAILED",
                    "cannot end the mount of a bucket, will retry"
                ),
            }
        }
    }

    /// Lists the mounts that this installation has made.
    pub(super) async fn own_mounts(&self) -> Vec<PathBuf> {
        let records = Arc::clone(&self.records);
        let all = self.blocking(move || records.all()).await;
        let all = all.unwrap_or_else(|refusal| {
            warn!(
                reason = refusal.reason,
                "cannot read which buckets are mounted"
            );
            Vec::new()
        });
        let own = all.into_iter().filter(|it| it.instance == self.instance);
        own.map(|it| it.path).collect()
    }

    /// The bucket of a path below the root of mounts.
    pub(super) fn bucket_of(&self, path: &Path) -> Option<String> {
        let mut parts = path.strip_prefix(&self.root).ok()?.iter();
        let bucket = match parts.next()? {
            first if first == PATHS => parts.next()?,
            first => first,
        };
        Some(bucket.to_string_lossy().into_owned())
    }

    /// Removes what a crash left of programs.
    pub(super) fn remove_stale_files(&self) {
        if let Err(error) = self.programs.remove_stale_files() {
            warn!(%error, "cannot remove left-over files of mounts");
        }
    }

    /// Ends a mount, and removes its record and the directories that it was made in.
    async fn end(&self, point: &Path) -> Result<(), String> {
        let is_mounted = || Ok::<_, String>(self.mounts().map_err(|it| it.reason)?.has(point));
        if is_mounted()? {
            let ended = self.programs.unmount(point).await;
            if is_mounted()? {
                return Err(match ended {
                    Ok(()) => "it is mounted several times".to_owned(),
                    Err(reason) => reason,
                });
            }
        }
        let (records, at, root) = (
            Arc::clone(&self.records),
            point.to_owned(),
            self.root.clone(),
        );
        let removed = self.blocking(move || {
            records.remove(&at)?;
            let mut folder = at.as_path();
            // The folders of all buckets stay, and so does one with anything in it.
            let shared = [root.join(PATHS), root.clone()];
            while !shared.iter().any(|it| it == folder) && fs::remove_dir(folder).is_ok() {
                folder = folder.parent().unwrap_or(&root);
            }
            Ok(())
        });
        removed.await.map_err(|it| it.reason)
    }

    fn mounts(&self) -> Result<MountTable, Refusal> {
        MountTable::read(&self.table).or_else(|error| {
            let reason = format!("cannot read the kernel's mounts: {error}");
            refuse(VolumeFailure::OssfsMount, reason)
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        match timeout(PATIENCE, spawn_blocking(work)).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(error))) => refuse(
                VolumeFailure::OssfsMount,
                format!("cannot use {}: {error}", self.root.display()),
            ),
            Ok(Err(_)) => refuse(VolumeFailure::OssfsMount, "the server is shutting down"),
            Err(_) => refuse(
                VolumeFailure::OssfsMount,
                "the object storage does not answer",
            ),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

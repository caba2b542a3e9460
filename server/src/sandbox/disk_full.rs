//! A quota for disk that is used up.

/// A quota for disk has no room for what would be stored.
#[derive(Debug, thiserror::Error)]
#[error(
    "{whose} has a quota of {} MiB for disk: sandboxes, snapshots and templates have {} MiB; delete some \
     of them",
    *.limit >> 20, *.used >> 20
)]
pub struct DiskFull {
    /// Whose quota.
    pub whose: String,
    /// The quota, in bytes.
    pub limit: u64,
    /// What the sandboxes, snapshots and templates have, in bytes.
    pub used: u64,
}

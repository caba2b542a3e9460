//! `[snapshots]`: stored file systems of sandboxes.

use serde::{Deserialize, Serialize};

use crate::sandbox::Limits;

/// `[snapshots]`: an addition to the contract.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotsSection {
    /// Most snapshots of a tenant.
    pub max_snapshots: u64,
}

impl Default for SnapshotsSection {
    fn default() -> Self {
        let Limits { max_snapshots, .. } = Limits::default();
        Self { max_snapshots }
    }
}

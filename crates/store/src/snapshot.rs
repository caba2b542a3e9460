//! Snapshots of sandboxes (contract: lifecycle §9, §22).

use std::collections::HashMap;

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime, lifecycle::SnapshotState};

use crate::StoreError;

/// Most ids that one statement looks up.
pub(crate) const IDS: usize = 500;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Its id.
    pub id: String,
    /// The sandbox that it was taken of.
    pub sandbox_id: SandboxId,
    /// The name that its creator gave.
    pub name: Option<String>,
    /// The tenant whose snapshot it is.
    pub tenant: Option<String>,
    /// Who took it.
    pub owner: Option<String>,
    /// Its state.
    pub state: SnapshotState,
    /// Machine name of the reason for its state.
    pub reason: String,
    /// The reason in words.
    pub message: String,
    /// What the runtime calls the stored file system; `None` until there is one.
    pub image: Option<String>,
    /// Bytes on disk that only it takes.
    pub size_bytes: Option<u64>,
    /// The snapshot that its sandbox was created from.
    pub parent_id: Option<String>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Since when it is in its state.
    pub changed_at: WireTime,
}

/// A transition of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotChange {
    /// Its new state.
    pub state: SnapshotState,
    /// Machine name of the reason.
    pub reason: &'static str,
    /// The reason in words.
    pub message: String,
    /// What the runtime calls the stored file system, if it is known from now on.
    pub image: Option<String>,
    /// Bytes on disk that only it takes, if they are known from now on.
    pub size_bytes: Option<u64>,
    /// When.
    pub at: WireTime,
}

/// Which snapshots, and which part of their list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotQuery {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those of this sandbox.
    pub sandbox_id: Option<String>,
    /// Only those with exactly this name.
    pub name: Option<String>,
    /// Only those in one of these states, compared with case; none means any.
    pub states: Vec<String>,
    /// How many to leave out at the start.
    pub skip: u64,
    /// How many at most.
    pub limit: u32,
}

/// How many snapshots there are in a state, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTotal {
    /// The state.
    pub state: SnapshotState,
    /// Their number.
    pub count: u64,
    /// Bytes on disk of those whose size is known.
    pub bytes: u64,
}

/// Whose snapshots or templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredFor<'a> {
    /// Those of a tenant.
    Tenant(&'a str),
    /// Those that an owner made.
    Owner(&'a str),
}

impl<'a> StoredFor<'a> {
    /// The tenant and the owner to look for.
    pub(crate) fn columns(self) -> (Option<&'a str>, Option<&'a str>) {
        match self {
            Self::Tenant(tenant) => (Some(tenant), None),
            Self::Owner(owner) => (None, Some(owner)),
        }
    }
}

/// Snapshots. The server never removes one by itself: they have no expiry.
#[async_trait]
pub trait SnapshotStore: Send + Sync + 'static {
    /// Adds snapshots in one transaction, except those whose id is taken; returns how many were added.
    async fn add_snapshots(&self, snapshots: &[SnapshotRow]) -> Result<u64, StoreError>;

    /// One snapshot.
    async fn snapshot(&self, id: &str) -> Result<Option<SnapshotRow>, StoreError>;

    /// A part of a list, newest first and then by descending id, and the number of all that match.
    async fn snapshots(&self, query: &SnapshotQuery)
    -> Result<(Vec<SnapshotRow>, u64), StoreError>;

    /// Changes a snapshot that is in state `from`; `false` when it is not, or there is none. An image
    /// and a size that the change does not have stay as they are.
    async fn change_snapshot(
        &self,
        id: &str,
        from: SnapshotState,
        change: &SnapshotChange,
    ) -> Result<bool, StoreError>;

    /// Removes a snapshot that is in state `from`; `false` when it is not, or there is none.
    async fn remove_snapshot(&self, id: &str, from: SnapshotState) -> Result<bool, StoreError>;

    /// Snapshots that are being taken or removed, by id, after the id `after`, at most `most`.
    async fn open_snapshots(&self, after: &str, most: u32) -> Result<Vec<SnapshotRow>, StoreError>;

    /// States of those snapshots among `ids` that exist.
    async fn snapshot_states(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, SnapshotState>, StoreError>;

    /// Bytes on disk of the snapshots of a tenant or an owner whose size is known.
    async fn snapshot_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError>;

    /// Numbers and sizes of all snapshots, or those of a tenant, by state.
    async fn snapshot_totals(&self, tenant: Option<&str>)
    -> Result<Vec<SnapshotTotal>, StoreError>;
}

/// A size as a database keeps it.
pub(crate) fn stored_size(bytes: Option<u64>) -> Option<i64> {
    bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// A size as it was kept. One that is negative is none.
pub(crate) fn read_size(bytes: Option<i64>) -> Option<u64> {
    bytes.and_then(|bytes| u64::try_from(bytes).ok())
}

/// The state with a stored name. An unknown one, which `store check` reports, is no usable snapshot.
pub(crate) fn read_state(name: &str) -> SnapshotState {
    SnapshotState::of(name).unwrap_or(SnapshotState::Failed)
}

/// The totals of rows with state, number and bytes.
pub(crate) fn totals(rows: Vec<(String, i64, i64)>) -> Vec<SnapshotTotal> {
    let totals = rows.into_iter().map(|(state, count, bytes)| SnapshotTotal {
        state: read_state(&state),
        count: u64::try_from(count).unwrap_or_default(),
        bytes: u64::try_from(bytes).unwrap_or_default(),
    });
    totals.collect()
}

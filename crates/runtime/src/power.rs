//! Optional powers of a runtime, beyond creating and removing sandboxes.
//!
//! Each power is a trait of its own, which [`Runtime`](crate::Runtime) returns where it is supported.
//! Otherwise the caller responds with
//! [`RuntimeError::Unsupported`](crate::RuntimeError::Unsupported).

use async_trait::async_trait;
use osb_protocol::SandboxId;

use crate::{RuntimeError, Source};

/// Freezes and thaws sandboxes with all their containers. The change is reported as
/// [`RuntimeEvent::Paused`](crate::RuntimeEvent::Paused).
#[async_trait]
pub trait Pausing: Send + Sync {
    /// Freezes a sandbox. After a failure none of its containers is frozen.
    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// Thaws a sandbox.
    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError>;
}

/// Stores file systems of sandboxes.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Stores the file system of a sandbox under a snapshot's id. A create from
    /// [`Source::Snapshot`] with this id starts from it.
    async fn take(&self, sandbox: &SandboxId, snapshot: &str) -> Result<(), RuntimeError>;

    /// Removes a snapshot. Succeeds if there is none.
    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError>;
}

/// Settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Name, unique within the runtime.
    pub name: String,
    /// What its sandboxes are created from.
    pub source: Source,
    /// Number of sandboxes that are kept ready.
    pub warm: u32,
}

/// Current state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// Its settings.
    pub spec: PoolSpec,
    /// Number of sandboxes that are ready.
    pub ready: u32,
    /// Number of claimed sandboxes that still exist.
    pub claimed: u32,
}

/// Keeps warm sandboxes ready. A create from [`Source::Pool`] claims one.
#[async_trait]
pub trait Pools: Send + Sync {
    /// Creates a pool, or updates the pool of that name.
    async fn apply(&self, pool: PoolSpec) -> Result<(), RuntimeError>;

    /// Lists all pools, ordered by name.
    async fn list(&self) -> Result<Vec<PoolStatus>, RuntimeError>;

    /// Removes a pool with its ready sandboxes. Claimed ones stay. Succeeds if there is no such pool.
    async fn remove(&self, name: &str) -> Result<(), RuntimeError>;
}

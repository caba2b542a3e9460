//! What a runtime may be able to do beyond making and removing sandboxes.
//!
//! Each power is a trait of its own, which [`Runtime`](crate::Runtime) hands out when it has it. A
//! caller that finds none answers [`RuntimeError::Unsupported`](crate::RuntimeError::Unsupported).

use async_trait::async_trait;
use osb_protocol::SandboxId;

use crate::{RuntimeError, Source};

/// Freezes and thaws sandboxes, each as a whole group. The change is reported as
/// [`RuntimeEvent::Paused`](crate::RuntimeEvent::Paused).
#[async_trait]
pub trait Pausing: Send + Sync {
    /// Freezes a sandbox. On failure none of its containers stays frozen.
    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// Thaws a sandbox.
    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError>;
}

/// Stores file systems of sandboxes.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Stores the file system of a sandbox under the snapshot's id. A create from
    /// [`Source::Snapshot`] with this id starts from it.
    async fn take(&self, sandbox: &SandboxId, snapshot: &str) -> Result<(), RuntimeError>;

    /// Removes a snapshot; a missing one is fine.
    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError>;
}

/// What a pool keeps ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Name, unique within the runtime.
    pub name: String,
    /// What its sandboxes are made from.
    pub source: Source,
    /// How many sandboxes wait for a claim.
    pub warm: u32,
}

/// A pool as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// What was asked for.
    pub spec: PoolSpec,
    /// Sandboxes that wait for a claim.
    pub ready: u32,
    /// Sandboxes that were claimed and still exist.
    pub claimed: u32,
}

/// Keeps sandboxes ready. A create from [`Source::Pool`] claims one.
#[async_trait]
pub trait Pools: Send + Sync {
    /// Makes a pool, or changes the one of that name.
    async fn apply(&self, pool: PoolSpec) -> Result<(), RuntimeError>;

    /// All pools, by name.
    async fn list(&self) -> Result<Vec<PoolStatus>, RuntimeError>;

    /// Removes a pool with what waits in it; a missing one is fine. Claimed sandboxes stay.
    async fn remove(&self, name: &str) -> Result<(), RuntimeError>;
}

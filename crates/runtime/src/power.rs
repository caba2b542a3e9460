//! Optional powers of a runtime, beyond creating and removing sandboxes.
//!
//! Each power is a trait of its own, which [`Runtime`](crate::Runtime) returns where it is supported.
//! Otherwise the caller responds with
//! [`RuntimeError::Unsupported`](crate::RuntimeError::Unsupported).

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use crate::{RuntimeError, Source};

/// Freezes and thaws sandboxes with all their containers. A change is also reported as
/// [`RuntimeEvent::Paused`](crate::RuntimeEvent::Paused). Both calls return the
/// time after the change, by the back end's clock.
///
/// The main container decides: after a crash between two steps, or after an operator froze a single
/// container, [`Runtime::sweep`](crate::Runtime::sweep) brings the others to the same state.
#[async_trait]
pub trait Pausing: Send + Sync {
    /// Freezes a sandbox that runs. After a failure none of its containers is frozen, unless the
    /// back end does not answer or a container that the sandbox must not run without is missing.
    async fn pause(&self, id: &SandboxId) -> Result<WireTime, RuntimeError>;

    /// Thaws a frozen sandbox. After a failure it is still frozen, unless the back end does not
    /// answer.
    async fn resume(&self, id: &SandboxId) -> Result<WireTime, RuntimeError>;
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

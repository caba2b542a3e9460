//! How much the host of a back end has for sandboxes.

use async_trait::async_trait;

use crate::RuntimeError;

/// Reads what the host of a back end has.
#[async_trait]
pub trait Capacity: Send + Sync {
    /// Reads it now.
    async fn read_capacity(&self) -> Result<HostCapacity, RuntimeError>;
}

/// What a host has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCapacity {
    /// Name of the host.
    pub name: String,
    /// The engine with its version, for people.
    pub engine: String,
    /// Processors.
    pub processors: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Memory that programs can still take, in bytes. `None` if it cannot be read from here.
    pub available_bytes: Option<u64>,
    /// The file system that images and the files of sandboxes are on. `None` if it cannot be read
    /// from here.
    pub disk: Option<DiskSpace>,
    /// The host's clock in milliseconds since 1970, when the engine answered. `None` if the engine
    /// does not report it.
    pub clock_ms: Option<i64>,
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// The size.
    pub total: u64,
    /// What programs without special rights can still write.
    pub free: u64,
}

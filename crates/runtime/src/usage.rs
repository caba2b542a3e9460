//! Resource use of sandboxes.

use std::collections::HashMap;

use async_trait::async_trait;
use osb_protocol::SandboxId;

use crate::RuntimeError;

/// Resource use of one sandbox at one moment. Counters grow from the start of its container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory, without the page cache that the kernel can drop at once, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes received from the network. `None` for a sandbox without a network of its own.
    pub received_bytes: Option<u64>,
    /// Bytes sent to the network.
    pub sent_bytes: Option<u64>,
    /// Bytes read from disks. `None` if the kernel does not count them.
    pub read_bytes: Option<u64>,
    /// Bytes written to disks.
    pub written_bytes: Option<u64>,
}

/// Reads the resource use of sandboxes.
#[async_trait]
pub trait Metering: Send + Sync {
    /// Reads the use of each sandbox, in the order of `ids`. `None` for one that does not run, or
    /// whose use cannot be read. A read takes a few system calls for each sandbox.
    async fn read_usage(&self, ids: &[SandboxId]) -> Vec<Option<Usage>>;

    /// Reads how many bytes the writable layers of all sandboxes take. The back end may have to look at
    /// every file for that.
    async fn read_layer_sizes(&self) -> Result<HashMap<SandboxId, u64>, RuntimeError>;
}

//! Resource use of one sandbox over time. An addition to the contract.

use serde::{Deserialize, Serialize};

use crate::{SandboxId, WireTime};

/// Resource use over time: element `n` of each list is about the step that begins `n` steps after
/// `start`. A number that is not known is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MetricsHistory {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Length of a step in seconds.
    pub step_seconds: u32,
    /// Beginning of the first step; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<WireTime>,
    /// Cores in use.
    pub cpu_cores: Vec<Option<f64>>,
    /// Memory in use in bytes, without the page cache that the kernel can drop at once.
    pub memory_bytes: Vec<Option<u64>>,
    /// Processes and threads.
    pub processes: Vec<Option<u64>>,
    /// Bytes received from the network per second.
    pub network_received_bytes_per_second: Vec<Option<u64>>,
    /// Bytes sent to the network per second.
    pub network_sent_bytes_per_second: Vec<Option<u64>>,
    /// Bytes read from disks per second.
    pub disk_read_bytes_per_second: Vec<Option<u64>>,
    /// Bytes written to disks per second.
    pub disk_written_bytes_per_second: Vec<Option<u64>>,
}

/// Resource use in the last second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MetricsSample {
    /// When it was read.
    pub at: WireTime,
    /// Cores in use.
    pub cpu_cores: Option<f64>,
    /// Memory in use in bytes, without the page cache that the kernel can drop at once.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Bytes received from the network per second.
    pub network_received_bytes_per_second: Option<u64>,
    /// Bytes sent to the network per second.
    pub network_sent_bytes_per_second: Option<u64>,
    /// Bytes read from disks per second.
    pub disk_read_bytes_per_second: Option<u64>,
    /// Bytes written to disks per second.
    pub disk_written_bytes_per_second: Option<u64>,
}

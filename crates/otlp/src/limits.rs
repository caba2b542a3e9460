//! Every bound of the export, each with its reason.

use std::time::Duration;

/// Between two exports (contract: execd §13, also for the next).
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// For one try to export.
pub(crate) const EXPORT: Duration = Duration::from_secs(10);
/// Between two complaints that metrics cannot be sent.
pub(crate) const TROUBLE: Duration = Duration::from_secs(600);
/// Bytes of a collector's answer.
pub(crate) const ANSWER: usize = 64 << 10;
/// The file that names the host's address is read up to this many bytes.
pub(crate) const HOST_INFO: u64 = 64 << 10;

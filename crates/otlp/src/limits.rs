//! Limits of the export.

use std::time::Duration;

/// Default interval between two exports (contract: execd §13, also for the next).
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Default timeout of one attempt.
pub(crate) const EXPORT: Duration = Duration::from_secs(10);
/// Minimum interval between two log lines about failed exports.
pub(crate) const TROUBLE: Duration = Duration::from_secs(600);
/// Maximum bytes of a collector's response.
pub(crate) const ANSWER: usize = 64 << 10;
/// Maximum bytes read from the file with the host's address.
pub(crate) const HOST_INFO: u64 = 64 << 10;

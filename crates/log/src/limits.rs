//! Limits of the log, each with its reason.

use std::time::Duration;

/// Maximum bytes of a logged command.
pub const COMMAND: usize = 1 << 10;
/// Maximum bytes of a logged request target.
pub const ADDRESS: usize = 1 << 10;
/// Bytes of lines queued for one output. Further lines are dropped, and the output reports their
/// number.
pub const QUEUE: usize = 256 << 10;
/// Bytes of buffer memory that are reused. A larger buffer is freed after use.
pub const KEPT: usize = 8 << 10;
/// Time that the process waits for the last lines to be written before it exits.
pub const END: Duration = Duration::from_secs(1);
/// Messages counted at the same time.
pub const TEXTS: usize = 256;
/// Lines per second with the same message that are all written (contract: execd §1.4).
pub const FIRST: u32 = 100;
/// Of further such lines, one in N is written.
pub const EVERY: u32 = 100;

//! Every bound of the log, each with its reason.

use std::time::Duration;

/// Bytes of a command in the log.
pub const COMMAND: usize = 1 << 10;
/// Bytes of an address in the log.
pub const ADDRESS: usize = 1 << 10;
/// Bytes of lines that wait for one output. Lines that come then are lost, and the output says how
/// many.
pub const QUEUE: usize = 256 << 10;
/// Bytes of memory for one line, or for those that wait, that are kept for the next.
pub const KEPT: usize = 8 << 10;
/// How long the end of the process waits for the last lines.
pub const END: Duration = Duration::from_secs(1);
/// Different texts that are counted at once.
pub const TEXTS: usize = 256;
/// Lines with the same text in one second that are all written (contract: execd §1.4).
pub const FIRST: u32 = 100;
/// Of the rest one in so many.
pub const EVERY: u32 = 100;

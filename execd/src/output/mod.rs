//! Output on its way from a process to a client: what commands and shell sessions share
//! (contract: execd §4, §5.5).
//!
//! ```text
//!   process ─pipes─▶ pump ──▶ spool ──▶ stream ─▶ client     one reader, now
//!                      └────▶ log                            read at any offset, later
//! ```
//!
//! A process never waits for a client: the pump moves its output into memory, and beyond a window
//! to disk. A client that leaves ends the stream; what that means for the process is the caller's
//! affair.

mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod lines;
mod log;
mod outcome;
mod pipe;
mod pump;
mod spool;
mod stream;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::lines::Budget;
pub(crate) use self::{
    log::Log,
    outcome::{End, Outcome},
    pipe::{Pipe, Pipes},
    pump::{Pump, Sink, Subject},
    spool::Spool,
    stream::{Output, Run, response},
};
use crate::limits;

/// What all streams together may take. Clones share it.
#[derive(Clone, Debug)]
pub struct Outputs {
    lingering: Arc<Semaphore>,
    partial_lines: Arc<Budget>,
}

impl Outputs {
    /// The bounds in a sandbox with so many bytes of memory.
    #[must_use]
    pub fn new(memory: Option<u64>) -> Self {
        Self {
            lingering: Arc::new(Semaphore::new(limits::LINGERING)),
            partial_lines: Arc::new(Budget::new(memory)),
        }
    }

    fn may_linger(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lingering).try_acquire_owned().ok()
    }
}

//! Output of commands and shell sessions, on its way from a process to its clients (contract: execd
//! §4, §5.5).
//!
//! ```text
//!   process ─pipes─▶ pump ─▶ writer ─▶ journal ─▶ stream ─▶ client    events after any number
//!                      └───▶ log                                      bytes from any offset
//! ```
//!
//! A process never waits for a client. execd converts output to events at once. It keeps the newest
//! events in memory and older ones on disk. A disconnect ends the client's stream; the caller
//! decides what happens to the process.

mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod journal;
mod lines;
mod log;
mod memory;
mod outcome;
mod pipe;
mod pump;
mod stream;
mod writer;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::{
    journal::{EventReader, Journal, OutputUsage, Unavailable},
    log::Log,
    outcome::{End, NOT_STARTED, Outcome},
    pipe::{OutputPipes, Pipes},
    pump::{Pump, Sink, Subject},
    stream::response,
    writer::{Replay, Writer},
};
use self::{lines::Budget, memory::Memory};
use crate::limits;

/// Output stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

impl Source {
    /// Type of its events on the wire.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Limits that apply to all output together. Clones share them.
#[derive(Clone, Debug)]
pub struct Outputs {
    lingering: Arc<Semaphore>,
    partial_lines: Arc<Budget>,
    journals: Arc<Memory>,
}

impl Outputs {
    /// Creates the limits for a sandbox with this memory limit in bytes.
    #[must_use]
    pub fn new(memory: Option<u64>) -> Self {
        Self {
            lingering: Arc::new(Semaphore::new(limits::LINGERING)),
            partial_lines: Arc::new(Budget::new(memory)),
            journals: Arc::new(Memory::new(memory)),
        }
    }

    /// Memory in bytes for the output of ended runs.
    pub(crate) fn memory_of_ended(&self) -> u64 {
        self.journals.for_ended()
    }

    fn may_linger(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lingering).try_acquire_owned().ok()
    }
}

//! Output on its way from a process to a client: what commands and shell sessions share
//! (contract: execd §4, §5.5).
//!
//! ```text
//!   process ─pipes─▶ pump ─▶ writer ─▶ journal ─▶ stream ─▶ client    events, from any number on
//!                      └───▶ log                                      bytes, from any offset on
//! ```
//!
//! A process never waits for a client: execd converts its output to events at once, and keeps them
//! in memory, and beyond a window on disk. A disconnect ends the client's stream; the caller
//! decides what that means for the process.

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
    journal::{EventReader, Held, Journal, Unavailable},
    log::Log,
    outcome::{End, Outcome},
    pipe::{Pipe, Pipes},
    pump::{Pump, Sink, Subject},
    stream::response,
    writer::{Replay, Writer},
};
use self::{lines::Budget, memory::Memory};
use crate::limits;

/// Stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

impl Source {
    /// Name of its events.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Limits of all streams together. Clones share them.
#[derive(Clone, Debug)]
pub struct Outputs {
    lingering: Arc<Semaphore>,
    partial_lines: Arc<Budget>,
    journals: Arc<Memory>,
}

impl Outputs {
    /// The bounds in a sandbox with so many bytes of memory.
    #[must_use]
    pub fn new(memory: Option<u64>) -> Self {
        Self {
            lingering: Arc::new(Semaphore::new(limits::LINGERING)),
            partial_lines: Arc::new(Budget::new(memory)),
            journals: Arc::new(Memory::new(memory)),
        }
    }

    /// Bytes of memory for the output of ended runs.
    pub(crate) fn memory_of_ended(&self) -> u64 {
        self.journals.for_ended()
    }

    fn may_linger(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lingering).try_acquire_owned().ok()
    }
}

//! What the windows of all journals may take together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::limits;

/// Counts bytes in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicU64,
    max: u64,
}

impl Memory {
    /// A part of the sandbox's memory: the daemon must not be what fills it.
    pub(crate) fn new(memory: Option<u64>) -> Self {
        let part = memory.map_or(u64::MAX, |memory| memory / limits::JOURNALS_PART);
        Self {
            used: AtomicU64::new(0),
            max: part.min(limits::JOURNALS),
        }
    }

    /// Whether windows should be on disk instead.
    pub(super) fn is_short(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.max
    }

    /// What journals of ended runs may take of it.
    pub(crate) fn for_ended(&self) -> u64 {
        self.max / 4
    }
}

/// What one journal takes; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Arc<Memory>,
    taken: u64,
}

impl Share {
    pub(super) fn of(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            taken: 0,
        }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        self.memory.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give(&mut self, bytes: u64) {
        self.taken -= bytes;
        self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.taken);
    }
}

//! Memory and disk use of all journals.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::limits;

/// Counter of the bytes that all journals use, with the limits.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicU64,
    max: u64,
    on_disk: AtomicU64,
}

impl Memory {
    /// Creates the counter. The limit is a fraction of the sandbox's memory, so that the daemon
    /// cannot exhaust it.
    pub(crate) fn new(memory: Option<u64>) -> Self {
        let part = memory.map_or(u64::MAX, |memory| memory / limits::JOURNALS_PART);
        Self {
            used: AtomicU64::new(0),
            max: part.min(limits::JOURNALS),
            on_disk: AtomicU64::new(0),
        }
    }

    /// Whether journals should move their windows to disk.
    pub(super) fn is_short(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.max
    }

    /// Whether journals should keep fewer events for reconnecting clients.
    pub(super) fn disk_is_short(&self) -> bool {
        self.on_disk.load(Ordering::Relaxed) > limits::JOURNALS_ON_DISK
    }

    /// Memory in bytes available to journals of ended runs.
    pub(crate) fn for_ended(&self) -> u64 {
        self.max / 4
    }
}

/// Resource use of one journal; given back on drop.
#[derive(Debug)]
pub(super) struct MemoryShare {
    memory: Arc<Memory>,
    taken: u64,
    on_disk: u64,
}

impl MemoryShare {
    pub(super) fn of(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            taken: 0,
            on_disk: 0,
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

    /// Sets the number of bytes on disk.
    pub(super) fn on_disk(&mut self, bytes: u64) {
        let all = &self.memory.on_disk;
        all.fetch_add(bytes, Ordering::Relaxed);
        all.fetch_sub(self.on_disk, Ordering::Relaxed);
        self.on_disk = bytes;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.on_disk(0);
        self.give(self.taken);
    }
}

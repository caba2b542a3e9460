//! Counts for operators, since the start of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use osb_store::DeliveryStatus;

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Tally {
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    /// Counts an attempt by the status that it led to.
    pub(super) fn attempted(&self, status: DeliveryStatus) {
        let counter = match status {
            DeliveryStatus::Delivered => &self.delivered,
            DeliveryStatus::Pending => &self.failed,
            DeliveryStatus::Dead => &self.dead,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that found no room.
    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Outcomes of attempts: those that delivered, that will be repeated, and that were the last; and
    /// messages for which there was no room.
    pub fn read(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("delivered", read(&self.delivered)),
            ("failed", read(&self.failed)),
            ("dead", read(&self.dead)),
            ("dropped", read(&self.dropped)),
        ]
    }
}

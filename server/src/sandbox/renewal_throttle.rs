//! The distance between renewals of one sandbox.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// Least time between a renewal that failed and the next.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Keeps renewals of one sandbox apart.
#[derive(Debug, Default)]
pub(super) struct RenewalThrottle {
    /// Whether one is under way or waits for its turn.
    is_under_way: AtomicBool,
    /// When the last one ended, in milliseconds after the start of the server, and one more: 0 is never.
    ended: AtomicU64,
    has_failed: AtomicBool,
}

impl RenewalThrottle {
    /// Begins a renewal, unless one is under way or ended less than `interval` ago.
    pub(super) fn begin(&self, now_millis: u64, interval: Duration) -> bool {
        let interval = match self.has_failed.load(Ordering::Relaxed) {
            true => interval.min(AFTER_FAILURE),
            false => interval,
        };
        let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let ended = self.ended.load(Ordering::Relaxed);
        let is_early = ended > 0 && now_millis + 1 < ended.saturating_add(interval);
        !is_early && !self.is_under_way.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end(&self, now_millis: u64, has_failed: bool) {
        self.has_failed.store(has_failed, Ordering::Relaxed);
        self.ended.store(now_millis + 1, Ordering::Relaxed);
        self.is_under_way.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_of_a_sandbox_keep_their_distance() {
        const INTERVAL: Duration = Duration::from_secs(60);
        let throttle = RenewalThrottle::default();
        assert!(throttle.begin(0, INTERVAL));
        assert!(!throttle.begin(90_000, INTERVAL), "one is under way");
        throttle.end(100_000, false);
        assert!(!throttle.begin(159_999, INTERVAL));
        assert!(throttle.begin(160_000, INTERVAL));
        throttle.end(160_000, true);
        assert!(!throttle.begin(164_999, INTERVAL));
        assert!(throttle.begin(165_000, INTERVAL), "the last one failed");
    }
}

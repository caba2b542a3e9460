//! How often something took how long: a histogram that many tasks fill.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets of creates, in milliseconds (contract: lifecycle §A5).
pub(crate) const CREATE_MS: [u64; 9] = [100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];

/// How often something took how long.
#[derive(Debug)]
pub(crate) struct Durations {
    bounds: &'static [u64],
    /// One for each bound, and one for all that took longer.
    buckets: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl Durations {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            nanoseconds: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, took: Duration) {
        let index = self
            .bounds
            .partition_point(|bound| Duration::from_millis(*bound) < took);
        self.buckets[index].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Bounds in seconds with how many took at most so long, how many there were, and the sum of all in
    /// seconds.
    pub(crate) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut count = 0;
        let mut counts = self.buckets.iter().map(|bucket| {
            count += bucket.load(Ordering::Relaxed);
            count
        });
        let bounds = self.bounds.iter().map(|ms| Duration::from_millis(*ms));
        let bounds = bounds.map(|bound| bound.as_secs_f64());
        let below = bounds.zip(&mut counts).collect();
        let total = counts.next().unwrap_or(0);
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        (below, total, sum.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let durations = Durations::new(&[1, 10]);
        for micros in [1000, 1001, 9999, 10_001, 5_000_000] {
            durations.add(Duration::from_micros(micros));
        }
        let (below, count, sum) = durations.read();
        assert_eq!(below, [(0.001, 1), (0.01, 3)]);
        assert_eq!(count, 5);
        assert!((sum - 5.022_001).abs() < 1e-9, "{sum}");
    }
}

//! The wall clock of the process.
//!
//! Promises to clients, such as expiries, are moments of the wall clock, which an operator or a time
//! server may set at any moment, to an earlier time as well. Whatever reads it does so here, so that
//! tests can set it. Intervals are measured with the monotonic clock instead, which nothing sets.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime},
};

/// How far the process's clock is ahead of the system's, in microseconds. Not zero in tests only.
static AHEAD_US: AtomicI64 = AtomicI64::new(0);

/// Returns the current time.
#[must_use]
pub fn now() -> SystemTime {
    let now = SystemTime::now();
    let ahead = AHEAD_US.load(Ordering::Relaxed);
    let by = Duration::from_micros(ahead.unsigned_abs());
    let moved = match ahead < 0 {
        true => now.checked_sub(by),
        false => now.checked_add(by),
    };
    moved.unwrap_or(now)
}

/// Sets the clock forward, or back by a negative number, for the whole process. For tests, which must
/// not share the process with tests that rely on the clock.
pub fn step(seconds: i64) {
    AHEAD_US.fetch_add(seconds.saturating_mul(1_000_000), Ordering::Relaxed);
}

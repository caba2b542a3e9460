//! The deadline of a whole run. The limits of its suites add up to more than a machine that tests
//! changes waits, and a run that is ended from outside has no result.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Longest time of all checks together.
pub(crate) const WHOLE_RUN: Duration = Duration::from_secs(80 * 60);

static DEADLINE: OnceLock<Instant> = OnceLock::new();

/// Ends programs of this run that are still running after `limit`. The first call counts.
pub(crate) fn set(limit: Duration) {
    let _ = DEADLINE.set(Instant::now() + limit);
}

/// The limit of a program that starts now: its own, or what is left of the run if that is less.
pub(crate) fn within(limit: Duration) -> Duration {
    shorter(limit, DEADLINE.get().copied(), Instant::now())
}

/// Whether the time of the run is up.
pub(crate) fn passed() -> bool {
    DEADLINE.get().is_some_and(|end| Instant::now() >= *end)
}

fn shorter(limit: Duration, end: Option<Instant>, now: Instant) -> Duration {
    match end {
        Some(end) => limit.min(end.saturating_duration_since(now)),
        None => limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_shortens_the_limit_of_a_program() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        assert_eq!(shorter(seconds(9), None, now), seconds(9));
        assert_eq!(
            shorter(seconds(9), Some(now + seconds(20)), now),
            seconds(9)
        );
        assert_eq!(shorter(seconds(9), Some(now + seconds(2)), now), seconds(2));
        assert_eq!(
            shorter(seconds(9), now.checked_sub(seconds(2)), now),
            seconds(0)
        );
    }
}

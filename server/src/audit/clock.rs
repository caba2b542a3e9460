//! Whether the clock may decide that entries are too old. One that runs far ahead, as after a start
//! without its battery, would have the whole trail deleted.

use std::time::{Duration, Instant};

use osb_protocol::WireTime;

/// Time that may pass unnoticed, in seconds: a server may be idle or off for some days.
const JUMP: i64 = 7 * 24 * 3_600;
/// How long a clock that has jumped is doubted. Then it is believed: the server was off, or idle.
const DOUBT: Duration = Duration::from_secs(24 * 3_600);

/// Readings of the clock, compared with each other and with the newest entry.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: Option<(Instant, WireTime)>,
    doubted_since: Option<Instant>,
}

/// What a reading of the clock is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Plausible,
    /// It has just jumped ahead.
    Jumped,
    /// It jumped some time ago.
    Doubtful,
}

impl Clock {
    /// Judges the reading `now`, taken at `at`. `newest` is the time of the newest entry.
    pub(super) fn read(&mut self, at: Instant, now: WireTime, newest: Option<WireTime>) -> Reading {
        let expected = match self.last {
            Some((then, time)) => {
                let passed = at.saturating_duration_since(then).as_secs();
                time.plus_seconds(i64::try_from(passed).unwrap_or(i64::MAX))
            }
            None => newest,
        };
        self.last = Some((at, now));
        let is_beyond = |from: WireTime, to: WireTime| {
            from.plus_seconds(JUMP).is_some_and(|latest| to > latest)
        };
        if expected.is_some_and(|expected| is_beyond(expected, now)) {
            self.doubted_since = Some(at);
            return Reading::Jumped;
        }
        // It was put right.
        if expected.is_some_and(|expected| is_beyond(now, expected)) {
            self.doubted_since = None;
        }
        let is_doubted = |since| at.saturating_duration_since(since) < DOUBT;
        match self.doubted_since.is_some_and(is_doubted) {
            true => Reading::Doubtful,
            false => Reading::Plausible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    struct Test {
        clock: Clock,
        start: Instant,
    }

    impl Test {
        fn new() -> Self {
            Self {
                clock: Clock::default(),
                start: Instant::now(),
            }
        }

        /// After `hours` the clock shows `shown` hours.
        fn read(&mut self, hours: u64, shown: i64, newest: Option<i64>) -> Reading {
            let time = |hours| WireTime::from_unix_us(hours * HOUR * 1_000_000).unwrap();
            let at = self.start + Duration::from_secs(hours * 3_600);
            self.clock.read(at, time(shown), newest.map(time))
        }
    }

    #[test]
    fn a_clock_far_beyond_the_newest_entry_is_doubted_for_a_day() {
        let mut test = Test::new();
        assert_eq!(test.read(0, 10_000, Some(0)), Reading::Jumped);
        // An entry by the wrong clock proves nothing.
        assert_eq!(test.read(1, 10_001, Some(10_001)), Reading::Doubtful);
        assert_eq!(test.read(23, 10_023, Some(10_001)), Reading::Doubtful);
        assert_eq!(test.read(25, 10_025, Some(10_001)), Reading::Plausible);
    }

    #[test]
    fn a_clock_that_runs_is_believed_and_so_is_one_that_was_put_right() {
        let mut test = Test::new();
        assert_eq!(test.read(0, 100, Some(0)), Reading::Plausible);
        assert_eq!(test.read(1_000, 1_100, Some(0)), Reading::Plausible);
        assert_eq!(test.read(1_001, 90_000, Some(0)), Reading::Jumped);
        assert_eq!(test.read(1_002, 1_102, Some(0)), Reading::Plausible);
        assert_eq!(Test::new().read(0, 10_000, None), Reading::Plausible);
    }
}

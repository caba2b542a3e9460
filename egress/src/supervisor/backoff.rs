//! Waits between restarts.

use std::time::Duration;

use super::Options;

/// Waits that double, within bounds.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    jitter: f64,
    /// Last wait, before the jitter.
    last: Option<Duration>,
}

impl Backoff {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            min: options.backoff_min,
            max: options.backoff_max.max(options.backoff_min),
            jitter: options.backoff_jitter,
            last: None,
        }
    }

    /// The next wait. `random` is from 0 to 1.
    pub(super) fn next(&mut self, random: f64) -> Duration {
        let doubled = self.last.unwrap_or_default().saturating_mul(2);
        let exact = doubled.clamp(self.min, self.max);
        self.last = Some(exact);
        let factor = 1.0 + self.jitter * (2.0 * random - 1.0);
        let jittered = Duration::try_from_secs_f64(exact.as_secs_f64() * factor);
        jittered.unwrap_or(exact).clamp(self.min, self.max)
    }

    /// Begins anew; returns whether there was a wait before.
    pub(super) fn reset(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(jitter: f64) -> Backoff {
        Backoff::new(&Options {
            backoff_jitter: jitter,
            ..Options::new("w")
        })
    }

    #[test]
    fn waits_double_up_to_the_longest_until_they_are_reset() {
        let mut backoff = backoff(0.0);
        assert!(!backoff.reset());
        let waits: Vec<u64> = (0..7).map(|_| backoff.next(0.7).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert!(backoff.reset());
        assert!(!backoff.reset());
        assert_eq!(backoff.next(0.7), Duration::from_secs(1));
    }

    #[test]
    fn jitter_stays_within_its_fraction_and_the_bounds() {
        for random in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let mut backoff = backoff(0.1);
            for exact in [1.0_f64, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
                let wait = backoff.next(random).as_secs_f64();
                let want = (exact * (0.9 + 0.2 * random)).clamp(1.0, 30.0);
                assert!((wait - want).abs() < 1e-6, "{random}: {wait}, not {want}");
            }
        }
    }

    #[test]
    fn jitter_is_not_doubled() {
        let mut backoff = backoff(1.0);
        let waits = [1.0, 0.0, 1.0].map(|random| backoff.next(random).as_secs());
        assert_eq!(waits, [2, 1, 8]);
    }

    #[test]
    fn odd_options_do_no_harm() {
        let mut backoff = Backoff::new(&Options {
            backoff_min: Duration::from_secs(5),
            backoff_max: Duration::ZERO,
            backoff_jitter: f64::NAN,
            ..Options::new("w")
        });
        assert_eq!(backoff.next(0.5), Duration::from_secs(5));
    }
}

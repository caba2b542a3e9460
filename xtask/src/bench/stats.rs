//! Durations, summed up.

use std::time::Duration;

use serde_json::{Value, json};

/// Measured durations of one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    /// Adds one.
    pub(super) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The least duration that `share` of the samples do not exceed; zero without samples.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank is a small positive number"
        )]
        let rank = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
    }

    /// Half of the samples are below.
    pub(super) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// What is told of them.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            samples: self.len(),
            min: self.quantile(0.0),
            median: self.median(),
            p99: self.quantile(0.99),
        }
    }
}

/// What is told of many durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) samples: usize,
    pub(super) min: Duration,
    pub(super) median: Duration,
    pub(super) p99: Duration,
}

impl Summary {
    /// The same in milliseconds.
    pub(super) fn to_json(self) -> Value {
        json!({
            "samples": self.samples,
            "min_ms": millis(self.min),
            "median_ms": millis(self.median),
            "p99_ms": millis(self.p99),
        })
    }
}

/// Milliseconds with three decimals.
pub(super) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), Duration::ZERO);
        for number in (1..=100).rev() {
            samples.add(Duration::from_millis(number));
        }
        assert_eq!(samples.quantile(0.0), Duration::from_millis(1));
        assert_eq!(samples.median(), Duration::from_millis(50));
        assert_eq!(samples.quantile(0.99), Duration::from_millis(99));
        assert_eq!(samples.quantile(1.0), Duration::from_millis(100));
    }
}

//! Statistics of durations and rates.

use std::time::Duration;

use serde_json::{Value, json};

/// Measured durations of one operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a sample.
    pub(super) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Adds the samples of another list.
    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Number of samples.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first sample alone; nothing without samples.
    pub(super) fn first(&self) -> Self {
        Self(self.0.first().copied().into_iter().collect())
    }

    /// Least duration that `share` of the samples do not exceed; zero without samples.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted
            .get(rank(sorted.len(), share))
            .copied()
            .unwrap_or_default()
    }

    /// Median; zero without samples.
    pub(super) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Summarises the samples.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            samples: self.len(),
            min: self.quantile(0.0),
            median: self.median(),
            p99: self.quantile(0.99),
        }
    }
}

/// Summary of many durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) samples: usize,
    pub(super) min: Duration,
    pub(super) median: Duration,
    pub(super) p99: Duration,
}

impl Summary {
    /// Returns the summary as JSON, in milliseconds.
    pub(super) fn to_json(self) -> Value {
        json!({
            "samples": self.samples,
            "min_ms": millis(self.min),
            "median_ms": millis(self.median),
            "p99_ms": millis(self.p99),
        })
    }
}

/// Measured rates of one operation.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    unit: &'static str,
    rates: Vec<f64>,
}

impl Rates {
    /// Creates an empty list of rates in `unit` per second.
    pub(super) fn new(unit: &'static str) -> Self {
        let rates = Vec::new();
        Self { unit, rates }
    }

    /// Adds the rate of `amount` in `time`.
    pub(super) fn add(&mut self, amount: f64, time: Duration) {
        self.rates.push(amount / time.as_secs_f64().max(1e-9));
    }

    /// Unit of the rates.
    pub(super) fn unit(&self) -> &'static str {
        self.unit
    }

    /// Least rate that `share` of them do not exceed; zero without rates.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
            .get(rank(sorted.len(), share))
            .copied()
            .unwrap_or(0.0)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rank is a small positive number"
)]
fn rank(len: usize, share: f64) -> usize {
    ((len as f64 * share).ceil() as usize).max(1) - 1
}

/// Milliseconds with three decimals.
pub(super) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Megabytes, of a million bytes each.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub(super) fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
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

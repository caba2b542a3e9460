//! Resources of a sandbox (contract: execd §11).

use serde::{Deserialize, Serialize};

/// Answer of `GET /metrics`: the sandbox's own limits and use, not the host's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// CPUs the sandbox may use, rounded up.
    pub cpu_count: u32,
    /// Share of these CPUs in use, 0 to 100.
    pub cpu_used_pct: f64,
    /// Memory limit in MiB.
    pub mem_total_mib: f64,
    /// Memory in use in MiB, without memory that the kernel can reclaim.
    pub mem_used_mib: f64,
    /// Unix milliseconds.
    pub timestamp: i64,
}

/// One sample of `GET /metrics/watch`. Clients of two generations read it, each by its own names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsSample {
    /// The names of `/metrics`.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// The older name of `cpu_used_pct`.
    pub cpu_used_percentage: f64,
    /// The older name of `mem_total_mib`.
    pub memory_total_in_mib: f64,
    /// The older name of `mem_used_mib`.
    pub memory_used_in_mib: f64,
}

impl From<Metrics> for MetricsSample {
    fn from(metrics: Metrics) -> Self {
        Self {
            metrics,
            cpu_used_percentage: metrics.cpu_used_pct,
            memory_total_in_mib: metrics.mem_total_mib,
            memory_used_in_mib: metrics.mem_used_mib,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_carries_both_sets_of_names() {
        let metrics = Metrics {
            cpu_count: 2,
            cpu_used_pct: 12.5,
            mem_total_mib: 512.0,
            mem_used_mib: 64.5,
            timestamp: 7,
        };
        let json = serde_json::to_value(MetricsSample::from(metrics)).unwrap();
        for (short, long) in [
            ("cpu_used_pct", "cpu_used_percentage"),
            ("mem_total_mib", "memory_total_in_mib"),
            ("mem_used_mib", "memory_used_in_mib"),
        ] {
            assert_eq!(json[short], json[long]);
        }
        assert_eq!(json["cpu_count"], 2);
        assert_eq!(json["timestamp"], 7);
    }
}

//! Resources of the whole machine, as the kernel reports them in `/proc`.

use std::{fs, path::Path, time::Duration};

/// Clock ticks per second in `/proc/stat`, the same on every supported architecture.
const TICKS_PER_SECOND: u64 = 100;

/// Memory of the machine in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What programs can get without swapping.
    pub available: u64,
}

impl Memory {
    /// Bytes that are in use.
    #[must_use]
    pub fn used(self) -> u64 {
        self.total.saturating_sub(self.available)
    }
}

/// Parses `meminfo` in the folder `/proc`. `None` if the kernel does not report it.
#[must_use]
pub fn memory(proc: &Path) -> Option<Memory> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory {
        total: bytes("MemTotal:")?,
        available: bytes("MemAvailable:")?,
    })
}

/// CPU time that the whole machine has used, from `stat` in the folder `/proc`.
#[must_use]
pub fn cpu_time(proc: &Path) -> Option<Duration> {
    cpu_times(proc).map(|times| times.used)
}

/// CPU time of the whole machine since its start, of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time in which a processor worked.
    pub used: Duration,
    /// All time.
    pub total: Duration,
}

impl CpuTimes {
    /// Share of the time since `earlier` in which processors worked, from 0 to 1. `None` if no time
    /// has passed.
    #[must_use]
    pub fn share_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.saturating_sub(earlier.total);
        let used = self.used.saturating_sub(earlier.used);
        (!total.is_zero()).then(|| used.div_duration_f64(total).min(1.0))
    }
}

/// The same with the time in which the machine was idle.
#[must_use]
pub fn cpu_times(proc: &Path) -> Option<CpuTimes> {
    let text = fs::read_to_string(proc.join("stat")).ok()?;
    let mut fields = text.lines().next()?.split_ascii_whitespace();
    if fields.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let total: u64 = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().take(8).skip(3).take(2).sum();
    let time = |ticks: u64| Duration::from_millis(ticks * (1000 / TICKS_PER_SECOND));
    Some(CpuTimes {
        used: time(total - idle),
        total: time(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!((memory(place.path()), cpu_time(place.path())), (None, None));
        let meminfo = "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n";
        fs::write(place.path().join("meminfo"), meminfo).unwrap();
        let stat = "cpu  10 20 30 1000 500 1 2 3 4 5\ncpu0 1 2 3\n";
        fs::write(place.path().join("stat"), stat).unwrap();
        let want = Memory {
            total: 2 << 20,
            available: 1 << 20,
        };
        assert_eq!(memory(place.path()), Some(want));
        assert_eq!(cpu_time(place.path()), Some(Duration::from_millis(660)));
        let times = cpu_times(place.path()).unwrap();
        assert_eq!(times.total, Duration::from_millis(15_660));
    }

    #[test]
    fn a_share_is_that_of_the_time_between() {
        let at = |used, total| CpuTimes {
            used: Duration::from_secs(used),
            total: Duration::from_secs(total),
        };
        assert_eq!(at(30, 200).share_since(at(10, 100)), Some(0.2));
        assert_eq!(at(30, 200).share_since(at(30, 200)), None);
        assert_eq!(at(9, 200).share_since(at(10, 100)), Some(0.0));
    }
}

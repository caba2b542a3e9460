//! Resources of the whole machine, used where no control group reports them.

use std::{fs, path::Path, time::Duration};

/// Clock ticks per second in `/proc/stat`, the same on every supported architecture.
const TICKS_PER_SECOND: u64 = 100;

/// Memory of the machine in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) available: u64,
}

impl Memory {
    pub(super) fn used(self) -> u64 {
        self.total.saturating_sub(self.available)
    }
}

/// Parses `/proc/meminfo`.
pub(super) fn memory(proc: &Path) -> Option<Memory> {
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

/// CPU time used by the whole machine, from `/proc/stat`.
pub(super) fn cpu_time(proc: &Path) -> Option<Duration> {
    let text = fs::read_to_string(proc.join("stat")).ok()?;
    let mut fields = text.lines().next()?.split_ascii_whitespace();
    if fields.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let busy: u64 = ticks.iter().take(8).sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>();
    Some(Duration::from_millis(busy * (1000 / TICKS_PER_SECOND)))
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
    }
}

//! Resource meter: converts the kernel's counters to the values that clients read.

use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use osb_protocol::execd::metrics::Metrics;
use osb_service::host;

use super::{Roots, cgroup::Cgroup};

/// Shortest interval that yields a meaningful CPU share.
const SHORTEST: Duration = Duration::from_millis(500);
const MIB: f64 = (1 << 20) as f64;

/// Reads resources. Remembers earlier counters, so that a reading need not wait for a second
/// sample.
#[derive(Debug)]
pub struct Meter {
    roots: Roots,
    cgroup: Cgroup,
    earlier: Mutex<[Count; 2]>,
}

/// CPU time used up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    at: Instant,
    used: Duration,
}

/// Error for unreadable kernel files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be read")]
pub(super) struct Unreadable(&'static str);

impl Default for Meter {
    fn default() -> Self {
        Self::new(Roots::default())
    }
}

impl Meter {
    /// Creates a meter for the control group of this process.
    #[must_use]
    pub fn new(roots: Roots) -> Self {
        let cgroup = Cgroup::find(&roots);
        let zero = Count {
            at: Instant::now(),
            used: Duration::ZERO,
        };
        let mut meter = Self {
            roots,
            cgroup,
            earlier: Mutex::new([zero; 2]),
        };
        let now = meter.count();
        meter.earlier = Mutex::new([now; 2]);
        meter
    }

    /// Bytes of memory available to the sandbox: the group's limit, but at most the memory of the
    /// machine. `None` if the kernel does not report it.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let host = host::memory(&self.roots.proc).map(|memory| memory.total);
        let limits = [self.cgroup.memory_limit(), host];
        limits.into_iter().flatten().min()
    }

    /// Remembers the current counter. Called every few seconds.
    pub(super) fn remember(&self) {
        let now = self.count();
        let mut earlier = self.earlier.lock().expect("no holder of this lock panics");
        *earlier = [earlier[1], now];
    }

    /// CPU time up to now.
    pub(crate) fn count(&self) -> Count {
        let used = self
            .cgroup
            .cpu_time()
            .or_else(|| host::cpu_time(&self.roots.proc));
        Count {
            at: Instant::now(),
            used: used.unwrap_or_default(),
        }
    }

    /// Reads resources since the last remembered counter.
    pub(super) fn read(&self) -> Result<Metrics, Unreadable> {
        let earlier = *self.earlier.lock().expect("no holder of this lock panics");
        let since = if earlier[1].at.elapsed() < SHORTEST {
            earlier[0]
        } else {
            earlier[1]
        };
        self.read_since(since).map(|(metrics, _)| metrics)
    }

    /// Number of processors available to the sandbox.
    fn cpus(&self) -> f64 {
        let allowed = available_cpus();
        let limit = self.cgroup.cpus();
        limit.map_or(allowed, |limit| limit.min(allowed))
    }

    /// CPU use since a counter, in percent of the available processors, and the counter at the end
    /// of the interval.
    pub(crate) fn cpu_since(&self, since: Count) -> (f64, Count) {
        let now = self.count();
        // Without a group the counter covers all processors of the machine.
        let elapsed = now.at.duration_since(since.at).as_secs_f64() * self.cpus();
        let used = now.used.saturating_sub(since.used).as_secs_f64();
        let share = if elapsed > 0.0 {
            used / elapsed * 100.0
        } else {
            0.0
        };
        (share.clamp(0.0, 100.0), now)
    }

    /// Bytes of memory in use. `None` if the kernel does not report it.
    pub(crate) fn memory_used(&self) -> Option<u64> {
        let of_host = || host::memory(&self.roots.proc).map(|memory| memory.used());
        self.cgroup.memory_used().or_else(of_host)
    }

    /// Root of `/proc`, which describes processes and the network.
    pub(crate) fn proc(&self) -> &Path {
        &self.roots.proc
    }

    /// Reads resources since a counter, and returns the counter at the end of the interval.
    pub(super) fn read_since(&self, since: Count) -> Result<(Metrics, Count), Unreadable> {
        let (share, now) = self.cpu_since(since);
        let host = host::memory(&self.roots.proc).ok_or(Unreadable("/proc/meminfo"))?;
        let total = self
            .cgroup
            .memory_limit()
            .map_or(host.total, |limit| limit.min(host.total));
        let of_group = self.cgroup.memory_used();
        let used = of_group.unwrap_or_else(|| host.used()).min(total);
        let metrics = Metrics {
            cpu_count: whole(self.cpus()),
            cpu_used_pct: rounded(share),
            mem_total_mib: rounded(mib(total)),
            mem_used_mib: rounded(mib(used)),
            timestamp: Timestamp::now().as_millisecond(),
        };
        Ok((metrics, now))
    }
}

/// Number of processors in the affinity mask of this process.
fn available_cpus() -> f64 {
    let allowed = rustix::thread::sched_getaffinity(None).map(|set| set.count());
    f64::from(allowed.unwrap_or(1).max(1))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of processors, at least a thousandth"
)]
fn whole(cpus: f64) -> u32 {
    (cpus.ceil() as u32).max(1)
}

#[expect(clippy::cast_precision_loss, reason = "exact up to eight petabytes")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

/// Three decimals suffice for people and save bytes.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn limits_of_the_group_win_over_the_machine() {
        let place = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: place.path().join("proc"),
            cgroup: place.path().join("cg"),
        };
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/meminfo",
            "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n",
        );
        write("proc/self/cgroup", "0::/\n");
        write("cg/cgroup.controllers", "");
        write("cg/cpu.max", "50000 100000\n");
        write("cg/cpu.stat", "usage_usec 0\n");
        write("cg/memory.max", "536870912\n");
        write("cg/memory.current", "134217728\n");
        let meter = Meter::new(roots);
        let hour_ago = Count {
            at: Instant::now(),
            used: Duration::ZERO,
        };
        // Far more than half a processor was used since then.
        write("cg/cpu.stat", "usage_usec 3600000000\n");
        let (metrics, _) = meter.read_since(hour_ago).unwrap();
        assert_eq!(metrics.cpu_count, 1);
        assert!((metrics.cpu_used_pct - 100.0).abs() < f64::EPSILON);
        assert!((metrics.mem_total_mib - 512.0).abs() < f64::EPSILON);
        assert!((metrics.mem_used_mib - 128.0).abs() < f64::EPSILON);
    }

    #[test]
    fn files_of_this_machine_are_readable() {
        let meter = Meter::default();
        meter.remember();
        let metrics = meter.read().unwrap();
        assert!(metrics.cpu_count > 0 && metrics.mem_total_mib > 0.0);
        assert!((0.0..=100.0).contains(&metrics.cpu_used_pct));
        assert!((0.0..=metrics.mem_total_mib).contains(&metrics.mem_used_mib));
        let nowhere = Roots {
            proc: "/nonexistent".into(),
            cgroup: "/nonexistent".into(),
        };
        assert!(Meter::new(nowhere).read().is_err());
    }
}

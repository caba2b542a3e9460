//! Control group of this process, version 1 or 2.
//!
//! In a container the group's own directory is usually mounted as the root of the hierarchy, while
//! `/proc/self/cgroup` may name a path of the host. So the named path is tried first, then the
//! root. A limit may be set on any directory between the two; the smallest one applies.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::Roots;

/// Values from here on mean "unlimited" in version 1.
const V1_NO_LIMIT: u64 = 1 << 62;

/// Directories of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cgroup {
    cpu: Option<Controller>,
    cpuacct: Option<Controller>,
    memory: Option<Controller>,
}

/// Directories of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Controller {
    unified: bool,
    root: PathBuf,
    /// At or below the root.
    group: PathBuf,
}

impl Cgroup {
    /// Locates the group.
    pub(super) fn find(roots: &Roots) -> Self {
        let own = fs::read_to_string(roots.proc.join("self/cgroup")).unwrap_or_default();
        if roots.cgroup.join("cgroup.controllers").exists() {
            let path = own.lines().find_map(|line| line.strip_prefix("0::"));
            let at = |file| Controller::at(true, &roots.cgroup, path.unwrap_or("/"), file);
            let cpu = at("cpu.stat");
            return Self {
                cpuacct: cpu.clone(),
                cpu,
                memory: at("memory.current"),
            };
        }
        let v1 = |name: &str, file: &str| {
            let path = own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let mut names = fields.next()?.split(',');
                names
                    .any(|given| given == name)
                    .then(|| fields.next())
                    .flatten()
            });
            Controller::at(false, &roots.cgroup.join(name), path.unwrap_or("/"), file)
        };
        Self {
            cpu: v1("cpu", "cpu.cfs_quota_us"),
            cpuacct: v1("cpuacct", "cpuacct.usage"),
            memory: v1("memory", "memory.usage_in_bytes"),
        }
    }

    /// CPU limit in processors, if set.
    pub(super) fn cpus(&self) -> Option<f64> {
        let cpu = self.cpu.as_ref()?;
        let limits = cpu.up_to_root().filter_map(|group| {
            let (quota, period) = if cpu.unified {
                let max = fs::read_to_string(group.join("cpu.max")).ok()?;
                let (quota, period) = max.trim().split_once(' ')?;
                (quota.parse().ok()?, period.parse().ok()?)
            } else {
                (
                    number(&group.join("cpu.cfs_quota_us"))?,
                    number(&group.join("cpu.cfs_period_us"))?,
                )
            };
            let (quota, period): (i32, i32) = (quota, period);
            (quota > 0 && period > 0).then(|| f64::from(quota) / f64::from(period))
        });
        limits.min_by(f64::total_cmp)
    }

    /// Total CPU time used.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let cpu = self.cpuacct.as_ref()?;
        if cpu.unified {
            stat(&cpu.group.join("cpu.stat"), "usage_usec").map(Duration::from_micros)
        } else {
            number(&cpu.group.join("cpuacct.usage")).map(Duration::from_nanos)
        }
    }

    /// Memory limit in bytes, if set.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let file = if memory.unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let limits = memory
            .up_to_root()
            .filter_map(|group| number(&group.join(file)));
        limits.filter(|limit| *limit < V1_NO_LIMIT).min()
    }

    /// Memory use in bytes, without file pages that the kernel reclaims first.
    pub(super) fn memory_used(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let (used, inactive) = if memory.unified {
            ("memory.current", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file")
        };
        let used: u64 = number(&memory.group.join(used))?;
        let inactive = stat(&memory.group.join("memory.stat"), inactive).unwrap_or(0);
        Some(used.saturating_sub(inactive))
    }
}

impl Controller {
    /// Uses the named path if it contains `file`, else the root.
    fn at(unified: bool, root: &Path, path: &str, file: &str) -> Option<Self> {
        let named = root.join(path.trim_start_matches('/'));
        let places = [named, root.to_owned()];
        let group = places.into_iter().find(|group| group.join(file).exists())?;
        Some(Self {
            unified,
            root: root.to_owned(),
            group,
        })
    }

    /// Directory of the group and its ancestors up to the root.
    fn up_to_root(&self) -> impl Iterator<Item = &Path> {
        self.group
            .ancestors()
            .take_while(|group| group.starts_with(&self.root))
    }
}

/// Number in a file; `None` also for `max`.
fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Value of one line in a file of names and numbers.
fn stat(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let place = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = Roots {
            proc: place.path().join("proc"),
            cgroup: place.path().join("cg"),
        };
        let cgroup = Cgroup::find(&roots);
        (place, cgroup)
    }

    #[test]
    fn version_2_in_a_container() {
        let (_place, cgroup) = fixture(&[
            ("proc/self/cgroup", "0::/\n"),
            ("cg/cgroup.controllers", "cpu memory\n"),
            ("cg/cpu.max", "150000 100000\n"),
            ("cg/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("cg/memory.max", "536870912\n"),
            ("cg/memory.current", "1000000\n"),
            (
                "cg/memory.stat",
                "anon 5\ninactive_file 400000\nactive_file 7\n",
            ),
        ]);
        assert_eq!(cgroup.cpus(), Some(1.5));
        assert_eq!(cgroup.cpu_time(), Some(Duration::from_millis(2500)));
        assert_eq!(cgroup.memory_limit(), Some(536_870_912));
        assert_eq!(cgroup.memory_used(), Some(600_000));
    }

    #[test]
    fn version_2_below_a_limited_slice() {
        let (_place, cgroup) = fixture(&[
            ("proc/self/cgroup", "0::/slice/leaf\n"),
            ("cg/cgroup.controllers", "cpu memory\n"),
            ("cg/cpu.stat", "usage_usec 1\n"),
            ("cg/slice/cpu.max", "50000 100000\n"),
            ("cg/slice/memory.max", "1000\n"),
            ("cg/slice/leaf/cpu.max", "max 100000\n"),
            ("cg/slice/leaf/cpu.stat", "usage_usec 7\n"),
            ("cg/slice/leaf/memory.max", "max\n"),
            ("cg/slice/leaf/memory.current", "10\n"),
        ]);
        assert_eq!(cgroup.cpus(), Some(0.5));
        assert_eq!(cgroup.cpu_time(), Some(Duration::from_micros(7)));
        assert_eq!(
            (cgroup.memory_limit(), cgroup.memory_used()),
            (Some(1000), Some(10))
        );
    }

    #[test]
    fn version_1_with_a_path_of_the_host() {
        let (_place, cgroup) = fixture(&[
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
            ),
            ("cg/cpu/cpu.cfs_quota_us", "200000\n"),
            ("cg/cpu/cpu.cfs_period_us", "100000\n"),
            ("cg/cpuacct/cpuacct.usage", "3000000000\n"),
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory/memory.usage_in_bytes", "100\n"),
            (
                "cg/memory/memory.stat",
                "inactive_file 99\ntotal_inactive_file 30\n",
            ),
        ]);
        assert_eq!(cgroup.cpus(), Some(2.0));
        assert_eq!(cgroup.cpu_time(), Some(Duration::from_secs(3)));
        assert_eq!(
            (cgroup.memory_limit(), cgroup.memory_used()),
            (None, Some(70))
        );
    }

    #[test]
    fn missing_files_yield_no_values() {
        let (_place, cgroup) = fixture(&[]);
        assert_eq!(cgroup, Cgroup::default());
        assert_eq!((cgroup.cpus(), cgroup.cpu_time()), (None, None));
        assert_eq!((cgroup.memory_limit(), cgroup.memory_used()), (None, None));
    }
}

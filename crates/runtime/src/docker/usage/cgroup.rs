//! Resource use from the files of a container's cgroups: version 1, version 2, or both (hybrid).

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::Usage;

/// Largest file that is read, in bytes. `memory.stat` takes about 2 KiB.
const FILE: usize = 16 << 10;

/// Where the cgroups of each controller are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchy {
    cpu: Option<Mount>,
    memory: Option<Mount>,
    pids: Option<Mount>,
    io: Option<Mount>,
    proc: PathBuf,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    root: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Hierarchy {
    /// Reads the mounts of the kernel (`/proc/self/mountinfo`).
    pub(super) fn of_mounts(mountinfo: &str) -> Self {
        let mut found = Self {
            proc: "/proc".into(),
            ..Self::default()
        };
        let mut unified = None;
        for line in mountinfo.lines() {
            let Some((place, kind)) = line.split_once(" - ") else {
                continue;
            };
            let Some(root) = place.split(' ').nth(4) else {
                continue;
            };
            let mut kind = kind.split(' ');
            let mount = |version| Mount {
                root: root.into(),
                version,
            };
            match kind.next() {
                Some("cgroup2") => unified = Some(mount(Version::Two)),
                Some("cgroup") => {
                    for option in kind.nth(1).unwrap_or_default().split(',') {
                        let controller = match option {
                            "cpuacct" => &mut found.cpu,
                            "memory" => &mut found.memory,
                            "pids" => &mut found.pids,
                            "blkio" => &mut found.io,
                            _ => continue,
                        };
                        *controller = Some(mount(Version::One));
                    }
                }
                _ => {}
            }
        }
        // A controller belongs to version 1 where that is mounted.
        for controller in [
            &mut found.cpu,
            &mut found.memory,
            &mut found.pids,
            &mut found.io,
        ] {
            if controller.is_none() {
                controller.clone_from(&unified);
            }
        }
        found
    }

    /// Finds the files of a container; `None` if its cgroups are not below these mounts.
    pub(super) fn find(&self, container: &str, has_network: bool) -> Option<ContainerFiles> {
        // The two drivers of engines name cgroups differently.
        let names = [
            format!("docker/{container}"),
            format!("system.slice/docker-{container}.scope"),
        ];
        let cpu = self.cpu.as_ref()?;
        let name = names
            .into_iter()
            .find(|name| cpu.root.join(name).is_dir())?;
        let place = |mount: &Option<Mount>| {
            let mount = mount.as_ref()?;
            Some(Mount {
                root: mount.root.join(&name),
                version: mount.version,
            })
        };
        Some(ContainerFiles {
            cpu: place(&self.cpu)?,
            memory: place(&self.memory)?,
            pids: place(&self.pids),
            io: place(&self.io),
            network: has_network.then(|| NetworkFile {
                proc: self.proc.clone(),
                path: None,
            }),
        })
    }
}

/// Files of one container.
#[derive(Debug)]
pub(super) struct ContainerFiles {
    cpu: Mount,
    memory: Mount,
    pids: Option<Mount>,
    io: Option<Mount>,
    network: Option<NetworkFile>,
}

impl ContainerFiles {
    /// Reads the present use; `None` if the container has ended.
    pub(super) fn read(&mut self) -> Option<Usage> {
        let mut buffer = Buffer(Vec::with_capacity(FILE));
        let cpu_ns = match self.cpu.version {
            Version::One => number(buffer.read(&self.cpu.root.join("cpuacct.usage"))?)?,
            Version::Two => {
                let text = buffer.read(&self.cpu.root.join("cpu.stat"))?;
                field(text, "usage_usec")? * 1000
            }
        };
        let (used, inactive) = match self.memory.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file"),
            Version::Two => ("memory.current", "inactive_file"),
        };
        let used = number(buffer.read(&self.memory.root.join(used))?)?;
        let text = buffer.read(&self.memory.root.join("memory.stat"))?;
        let inactive = field(text, inactive).unwrap_or_default();
        let mut processes = |mount: &Mount| number(buffer.read(&mount.root.join("pids.current"))?);
        let processes = self.pids.as_ref().and_then(&mut processes);
        let io = self.io.as_ref().and_then(|mount| match mount.version {
            Version::One => {
                let file = mount.root.join("blkio.throttle.io_service_bytes_recursive");
                let older = mount.root.join("blkio.throttle.io_service_bytes");
                let text = match buffer.read(&file).is_some() {
                    true => buffer.text(),
                    false => buffer.read(&older),
                };
                text.map(io_of_version_1)
            }
            Version::Two => buffer
                .read(&mount.root.join("io.stat"))
                .map(io_of_version_2),
        });
        let pids = &self.cpu.root;
        let network = self.network.as_mut();
        let network = network.and_then(|network| network.read(pids, &mut buffer));
        Some(Usage {
            cpu_ns,
            memory_bytes: used.saturating_sub(inactive),
            processes: processes.unwrap_or_default(),
            received_bytes: network.map(|(received, _)| received),
            sent_bytes: network.map(|(_, sent)| sent),
            read_bytes: io.map(|(read, _)| read),
            written_bytes: io.map(|(_, written)| written),
        })
    }
}

/// `net/dev` of a process in the container's network.
#[derive(Debug)]
struct NetworkFile {
    proc: PathBuf,
    path: Option<PathBuf>,
}

impl NetworkFile {
    fn read(&mut self, cgroup: &Path, buffer: &mut Buffer) -> Option<(u64, u64)> {
        if let Some(path) = &self.path
            && let Some(text) = buffer.read(path)
        {
            return Some(network(text));
        }
        // The process that was known has ended.
        let processes = buffer.read(&cgroup.join("cgroup.procs"))?;
        let first = processes.lines().next()?;
        let path = self.proc.join(first).join("net/dev");
        let counted = buffer.read(&path).map(network);
        self.path = counted.map(|_| path);
        counted
    }
}

/// The contents of the file that was read last.
struct Buffer(Vec<u8>);

impl Buffer {
    fn read(&mut self, path: &Path) -> Option<&str> {
        self.0.clear();
        let file = File::open(path).ok()?;
        let most = u64::try_from(FILE).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut self.0).ok()?;
        self.text()
    }

    fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Value of a line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = values.find(|(key, _)| *key == name)?;
    number(value)
}

/// Sums lines such as `8:0 Read 4096`.
fn io_of_version_1(text: &str) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in text.lines() {
        let mut words = line.split(' ').skip(1);
        let (operation, bytes) = (words.next(), words.next().and_then(number));
        match (operation, bytes) {
            (Some("Read"), Some(bytes)) => sums.0 += bytes,
            (Some("Write"), Some(bytes)) => sums.1 += bytes,
            _ => {}
        }
    }
    sums
}

/// Sums lines such as `8:0 rbytes=4096 wbytes=0 rios=1`.
fn io_of_version_2(text: &str) -> (u64, u64) {
    let sum = |name: &str| {
        let values = text.split_whitespace().filter_map(|word| {
            let (key, value) = word.split_once('=')?;
            (key == name).then(|| number(value))?
        });
        values.sum()
    };
    (sum("rbytes"), sum("wbytes"))
}

/// Sums what interfaces other than the loopback received and sent.
fn network(text: &str) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in text.lines() {
        let Some((name, counters)) = line.split_once(':') else {
            continue;
        };
        if name.trim() == "lo" {
            continue;
        }
        let counters: Vec<u64> = counters.split_whitespace().filter_map(number).collect();
        sums.0 += counters.first().copied().unwrap_or_default();
        sums.1 += counters.get(8).copied().unwrap_or_default();
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NET_DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
        lo:  999       1    0    0    0     0          0         0      999       1    0    0\n  \
        eth0: 1000      12    0    0    0     0          0         0      500       9    0    0\n";

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Lays out a hierarchy with one container.
    fn hierarchy(folder: &Path, mounts: &str, files: &[(&str, &str)]) -> Hierarchy {
        for (file, text) in files {
            write(&folder.join(file), text);
        }
        write(&folder.join("proc/42/net/dev"), NET_DEV);
        let mounts = mounts.replace("ROOT", &folder.display().to_string());
        Hierarchy {
            proc: folder.join("proc"),
            ..Hierarchy::of_mounts(&mounts)
        }
    }

    const USAGE: Usage = Usage {
        cpu_ns: 5_000_000,
        memory_bytes: 700,
        processes: 3,
        received_bytes: Some(1000),
        sent_bytes: Some(500),
        read_bytes: Some(4096),
        written_bytes: Some(12),
    };

    const VERSION_1: [(&str, &str); 6] = [
        ("cpuacct/docker/c/cpuacct.usage", "5000000\n"),
        ("cpuacct/docker/c/cgroup.procs", "42\n43\n"),
        ("memory/docker/c/memory.usage_in_bytes", "900\n"),
        (
            "memory/docker/c/memory.stat",
            "cache 1\ninactive_file 5\ntotal_inactive_file 200\n",
        ),
        ("pids/docker/c/pids.current", "3\n"),
        (
            "blkio/docker/c/blkio.throttle.io_service_bytes",
            "8:0 Read 4000\n8:16 Read 96\n8:0 Write 12\n8:0 Total 4108\nTotal 4108\n",
        ),
    ];

    const MOUNTS_1: &str = "\
        33 31 0:30 / ROOT/cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / ROOT/memory rw,relatime - cgroup cgroup rw,memory\n\
        39 31 0:36 / ROOT/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n\
        38 31 0:35 / ROOT/blkio rw,relatime - cgroup cgroup rw,blkio\n\
        40 31 0:37 / ROOT/systemd rw,relatime - cgroup cgroup rw,name=systemd\n";

    const VERSION_2: [(&str, &str); 6] = [
        (
            "unified/system.slice/docker-c.scope/cpu.stat",
            "usage_usec 5000\nuser_usec 1\n",
        ),
        ("unified/system.slice/docker-c.scope/cgroup.procs", "42\n"),
        (
            "unified/system.slice/docker-c.scope/memory.current",
            "900\n",
        ),
        (
            "unified/system.slice/docker-c.scope/memory.stat",
            "anon 1\ninactive_file 200\n",
        ),
        ("unified/system.slice/docker-c.scope/pids.current", "3\n"),
        (
            "unified/system.slice/docker-c.scope/io.stat",
            "8:0 rbytes=4000 wbytes=12 rios=1\n8:16 rbytes=96 wbytes=0 rios=1\n",
        ),
    ];

    const MOUNT_2: &str = "41 31 0:38 / ROOT/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn every_version_of_cgroups_is_read() {
        let hybrid = format!("{MOUNTS_1}{MOUNT_2}");
        for (mounts, files) in [
            (MOUNTS_1, VERSION_1),
            (MOUNT_2, VERSION_2),
            (hybrid.as_str(), VERSION_1),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let hierarchy = hierarchy(folder.path(), mounts, &files);
            let mut container = hierarchy.find("c", true).expect(mounts);
            assert_eq!(container.read(), Some(USAGE), "{mounts}");
            assert_eq!(container.read(), Some(USAGE), "again, without the pids");
            assert!(hierarchy.find("d", true).is_none());
        }
    }

    #[test]
    fn an_ended_container_has_no_use_and_another_process_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = hierarchy(folder.path(), MOUNTS_1, &VERSION_1);
        let mut container = hierarchy.find("c", true).unwrap();
        container.read().unwrap();
        fs::remove_dir_all(folder.path().join("proc/42")).unwrap();
        write(&folder.path().join("proc/7/net/dev"), NET_DEV);
        write(&folder.path().join("cpuacct/docker/c/cgroup.procs"), "7\n");
        assert_eq!(container.read(), Some(USAGE));
        let mut host = hierarchy.find("c", false).unwrap();
        assert_eq!(host.read().unwrap().received_bytes, None);
        fs::remove_dir_all(folder.path().join("cpuacct/docker/c")).unwrap();
        assert_eq!(container.read(), None);
    }
}

//! What the engine's host has.

use std::time::Duration;

use async_trait::async_trait;
use osb_protocol::WireTime;
use tokio::time::timeout;

use super::{DockerRuntime, engine::bounded, error};
use crate::{Capacity, DiskSpace, HostCapacity, RuntimeError};

/// What Linux says about the memory of the host that this process runs on.
const MEMINFO: &str = "/proc/meminfo";
/// Longest time that a file system may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

#[async_trait]
impl Capacity for DockerRuntime {
    async fn read_capacity(&self) -> Result<HostCapacity, RuntimeError> {
        let docker = self.docker()?;
        let info = bounded(docker, docker.info()).await;
        let info = info.map_err(|error| error::other("describe the engine", &error))?;
        let memory_bytes = unsigned(info.mem_total);
        let own = tokio::fs::read_to_string(MEMINFO).await.unwrap_or_default();
        Ok(HostCapacity {
            name: info.name.unwrap_or_default(),
            engine: ["Docker", &info.server_version.unwrap_or_default()]
                .join(" ")
                .trim_end()
                .to_owned(),
            processors: u32::try_from(unsigned(info.ncpu)).unwrap_or(u32::MAX),
            memory_bytes,
            available_bytes: available(&own, memory_bytes),
            disk: match info.docker_root_dir {
                Some(root) if is_same_host(&own, memory_bytes) => space(root).await,
                _ => None,
            },
            clock_ms: info.system_time.as_deref().and_then(unix_ms),
        })
    }
}

/// Space of the file system of a folder on this host.
async fn space(folder: String) -> Option<DiskSpace> {
    let read = move || rustix::fs::statvfs(folder).ok();
    // A file system on a network may hang.
    let read = timeout(PATIENCE, tokio::task::spawn_blocking(read)).await;
    let found = read.ok()?.ok()??;
    Some(DiskSpace {
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Milliseconds since 1970 of a time as engines write it.
fn unix_ms(time: &str) -> Option<i64> {
    WireTime::parse(time).ok().map(WireTime::unix_ms)
}

fn unsigned(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or_default()
}

/// An amount of this process's `/proc/meminfo`, in bytes.
fn amount(meminfo: &str, name: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// Whether the host of this process has this much memory: the engine may run elsewhere.
fn is_same_host(meminfo: &str, memory_bytes: u64) -> bool {
    amount(meminfo, "MemTotal") == Some(memory_bytes)
}

/// The available memory, if this process runs on a host with this much memory.
fn available(meminfo: &str, memory_bytes: u64) -> Option<u64> {
    amount(meminfo, "MemAvailable").filter(|_| is_same_host(meminfo, memory_bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[tokio::test]
    async fn the_host_is_described_by_its_engine() {
        let engine = FakeEngine::start(|_| {
            let info = json!({
                "Name": "box", "ServerVersion": "28.1", "NCPU": 4, "MemTotal": 1_048_577,
                "DockerRootDir": "/", "SystemTime": "2026-11-25T18:20:03.123456789Z",
            });
            (200, info.to_string())
        })
        .await;
        let read = engine.runtime().read_capacity().await.unwrap();
        let wanted = HostCapacity {
            name: "box".to_owned(),
            engine: "Docker 28.1".to_owned(),
            processors: 4,
            memory_bytes: 1_048_577,
            available_bytes: None,
            disk: None,
            clock_ms: Some(1_795_630_803_123),
        };
        assert_eq!(read, wanted, "no host has that much memory");
    }

    #[tokio::test]
    async fn the_disk_of_the_engine_is_read_on_the_same_host_only() {
        let own = tokio::fs::read_to_string(MEMINFO).await.unwrap();
        let memory = amount(&own, "MemTotal").unwrap();
        let engine = FakeEngine::start(move |_| {
            let info = json!({ "MemTotal": memory, "DockerRootDir": "/" });
            (200, info.to_string())
        })
        .await;
        let disk = engine.runtime().read_capacity().await.unwrap().disk;
        let disk = disk.expect("this host's root can be read");
        assert!(disk.total > 0 && disk.free <= disk.total, "{disk:?}");
        assert!(is_same_host(&own, memory) && !is_same_host(&own, memory + 1));
        assert_eq!(space("/no/such/folder".to_owned()).await, None);
    }

    #[test]
    fn memory_of_another_host_is_not_taken_for_the_engines() {
        let meminfo = "MemTotal:       1024 kB\nMemFree:  1 kB\nMemAvailable:    512 kB\n";
        assert_eq!(available(meminfo, 1_048_576), Some(524_288));
        assert_eq!(available(meminfo, 2_097_152), None);
        assert_eq!(available("", 0), None);
        assert_eq!(available("MemTotal: many kB\n", 0), None);
    }
}

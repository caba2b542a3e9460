//! What the engine's host has.

use async_trait::async_trait;

use super::{DockerRuntime, engine::bounded, error};
use crate::{Capacity, HostCapacity, RuntimeError};

/// What Linux says about the memory of the host that this process runs on.
const MEMINFO: &str = "/proc/meminfo";

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
        })
    }
}

fn unsigned(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or_default()
}

/// The available memory by this process's `/proc/meminfo`, if that is of a host with this much memory:
/// the engine may run elsewhere.
fn available(meminfo: &str, memory_bytes: u64) -> Option<u64> {
    let read = |name: &str| {
        let mut lines = meminfo.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        kibibytes.checked_mul(1_024)
    };
    let is_same_host = read("MemTotal")? == memory_bytes;
    read("MemAvailable").filter(|_| is_same_host)
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
        };
        assert_eq!(read, wanted, "no host has that much memory");
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

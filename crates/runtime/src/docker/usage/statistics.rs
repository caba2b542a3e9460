//! Resource use as the engine reports it.

use bollard::{
    models::{ContainerBlkioStatEntry, ContainerStatsResponse},
    query_parameters::StatsOptionsBuilder,
};
use futures::TryStreamExt;

use crate::{
    Usage,
    docker::{DockerRuntime, engine::bounded},
};

impl DockerRuntime {
    /// Asks the engine for the use of a container. `None` for one that does not run.
    pub(super) async fn ask_usage(&self, container: &str) -> Option<Usage> {
        let docker = self.docker().ok()?;
        // Without `one-shot` the engine waits for a second sample.
        let options = StatsOptionsBuilder::default()
            .stream(false)
            .one_shot(true)
            .build();
        let mut samples = docker.stats(container, Some(options));
        let sample = bounded(docker, async move { samples.try_next().await }).await;
        of_sample(sample.ok()??)
    }
}

fn of_sample(sample: ContainerStatsResponse) -> Option<Usage> {
    let memory = sample.memory_stats.unwrap_or_default();
    // An ended container has statistics without numbers.
    let used = memory.usage?;
    let counts = memory.stats.unwrap_or_default();
    let inactive = counts.get("total_inactive_file");
    let inactive = inactive.or_else(|| counts.get("inactive_file")).copied();
    let cpu = sample.cpu_stats.and_then(|cpu| cpu.cpu_usage);
    let networks = sample.networks.filter(|networks| !networks.is_empty());
    let sum = |count: fn(&bollard::models::ContainerNetworkStats) -> Option<u64>| {
        let networks = networks.as_ref()?.values();
        Some(networks.filter_map(count).sum())
    };
    let io = sample
        .blkio_stats
        .and_then(|io| io.io_service_bytes_recursive);
    Some(Usage {
        cpu_ns: cpu.and_then(|cpu| cpu.total_usage).unwrap_or_default(),
        memory_bytes: used.saturating_sub(inactive.unwrap_or_default()),
        processes: sample
            .pids_stats
            .and_then(|pids| pids.current)
            .unwrap_or_default(),
        received_bytes: sum(|network| network.rx_bytes),
        sent_bytes: sum(|network| network.tx_bytes),
        read_bytes: io.as_deref().map(|io| total(io, "read")),
        written_bytes: io.as_deref().map(|io| total(io, "write")),
    })
}

fn total(entries: &[ContainerBlkioStatEntry], operation: &str) -> u64 {
    let of_operation = entries.iter().filter(|entry| {
        let op = entry.op.as_deref().unwrap_or_default();
        op.eq_ignore_ascii_case(operation)
    });
    of_operation.filter_map(|entry| entry.value).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Metering, Role, Usage, docker::fake_engine::FakeEngine};

    #[tokio::test]
    async fn the_engine_is_asked_where_no_cgroup_is_found() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/running/stats") => {
                let sample = json!({
                    "cpu_stats": {"cpu_usage": {"total_usage": 5_000_000}},
                    "memory_stats": {"usage": 900, "stats": {"total_inactive_file": 200}},
                    "pids_stats": {"current": 3},
                    "networks": {"eth0": {"rx_bytes": 10, "tx_bytes": 20}, "eth1": {"rx_bytes": 1}},
                    "blkio_stats": {"io_service_bytes_recursive": [
                        {"op": "Read", "value": 7}, {"op": "Write", "value": 8},
                        {"op": "Total", "value": 15},
                    ]},
                });
                (200, sample.to_string())
            }
            _ => (200, json!({"memory_stats": {}}).to_string()),
        })
        .await;
        let runtime = engine.runtime();
        for (id, container) in [("a", "running"), ("b", "ended")] {
            let originals = &runtime.originals;
            originals.record_created(&id.into(), Role::Main, container);
        }
        let ids = ["a".into(), "b".into(), "unknown".into()];
        let read = runtime.read_usage(&ids).await;
        let usage = Usage {
            cpu_ns: 5_000_000,
            memory_bytes: 700,
            processes: 3,
            received_bytes: Some(11),
            sent_bytes: Some(20),
            read_bytes: Some(7),
            written_bytes: Some(8),
        };
        assert_eq!(read, [Some(usage), None, None]);
        let asked = engine.requests("GET /containers/running/stats");
        assert!(asked[0].contains("one-shot=true"), "{asked:?}");
    }
}

//! What the host has, and what the sandboxes take of it.

use std::time::Duration;

use osb_protocol::lifecycle::SandboxState;
use osb_protocol::resources::ResourceLimits;
use osb_runtime::HostCapacity;
use osb_service::ErrorChain;
use tokio::time::timeout;
use tracing::debug;

use super::Service;

/// Longest wait for the engine: a page without the host is more useful than no page.
const PATIENCE: Duration = Duration::from_secs(2);

/// What sandboxes take together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Cores that they use; `None` if it is not recorded.
    pub cores: Option<f64>,
    /// Memory that they use, in bytes; `None` if it is not recorded.
    pub memory_bytes: Option<f64>,
    /// Cores that they may use, in billionths.
    pub nano_cpus: i64,
    /// Memory that they may use, in bytes.
    pub memory_limits: i64,
    /// How many of them may use all cores.
    pub without_cpu_limit: usize,
    /// How many of them may use all memory.
    pub without_memory_limit: usize,
}

impl Service {
    /// What the host has; `None` if the runtime has none, or does not answer in time.
    pub async fn host(&self) -> Option<HostCapacity> {
        self.available().ok()?;
        let capacity = self.inner.runtime.capacity()?;
        match timeout(PATIENCE, capacity.read_capacity()).await {
            Ok(Ok(capacity)) => Some(capacity),
            Ok(Err(error)) => {
                debug!(error = %ErrorChain(&error), "what the host has is not known");
                None
            }
            Err(_) => {
                debug!("the runtime takes too long to describe its host");
                None
            }
        }
    }

    /// What the sandboxes within the scope take that have processes.
    #[must_use]
    pub fn demand(&self) -> Demand {
        let mut demand = Demand::default();
        let mut ids = Vec::new();
        for record in self.snapshot().0 {
            if !matches!(
                record.sandbox.status.state,
                SandboxState::Running | SandboxState::Paused | SandboxState::Pending
            ) {
                continue;
            }
            let limits = ResourceLimits::parse(&record.facts.origin.resources).unwrap_or_default();
            match limits.nano_cpus {
                Some(nanos) => demand.nano_cpus = demand.nano_cpus.saturating_add(nanos),
                None => demand.without_cpu_limit += 1,
            }
            match limits.memory_bytes {
                Some(bytes) => demand.memory_limits = demand.memory_limits.saturating_add(bytes),
                None => demand.without_memory_limit += 1,
            }
            ids.push(record.sandbox.id.clone());
        }
        if self.has_metrics() {
            let (cores, memory) = self.used_now(&ids);
            (demand.cores, demand.memory_bytes) = (Some(cores), Some(memory));
        }
        demand
    }
}

//! The last minutes of several sandboxes, for lists.

use osb_protocol::SandboxId;
use tokio::sync::watch;

use super::{super::Service, is_sampled, series::Sample};

/// Most samples of a sandbox: those of the last minutes at a step of ten seconds.
pub const RECENT: usize = 20;

/// What a sandbox used in the last minutes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentUse {
    /// Cores in use, oldest first; the last one is the latest sample.
    pub cpu_cores: Vec<Option<f64>>,
    /// Bytes of memory in use.
    pub memory_bytes: Vec<Option<u64>>,
}

impl RecentUse {
    pub(super) fn of(samples: &[Sample]) -> Self {
        Self {
            cpu_cores: samples.iter().map(|sample| sample.cpu_cores).collect(),
            memory_bytes: samples.iter().map(|sample| sample.memory_bytes).collect(),
        }
    }
}

impl Service {
    /// Changes each time when all sandboxes were sampled.
    pub fn watch_samples(&self) -> watch::Receiver<i64> {
        self.inner.metrics.sampled.subscribe()
    }

    /// What sandboxes used in the last minutes; `None` for one that was not sampled, has ended, or is
    /// outside of the scope.
    #[must_use]
    pub fn recent_use(&self, ids: &[SandboxId]) -> Vec<Option<RecentUse>> {
        let phases = ids.iter().map(|id| self.find(id)?.facts.phase);
        let is_current = phases.map(|phase| phase.is_some_and(|(phase, _)| is_sampled(phase)));
        let is_current: Vec<bool> = is_current.collect();
        let recordings = self.inner.metrics.recordings();
        let each = ids.iter().zip(is_current).map(|(id, is_current)| {
            // The last sample of a sandbox that ended is kept, and no longer what it uses.
            let recording = recordings.get(id).filter(|_| is_current)?;
            Some(RecentUse::of(&recording.last(RECENT)))
        });
        each.collect()
    }
}

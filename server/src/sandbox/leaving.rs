//! Creates that only a removal in progress hinders. The client of that has its answer and counts on the
//! room, so the create waits.

use std::time::Duration;

use osb_protocol::SandboxId;
use osb_runtime::{CreateSpec, Observed, Progress, RuntimeError, VolumeFailure};
use tokio::time::{Instant, timeout_at};

use super::{Error, Facts, Service, quota::QuotaError};

/// Longest wait of a create for removals. One takes about a second; clients wait for at least half a
/// minute.
const LONGEST: Duration = Duration::from_secs(20);

/// When a create that begins now no longer waits for removals.
pub(super) fn deadline() -> Instant {
    Instant::now() + LONGEST
}

impl Service {
    /// Waits until a quota that refused a create may have room. Fails with the refusal if the create would
    /// not fit without the sandboxes that are being removed either, and at the deadline.
    pub(super) async fn room_after_removals(
        &self,
        spec: &CreateSpec,
        refused: QuotaError,
        deadline: Instant,
    ) -> Result<(), QuotaError> {
        let sizes = self.inner.layers.sizes().unwrap_or_default();
        let (records, _) = self.inner.registry.snapshot();
        let staying = records.iter().filter(|record| !is_leaving(&record.facts));
        let quotas = &self.inner.limits.quotas;
        quotas.check(spec, self.owner.as_ref(), &sizes, staying)?;
        let leaving = self.leaving(|_| true);
        // Without any, the last has just gone.
        match leaving.is_empty() || self.removal_ended(&leaving, deadline).await {
            true => Ok(()),
            false => Err(refused),
        }
    }

    /// Creates a sandbox in the runtime; again when one is gone that had a directory of the host which
    /// overlaps with one of this.
    pub(super) async fn create_after_removals(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, Error> {
        let runtime = &self.inner.runtime;
        if spec.volumes.is_empty() {
            return Ok(runtime.create(spec, progress).await?);
        }
        let deadline = deadline();
        loop {
            // Before the create: what goes meanwhile may have hindered it.
            let leaving = self.leaving(|facts| !facts.origin.volumes.is_empty());
            let made = runtime.create(spec.clone(), progress).await;
            let may_overlap = matches!(
                made,
                Err(RuntimeError::Volume {
                    failure: VolumeFailure::HostPathNotAllowed | VolumeFailure::SubPath,
                    ..
                })
            );
            if !may_overlap || !self.removal_ended(&leaving, deadline).await {
                return Ok(made?);
            }
        }
    }

    /// The sandboxes that are being removed, of those that count.
    fn leaving(&self, counts: impl Fn(&Facts) -> bool) -> Vec<SandboxId> {
        let (records, _) = self.inner.registry.snapshot();
        let leaving = records.iter().map(|record| &record.facts);
        let leaving = leaving.filter(|facts| is_leaving(facts) && counts(facts));
        leaving.map(|facts| facts.origin.id.clone()).collect()
    }

    /// Waits until one of these sandboxes is gone. `false` if there is none, if their removals fail, and at
    /// the deadline.
    async fn removal_ended(&self, leaving: &[SandboxId], deadline: Instant) -> bool {
        let registry = &self.inner.registry;
        let mut changes = registry.subscribe();
        loop {
            let mut is_any_leaving = false;
            for id in leaving {
                match registry.get(id) {
                    None => return true,
                    Some(record) => is_any_leaving |= is_leaving(&record.facts),
                }
            }
            // A change that was missed is seen in the registry.
            if !is_any_leaving || timeout_at(deadline, changes.recv()).await.is_err() {
                return false;
            }
        }
    }
}

/// Whether a sandbox is being removed, and nothing hinders that.
fn is_leaving(facts: &Facts) -> bool {
    facts.is_deleted() && facts.removal_error.is_none()
}

//! Pauses and resumes sandboxes (contract: lifecycle §5.7). Each holds the sandbox's `life` lock, so
//! that no removal begins between freezing and recording it. Renewals and patches go on meanwhile,
//! and so does the time until the expiry.

use osb_protocol::{Feature, SandboxId};
use osb_runtime::{Pausing, RuntimeError};
use tracing::{Instrument, info};

use super::{Error, Facts, Service};
use crate::trace;

/// The wanted state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Paused,
    Running,
}

impl Service {
    /// Freezes a sandbox. Returns once reads show it.
    ///
    /// # Errors
    /// When it does not run, is being removed, or the runtime fails; then it runs on.
    pub async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        self.freeze(id, Wanted::Paused).await
    }

    /// Thaws a sandbox. Returns once reads show it.
    ///
    /// # Errors
    /// When it is not paused, is being removed, or the runtime fails; then it stays paused.
    pub async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        self.freeze(id, Wanted::Running).await
    }

    async fn freeze(&self, id: &SandboxId, wanted: Wanted) -> Result<(), Error> {
        self.note_sandbox_id(id);
        self.pausing()?;
        let locks = self.locks(id)?;
        // A create or a removal under way may hold the lock for long.
        refuse(&self.known(id)?.facts, wanted)?;
        let (service, id) = (self.clone(), id.clone());
        let name = match wanted {
            Wanted::Paused => "pause",
            Wanted::Running => "resume",
        };
        let span = trace::work(name, &id);
        let work = async move {
            let _one_at_a_time = locks.life.lock().await;
            refuse(&service.known(&id)?.facts, wanted)?;
            let pausing = service.pausing()?;
            let at = match wanted {
                Wanted::Paused => {
                    let freezing = trace::step("runtime: pause");
                    pausing.pause(&id).instrument(freezing).await?
                }
                Wanted::Running => {
                    let thawing = trace::step("runtime: resume");
                    pausing.resume(&id).instrument(thawing).await?
                }
            };
            service.change(&id, |facts| {
                facts.frozen_here(wanted == Wanted::Paused, at);
                Ok(())
            })?;
            info!(sandbox = %id, ?wanted, "sandbox frozen or thawed");
            Ok(())
        };
        self.owned(name, work.instrument(span)).await
    }

    fn pausing(&self) -> Result<&dyn Pausing, Error> {
        let runtime = &self.inner.runtime;
        runtime.pausing().ok_or(Error::Unsupported {
            feature: Feature::Pause,
            runtime: runtime.kind(),
        })
    }
}

/// Refuses what is certain without the runtime, which decides the rest: its state may be newer.
fn refuse(facts: &Facts, wanted: Wanted) -> Result<(), Error> {
    if facts.phase.is_some() && !facts.is_deleted() {
        return Ok(());
    }
    let id = facts.origin.id.clone();
    Err(Error::Runtime(match wanted {
        Wanted::Paused => RuntimeError::NotRunning(id),
        Wanted::Running => RuntimeError::NotPaused(id),
    }))
}

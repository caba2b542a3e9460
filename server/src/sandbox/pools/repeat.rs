//! Claims that are repeated: the server that claimed a sandbox has ended, or its container was started
//! again. One task for each sandbox tries until execd has answered.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_protocol::SandboxId;
use osb_runtime::{Observed, Origin, Phase, Status};
use osb_service::ErrorChain;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, error, warn};

use super::record::ClaimRecord;
use crate::{
    sandbox::{
        Error, Facts, Service,
        readiness::{self, SLOW, Wait},
    },
    trace,
};

/// How long execd may take to answer after a start before the sandbox shows that it is late.
const PATIENCE: Duration = Duration::from_secs(10);
/// First pause after an attempt that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Sandboxes whose claim is being repeated, and whether that was asked for once more since.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct Repeats(Mutex<HashMap<SandboxId, bool>>);

impl Repeats {
    /// Whether no task repeats the claim of a sandbox, so that the caller is to do it. Otherwise that
    /// task does it once more.
    fn begin(&self, id: &SandboxId) -> bool {
        match self.locked().entry(id.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                false
            }
            Entry::Vacant(first) => {
                first.insert(false);
                true
            }
        }
    }

    /// Whether the task of a sandbox is done: nothing has asked for another turn.
    fn end(&self, id: &SandboxId) -> bool {
        let mut running = self.locked();
        let is_wanted = running.get_mut(id).is_some_and(std::mem::take);
        if !is_wanted {
            running.remove(id);
        }
        !is_wanted
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<SandboxId, bool>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// execd has answered, or the sandbox has ended: a later start is reported.
    Over,
    /// execd has not answered.
    Late,
    /// The sandbox does not run just now.
    Frozen,
}

impl Service {
    /// Repeats the claim of a sandbox that may not have had it, if it is one of a pool.
    pub(in crate::sandbox) fn repeat_claim(&self, id: &SandboxId) {
        let Some(record) = self.inner.pools.claim_of(id) else {
            return;
        };
        if !self.inner.repeats.begin(id) {
            return;
        }
        let (service, id) = (self.clone(), id.clone());
        let span = trace::work("repeat a claim", &id);
        let work = async move {
            loop {
                service.repeat(&id, &record).await;
                if service.inner.repeats.end(&id) {
                    return;
                }
            }
        };
        let tasks = &self.inner.tasks;
        tasks.spawn_abortable("repeat a claim", work.instrument(span));
    }

    /// Repeats a claim until execd has answered, or the sandbox is gone or has ended.
    async fn repeat(&self, id: &SandboxId, record: &ClaimRecord) {
        let mut pause = FIRST_PAUSE;
        while self.has_run(id) {
            match self.attempt(id, record).await {
                Attempt::Over => return self.set_late(id, false),
                Attempt::Late => self.set_late(id, true),
                Attempt::Frozen => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, id: &SandboxId, record: &ClaimRecord) -> Attempt {
        let known = self.inner.registry.get(id);
        let Some((facts, (phase, since))) =
            known.and_then(|it| Some((it.facts.clone(), it.facts.phase?)))
        else {
            return Attempt::Over;
        };
        match phase {
            Phase::Running => {}
            Phase::Paused => return Attempt::Frozen,
            // Its start is reported.
            _ => return Attempt::Over,
        }
        let observed = Observed {
            origin: Origin::clone(&facts.origin),
            status: Status {
                address: facts.address.clone(),
                ..Status::new(phase, since)
            },
        };
        if let Some(execd) = self.waiting_execd(&observed) {
            let deadline = Instant::now() + PATIENCE;
            match readiness::wait(&execd, deadline, SLOW, || self.runs(id)).await {
                Wait::Ready => {}
                Wait::TooSlow => {
                    warn!(sandbox = %id, "its execd does not answer, so its claim is not repeated yet");
                    return Attempt::Late;
                }
                // The next turn finds out why.
                Wait::Unwanted => return Attempt::Frozen,
            }
        }
        match self.give(&observed, record).await {
            Ok(()) => Attempt::Over,
            Err(Error::Runtime(failure)) if failure.retryable() => {
                warn!(sandbox = %id, error = %ErrorChain(&failure), "its claim is not repeated yet");
                Attempt::Late
            }
            Err(failure) => {
                if self.runs(id) {
                    error!(sandbox = %id, error = %ErrorChain(&failure), "its entry point is not started");
                }
                Attempt::Over
            }
        }
    }

    /// Whether a sandbox was made and is not being removed.
    fn has_run(&self, id: &SandboxId) -> bool {
        self.is_so(id, |facts| facts.phase.is_some())
    }

    fn runs(&self, id: &SandboxId) -> bool {
        self.is_so(id, |facts| matches!(facts.phase, Some((Phase::Running, _))))
    }

    fn is_so(&self, id: &SandboxId, is_true: impl FnOnce(&Facts) -> bool) -> bool {
        let known = self.inner.registry.get(id);
        known.is_some_and(|it| !it.facts.is_deleted() && is_true(&it.facts))
    }

    fn set_late(&self, id: &SandboxId, is_late: bool) {
        // One that is gone shows nothing; one that shows it already has no news.
        let _ = self
            .inner
            .registry
            .update(id, |facts| match facts.execd_is_late == is_late {
                true => Err(()),
                false => {
                    facts.execd_is_late = is_late;
                    Ok(())
                }
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_one_task_which_misses_no_start() {
        let repeats = Repeats::default();
        let (a, b) = (SandboxId::from("a"), SandboxId::from("b"));
        assert!(repeats.begin(&a) && repeats.begin(&b));
        assert!(!repeats.begin(&a), "one at a time");
        assert!(!repeats.end(&a), "started again meanwhile");
        assert!(repeats.end(&a) && repeats.end(&b));
        assert!(repeats.begin(&a), "a later start");
    }
}

//! A simulated back end: sandboxes are entries of a map.
//!
//! It behaves like the real ones where the domain can tell: stages come in order, events follow
//! changes, a loss of the engine is told and healed. Delays and faults are set from outside while
//! it runs, so that tests, demos and work on the console can show what is hard to provoke.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};
use osb_service::Supervisor;
use tokio::sync::{Notify, mpsc};

use crate::{
    CreateSpec, Observed, Phase, Progress, Runtime, RuntimeError, RuntimeEvent, Stage, Status,
};

const KIND: &str = "sim";
/// Events waiting for the domain.
const BUFFER: usize = 1024;

/// What goes wrong next, and how long things take.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Time that each stage of a create takes.
    pub stage_delay: Duration,
    /// Time that a removal takes.
    pub remove_delay: Duration,
    /// The image of every create is missing from the registry.
    pub no_image: bool,
    /// Starts wait until this is notified, once each.
    pub start_gate: Option<Arc<Notify>>,
    /// Containers do not start, with these words.
    pub start_fails: Option<String>,
    /// Removals fail, with these words.
    pub remove_fails: Option<String>,
}

/// A back end without an engine.
#[derive(Debug, Default)]
pub struct SimRuntime {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sandboxes: BTreeMap<SandboxId, Observed>,
    faults: Faults,
    down: Option<String>,
    events: Option<mpsc::Sender<RuntimeEvent>>,
}

impl SimRuntime {
    /// An engine without sandboxes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine with sandboxes that another server made earlier.
    #[must_use]
    pub fn with(sandboxes: impl IntoIterator<Item = Observed>) -> Self {
        let sim = Self::new();
        sim.locked().sandboxes = sandboxes
            .into_iter()
            .map(|sandbox| (sandbox.origin.id.clone(), sandbox))
            .collect();
        sim
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.locked().faults = faults;
    }

    /// The engine stops answering.
    pub async fn go_down(&self, reason: &str) {
        self.locked().down = Some(reason.to_owned());
        self.tell(RuntimeEvent::Lost {
            reason: reason.to_owned(),
        })
        .await;
    }

    /// The engine answers again.
    pub async fn come_back(&self) {
        let all = {
            let mut state = self.locked();
            state.down = None;
            state.sandboxes.values().cloned().collect()
        };
        self.tell(RuntimeEvent::Synced { all, at: now() }).await;
    }

    /// The command of a sandbox ends.
    pub async fn exit(&self, id: &SandboxId, code: i64) {
        let at = now();
        if let Some(sandbox) = self.locked().sandboxes.get_mut(id) {
            (sandbox.status.phase, sandbox.status.since) = (Phase::Exited(code), at);
        }
        self.tell(RuntimeEvent::Exited {
            id: id.clone(),
            code,
            at,
        })
        .await;
    }

    /// Somebody removes a sandbox behind the server's back.
    pub async fn vanish(&self, id: &SandboxId) {
        self.locked().sandboxes.remove(id);
        let (id, at) = (id.clone(), now());
        self.tell(RuntimeEvent::Removed { id, at }).await;
    }

    /// The sandboxes there are.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<SandboxId> {
        self.locked().sandboxes.keys().cloned().collect()
    }

    async fn tell(&self, event: RuntimeEvent) {
        let events = self.locked().events.clone();
        if let Some(events) = events {
            // Nobody listens when the server is gone: nothing to tell then.
            let _ = events.send(event).await;
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self) -> Result<Faults, RuntimeError> {
        let state = self.locked();
        match &state.down {
            Some(reason) => Err(RuntimeError::Unavailable {
                runtime: KIND,
                reason: reason.clone(),
            }),
            None => Ok(state.faults.clone()),
        }
    }
}

fn now() -> WireTime {
    WireTime::new(jiff::Timestamp::now())
}

#[async_trait]
impl Runtime for SimRuntime {
    fn kind(&self) -> &'static str {
        KIND
    }

    async fn create(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        let faults = self.answer()?;
        let pause = || tokio::time::sleep(faults.stage_delay);
        pause().await;
        if faults.no_image {
            let reason = "repository does not exist".to_owned();
            return Err(RuntimeError::ImagePull {
                image: spec.origin.source.image().to_owned(),
                reason,
            });
        }
        progress.reached(Stage::Image);
        pause().await;
        let mut observed = Observed {
            origin: spec.origin,
            status: Status::new(Phase::Created, now()),
        };
        let id = observed.origin.id.clone();
        self.locked().sandboxes.insert(id.clone(), observed.clone());
        progress.reached(Stage::Created);
        pause().await;
        if let Some(gate) = faults.start_gate {
            gate.notified().await;
        }
        if let Some(reason) = faults.start_fails {
            self.vanish(&id).await;
            return Err(RuntimeError::Start { id, reason });
        }
        self.answer()?;
        (observed.status.phase, observed.status.since) = (Phase::Running, now());
        // Whoever creates is told by the answer, not by an event.
        self.locked().sandboxes.insert(id, observed.clone());
        progress.reached(Stage::Network);
        Ok(observed)
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let faults = self.answer()?;
        tokio::time::sleep(faults.remove_delay).await;
        if let Some(reason) = faults.remove_fails {
            return Err(RuntimeError::Remove {
                id: id.clone(),
                reason,
            });
        }
        let existed = self.locked().sandboxes.remove(id).is_some();
        if existed {
            let (id, at) = (id.clone(), now());
            self.tell(RuntimeEvent::Removed { id, at }).await;
        }
        Ok(())
    }

    async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, RuntimeError> {
        self.answer()?;
        if !self.locked().sandboxes.contains_key(id) {
            return Err(RuntimeError::NotFound(id.clone()));
        }
        Ok(vec![format!("simulated output of {id}")]
            .into_iter()
            .take(lines)
            .collect())
    }

    fn watch(self: Arc<Self>, tasks: &Supervisor) -> mpsc::Receiver<RuntimeEvent> {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let first = {
            let mut state = self.locked();
            state.events = Some(sender.clone());
            match state.down.clone() {
                Some(reason) => RuntimeEvent::Lost { reason },
                None => {
                    let all = state.sandboxes.values().cloned().collect();
                    RuntimeEvent::Synced { all, at: now() }
                }
            }
        };
        tasks.spawn_abortable("simulated events", async move {
            // The domain may be gone already; then there is nobody to tell.
            let _ = sender.send(first).await;
        });
        receiver
    }

    async fn sweep(&self) -> Result<(), RuntimeError> {
        self.answer().map(|_| ())
    }
}

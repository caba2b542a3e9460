//! A simulated back end: sandboxes are entries of a map.
//!
//! It behaves like a real one as far as the domain can observe: stages come in order, events follow
//! changes, and a loss of the engine is reported and recovered from. Tests, demos and work on the
//! console set delays and faults while it runs, for situations that are hard to provoke.
//!
//! On request it has every optional power, a sidecar and API names of its own ([`Options`]), so that
//! the domain's use of them is tested before a real back end has them.

mod advance;
mod faults;
mod powers;
mod snapshots;
mod templates;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use osb_protocol::{Feature, FeatureSet, SandboxId, WireTime};
use osb_service::Supervisor;
use tokio::sync::mpsc;

use self::advance::Advance;
pub use self::faults::Faults;
use crate::{
    Address, Amendment, Capacity, Claim, Copying, CreateSpec, Diagnostics, Foreign, Images, KeptBy,
    LocalImage, LogLine, Metering, NoRoute, Observed, Pausing, Phase, Pools, Progress, PullFault,
    Reach, Role, Runtime, RuntimeError, RuntimeEvent, SecureKind, SecureRuntime, Snapshots, Source,
    Stage, Status, Templates, Viewpoint, Vocabulary, WarmSidecars,
};

const KIND: &str = "sim";
/// Most events that wait for the domain.
const BUFFER: usize = 1024;

/// Abilities of the simulated back end.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether it has the optional powers: pausing, snapshots, pools, templates, diagnostics, metering,
    /// capacity, copying, images.
    pub powers: bool,
    /// Further features that a create may use.
    pub create_features: FeatureSet,
    /// Whether each sandbox has an egress sidecar beside its main container.
    pub sidecar: bool,
    /// Whether it begins sandboxes with a network policy before a create asks for them.
    pub warm: bool,
    /// Whether it stores renewals and metadata itself.
    pub keeps_changes: bool,
    /// API names of its states and errors.
    pub vocabulary: &'static Vocabulary,
    /// What its sandboxes run under.
    pub secure: Option<SecureKind>,
}

impl Default for Options {
    /// A back end without powers and sidecars.
    fn default() -> Self {
        Self {
            powers: false,
            create_features: FeatureSet::EMPTY,
            sidecar: false,
            warm: false,
            keeps_changes: false,
            vocabulary: &Vocabulary::CONTAINERS,
            secure: None,
        }
    }
}

/// A back end without an engine.
#[derive(Debug, Default)]
pub struct SimRuntime {
    options: Options,
    advance: Arc<Advance>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sandboxes: BTreeMap<SandboxId, Group>,
    /// What they were created from.
    specs: BTreeMap<SandboxId, CreateSpec>,
    /// Which sandbox was stored when, by the snapshot's id.
    snapshots: BTreeMap<String, (SandboxId, WireTime)>,
    /// Captures that are under way.
    capturing: usize,
    /// The most that `capturing` has been.
    most_capturing: usize,
    templates: templates::Stored,
    /// Claims of sandboxes that waited for them.
    claims: BTreeMap<SandboxId, Claim>,
    faults: Faults,
    /// Of new sandboxes.
    address: Address,
    down: Option<String>,
    events: Option<mpsc::Sender<RuntimeEvent>>,
    /// Who follows which log.
    readers: Vec<(SandboxId, mpsc::UnboundedSender<LogLine>)>,
    foreign: usize,
    /// Bytes of writable layers.
    layer_sizes: HashMap<SandboxId, u64>,
    /// What the list of images has.
    images: Vec<LocalImage>,
    volumes: volumes::Volumes,
    /// Sandboxes whose creates are under way.
    creating: BTreeSet<SandboxId>,
    /// Removals that are under way.
    removing: usize,
    /// The most that `removing` has been.
    most_removing: usize,
}

/// A create under way, until dropped.
struct CreateGuard<'a> {
    runtime: &'a SimRuntime,
    id: SandboxId,
}

impl Drop for CreateGuard<'_> {
    fn drop(&mut self) {
        self.runtime.locked().creating.remove(&self.id);
    }
}

/// A removal under way, until dropped.
struct RemovalGuard<'a>(&'a SimRuntime);

impl<'a> RemovalGuard<'a> {
    fn new(runtime: &'a SimRuntime) -> Self {
        let mut state = runtime.locked();
        state.removing += 1;
        state.most_removing = state.most_removing.max(state.removing);
        Self(runtime)
    }
}

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        self.0.locked().removing -= 1;
    }
}

/// A sandbox with its containers.
#[derive(Clone, Debug)]
struct Group {
    observed: Observed,
    /// Roles whose containers exist and have not exited.
    alive: BTreeSet<Role>,
    /// Roles whose containers are frozen.
    frozen: BTreeSet<Role>,
}

impl Group {
    fn new(observed: Observed, sidecar: bool) -> Self {
        let roles = [Some(Role::Main), sidecar.then_some(Role::Egress)];
        Self {
            observed,
            alive: roles.into_iter().flatten().collect(),
            frozen: BTreeSet::new(),
        }
    }
}

impl SimRuntime {
    /// Creates an engine without sandboxes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an engine with other abilities.
    #[must_use]
    pub fn with_options(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Creates an engine with sandboxes of an earlier server process.
    #[must_use]
    pub fn with(sandboxes: impl IntoIterator<Item = Observed>) -> Self {
        let sim = Self::new();
        sim.locked().sandboxes = sandboxes
            .into_iter()
            .map(|sandbox| (sandbox.origin.id.clone(), Group::new(sandbox, false)))
            .collect();
        sim
    }

    /// Replaces the injected faults.
    pub fn set_faults(&self, faults: Faults) {
        self.locked().faults = faults;
    }

    /// Sets the address of every sandbox that is created from now on.
    pub fn set_address(&self, address: Address) {
        self.locked().address = address;
    }

    /// Makes the engine unavailable.
    pub async fn go_down(&self, reason: &str) {
        self.locked().down = Some(reason.to_owned());
        self.emit(RuntimeEvent::Lost {
            reason: reason.to_owned(),
        })
        .await;
    }

    /// Makes the engine available again.
    pub async fn come_back(&self) {
        self.locked().down = None;
        let event = self.look();
        self.emit(event).await;
    }

    /// Returns the full list of this moment.
    #[must_use]
    pub fn look(&self) -> RuntimeEvent {
        self.locked().synced()
    }

    /// Ends the entry point of a sandbox.
    pub async fn exit(&self, id: &SandboxId, code: i64) {
        self.exit_role(id, Role::Main, code).await;
    }

    /// Ends a container of a sandbox.
    pub async fn exit_role(&self, id: &SandboxId, role: Role, code: i64) {
        let at = now();
        if let Some(group) = self.locked().sandboxes.get_mut(id) {
            group.alive.remove(&role);
            let status = &mut group.observed.status;
            match role {
                Role::Main => (status.phase, status.since) = (Phase::Exited(code), at),
                Role::Egress => status.lost = Some(role),
            }
        }
        let id = id.clone();
        self.emit(RuntimeEvent::Exited { id, role, code, at }).await;
    }

    /// Removes a sandbox, as another client of the engine would.
    pub async fn vanish(&self, id: &SandboxId) {
        {
            let mut state = self.locked();
            state.sandboxes.remove(id);
            state.specs.remove(id);
        }
        let (id, at) = (id.clone(), now());
        self.emit(RuntimeEvent::Removed { id, at }).await;
    }

    /// Returns all existing sandboxes.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<SandboxId> {
        self.locked().sandboxes.keys().cloned().collect()
    }

    /// Returns what a sandbox was created from.
    #[must_use]
    pub fn spec(&self, id: &SandboxId) -> Option<CreateSpec> {
        self.locked().specs.get(id).cloned()
    }

    /// Returns the largest number of removals that were under way at once.
    #[must_use]
    pub fn most_removals(&self) -> usize {
        self.locked().most_removing
    }

    /// Returns the roles of a sandbox whose containers run, including frozen ones.
    #[must_use]
    pub fn roles(&self, id: &SandboxId) -> Vec<Role> {
        let state = self.locked();
        let group = state.sandboxes.get(id);
        group.map_or_else(Vec::new, |group| group.alive.iter().copied().collect())
    }

    /// Returns the changes since a sandbox's creation that the back end itself stores.
    #[must_use]
    pub fn amendment(&self, id: &SandboxId) -> Option<Amendment> {
        let state = self.locked();
        let group = state.sandboxes.get(id)?;
        Some(group.observed.status.amendment.clone())
    }

    /// Reports an event, possibly an outdated one.
    pub async fn emit(&self, event: RuntimeEvent) {
        let events = self.locked().events.clone();
        if let Some(events) = events {
            // The server may have stopped.
            let _ = events.send(event).await;
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the injected faults, or why the engine is unavailable.
    fn available(&self) -> Result<Faults, RuntimeError> {
        let state = self.locked();
        match &state.down {
            Some(reason) => Err(RuntimeError::Unavailable {
                runtime: KIND,
                reason: reason.clone(),
            }),
            None => Ok(state.faults.clone()),
        }
    }

    /// Finds the source of a create.
    fn find_source(&self, source: &Source, faults: &Faults) -> Result<(), RuntimeError> {
        let state = self.locked();
        match source {
            Source::Image(image) if faults.no_image => Err(RuntimeError::ImagePull {
                image: image.clone(),
                fault: PullFault::Unknown,
                reason: "repository does not exist".to_owned(),
            }),
            Source::Image(_) => Ok(()),
            Source::Snapshot(id) if state.snapshots.contains_key(id) => Ok(()),
            Source::Snapshot(id) => Err(RuntimeError::NoSnapshot(id.clone())),
            Source::Template(id) if state.templates.contains(id) => Ok(()),
            Source::Template(id) => Err(RuntimeError::NoTemplate(id.clone())),
            Source::Pool(_) => Err(RuntimeError::Unsupported {
                feature: Feature::Pools,
                runtime: KIND,
            }),
        }
    }
}

impl State {
    fn synced(&self) -> RuntimeEvent {
        let all = self.sandboxes.values().map(|group| group.observed.clone());
        RuntimeEvent::Synced {
            all: all.collect(),
            at: now(),
        }
    }
}

fn now() -> WireTime {
    WireTime::new(crate::clock::now())
}

#[async_trait]
impl Runtime for SimRuntime {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn vocabulary(&self) -> &'static Vocabulary {
        self.options.vocabulary
    }

    fn secure_runtime(&self) -> Option<SecureRuntime> {
        self.options.secure.map(SecureRuntime::usual)
    }

    fn create_features(&self) -> FeatureSet {
        self.options.create_features
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        self.options.powers.then_some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.options.powers.then_some(self)
    }

    fn pools(&self) -> Option<&dyn Pools> {
        self.options.powers.then_some(self)
    }

    fn templates(&self) -> Option<&dyn Templates> {
        self.options.powers.then_some(self)
    }

    fn diagnostics(&self) -> Option<&dyn Diagnostics> {
        self.options.powers.then_some(self)
    }

    fn metering(&self) -> Option<&dyn Metering> {
        self.options.powers.then_some(self)
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        self.options.powers.then_some(self)
    }

    fn copying(&self) -> Option<&dyn Copying> {
        self.options.powers.then_some(self)
    }

    fn images(&self) -> Option<&dyn Images> {
        self.options.powers.then_some(self)
    }

    fn warm_sidecars(&self) -> Option<WarmSidecars> {
        self.count_prepared()
    }

    fn prepare(&self, spec: &mut CreateSpec) {
        self.take_prepared(spec);
    }

    fn reach(&self, address: &Address, port: u16, from: Viewpoint) -> Result<Reach, NoRoute> {
        Reach::of_container(address, port, from, true)
    }

    async fn create(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        let faults = self.available()?;
        self.locked().provide_volumes(&spec)?;
        let known = spec.clone();
        let pause = || tokio::time::sleep(faults.stage_delay);
        pause().await;
        if let Some(gate) = &faults.image_gate {
            gate.notified().await;
        }
        self.find_source(&spec.origin.source, &faults)?;
        progress.reached(Stage::Image);
        pause().await;
        let mut observed = Observed {
            origin: spec.origin,
            status: Status::new(Phase::Created, now()),
        };
        let id = observed.origin.id.clone();
        self.locked().creating.insert(id.clone());
        let _under_way = CreateGuard {
            runtime: self,
            id: id.clone(),
        };
        let group = |observed| Group::new(observed, self.options.sidecar);
        let made = group(observed.clone());
        self.locked().sandboxes.insert(id.clone(), made);
        self.locked().specs.insert(id.clone(), known);
        progress.reached(Stage::Created);
        pause().await;
        if let Some(gate) = faults.start_gate {
            gate.notified().await;
        }
        if let Some(reason) = faults.start_fails {
            self.vanish(&id).await;
            let reason = reason.into();
            return Err(RuntimeError::Start { id, reason });
        }
        self.available()?;
        (observed.status.phase, observed.status.since) = (Phase::Running, now());
        observed.status.address = self.locked().address.clone();
        // The caller learns of the start from the result, not from an event.
        self.locked().sandboxes.insert(id, group(observed.clone()));
        progress.reached(Stage::Network);
        Ok(observed)
    }

    async fn write_back(&self, id: &SandboxId, change: &Amendment) -> Result<KeptBy, RuntimeError> {
        self.available()?;
        if !self.options.keeps_changes {
            return Ok(KeptBy::Caller);
        }
        let mut state = self.locked();
        let group = state.sandboxes.get_mut(id);
        let group = group.ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
        group.observed.status.amendment.merge(change);
        Ok(KeptBy::Runtime)
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let faults = self.available()?;
        let _under_way = RemovalGuard::new(self);
        tokio::time::sleep(faults.remove_delay).await;
        if let Some(reason) = faults.remove_fails {
            return Err(RuntimeError::Remove {
                id: id.clone(),
                reason,
            });
        }
        let removed = self.locked().remove(id);
        if removed {
            let (id, at) = (id.clone(), now());
            self.emit(RuntimeEvent::Removed { id, at }).await;
        }
        Ok(())
    }

    async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, RuntimeError> {
        let output = self.available()?.output;
        if !self.locked().sandboxes.contains_key(id) {
            return Err(RuntimeError::NotFound(id.clone()));
        }
        let first = [format!("simulated output of {id}")].into_iter();
        let all: Vec<String> = first.chain(output).collect();
        Ok(all[all.len().saturating_sub(lines)..].to_vec())
    }

    fn watch(self: Arc<Self>, tasks: &Supervisor) -> mpsc::Receiver<RuntimeEvent> {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let first = {
            let mut state = self.locked();
            state.events = Some(sender.clone());
            match state.down.clone() {
                Some(reason) => RuntimeEvent::Lost { reason },
                None => state.synced(),
            }
        };
        tasks.spawn_abortable("simulated events", async move {
            // The domain may have stopped.
            let _ = sender.send(first).await;
        });
        receiver
    }

    async fn sweep(&self) -> Result<(), RuntimeError> {
        self.available()?;
        let mut state = self.locked();
        let State {
            sandboxes,
            creating,
            ..
        } = &mut *state;
        sandboxes.retain(|id, group| {
            group.observed.status.phase != Phase::Created || creating.contains(id)
        });
        Ok(())
    }

    async fn foreign(&self) -> Result<Vec<Foreign>, RuntimeError> {
        self.available()?;
        let one = |n| Foreign {
            id: SandboxId::new(format!("foreign-{n}")),
            instance: "another".to_owned(),
        };
        Ok((0..self.locked().foreign).map(one).collect())
    }
}

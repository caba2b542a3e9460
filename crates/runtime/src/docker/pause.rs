//! Pausing of sandboxes with the engine's freezer (contract: lifecycle §5.7).
//!
//! ```text
//! pause:   main ─▶ sidecars        a failure thaws what was frozen, the main container last
//! resume:  sidecars ─▶ main        a failure freezes the sidecars again
//! ```
//!
//! The main container never runs while a sidecar is frozen, except for the moment of a repair. A
//! rollback therefore ends at its first step that fails. The state of the main container is the state
//! of the sandbox, so a crash between two steps leaves a sandbox that counts as paused and has a
//! sidecar that runs. [`DockerRuntime::settle_sidecars`] makes the sidecars follow.

mod settle;

use async_trait::async_trait;
use bollard::{
    errors::Error,
    models::{ContainerInspectResponse, ContainerSummaryStateEnum},
};
use osb_protocol::{SandboxId, WireTime};
use osb_service::ErrorChain;
use tracing::warn;

use super::{DockerRuntime, engine::bounded, error, group};
use crate::{Pausing, Role, RuntimeError};

/// State of a container, as far as freezing is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    Runs,
    Frozen,
    /// It does not exist, has ended, or is being restarted.
    Absent,
}

impl Motion {
    fn of(container: &ContainerInspectResponse) -> Self {
        let state = container.state.as_ref();
        let is = |flag: Option<bool>| flag == Some(true);
        match state {
            Some(state) if is(state.paused) => Self::Frozen,
            Some(state) if is(state.running) && !is(state.restarting) => Self::Runs,
            _ => Self::Absent,
        }
    }

    fn listed(state: Option<ContainerSummaryStateEnum>) -> Self {
        match state {
            Some(ContainerSummaryStateEnum::RUNNING) => Self::Runs,
            Some(ContainerSummaryStateEnum::PAUSED) => Self::Frozen,
            _ => Self::Absent,
        }
    }
}

/// The containers of a sandbox.
struct Members {
    main: String,
    motion: Motion,
    sidecars: Vec<(Role, String)>,
    /// Whether the sandbox was created with a sidecar.
    needs_sidecar: bool,
}

/// Why a sandbox was not frozen or thawed.
enum Failure {
    /// The engine failed, for this container.
    Engine(Role, Error),
    /// The sandbox must not run without this container.
    Missing(Role),
    Runtime(RuntimeError),
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl Failure {
    fn into_error(self, wrap: impl FnOnce(String) -> RuntimeError) -> RuntimeError {
        match self {
            Self::Runtime(error) => error,
            Self::Missing(role) => wrap(format!("its {role} container is missing")),
            Self::Engine(role, failure) => error::unavailable(&failure).unwrap_or_else(|| {
                let reason = error::reason(&failure);
                wrap(format!("its {role} container: {reason}"))
            }),
        }
    }
}

#[async_trait]
impl Pausing for DockerRuntime {
    async fn pause(&self, id: &SandboxId) -> Result<WireTime, RuntimeError> {
        let turn = self.turns.of(id);
        let _one_at_a_time = turn.lock().await;
        let members = self.members(id).await?;
        if members.motion != Motion::Runs {
            return Err(RuntimeError::NotRunning(id.clone()));
        }
        let frozen = self.freeze(&members).await;
        frozen.map_err(|failure| {
            failure.into_error(|reason| RuntimeError::Pause {
                id: id.clone(),
                reason,
            })
        })?;
        Ok(self.engine_time())
    }

    async fn resume(&self, id: &SandboxId) -> Result<WireTime, RuntimeError> {
        let turn = self.turns.of(id);
        let _one_at_a_time = turn.lock().await;
        let members = self.members(id).await?;
        if members.motion != Motion::Frozen {
            return Err(RuntimeError::NotPaused(id.clone()));
        }
        let thawed = self.thaw(&members).await;
        thawed.map_err(|failure| {
            failure.into_error(|reason| RuntimeError::Resume {
                id: id.clone(),
                reason,
            })
        })?;
        Ok(self.engine_time())
    }
}

impl DockerRuntime {
    /// Finds and inspects the containers of a sandbox.
    async fn members(&self, id: &SandboxId) -> Result<Members, RuntimeError> {
        if self.originals.main(id).is_none() {
            // An earlier process created it, and the first list is not read yet.
            self.find_group(id).await?;
        }
        let missing = || RuntimeError::NotFound(id.clone());
        let main = self.originals.main(id).ok_or_else(missing)?;
        let inspected = self.inspect(&main).await.map_err(|error| match error {
            // By its own name rather than that of its container.
            RuntimeError::NotFound(_) => missing(),
            error => error,
        })?;
        let host = inspected.host_config.as_ref();
        let mode = host.and_then(|host| host.network_mode.as_deref());
        let owner = group::network_owner(mode);
        let roles = Role::ALL.into_iter().filter(|role| *role != Role::Main);
        let sidecars = roles.filter_map(|role| Some((role, self.originals.of(id, role)?)));
        let mut sidecars: Vec<_> = sidecars.collect();
        if sidecars.is_empty()
            && let Some(owner) = owner
        {
            sidecars.extend(self.unknown_sidecar(id, owner).await?);
        }
        Ok(Members {
            motion: Motion::of(&inspected),
            sidecars,
            needs_sidecar: owner.is_some(),
            main,
        })
    }

    /// Returns the sidecar whose network the main container has joined. It exists without being known
    /// while its image cannot be inspected. As the sandbox's network is that container's, it is no
    /// copy. `None` if the container is gone.
    async fn unknown_sidecar(
        &self,
        id: &SandboxId,
        owner: &str,
    ) -> Result<Option<(Role, String)>, RuntimeError> {
        let inspected = match self.inspect(owner).await {
            Ok(inspected) => inspected,
            Err(RuntimeError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let labels = inspected.config.and_then(|config| config.labels);
        let place = labels.and_then(|labels| self.place_if_ours(&labels));
        let is_sidecar = |(of, role): &(SandboxId, Role)| of == id && *role != Role::Main;
        Ok(place
            .filter(is_sidecar)
            .map(|(_, role)| (role, owner.to_owned())))
    }

    async fn freeze(&self, members: &Members) -> Result<(), Failure> {
        let mut frozen: Vec<(Role, &str)> = Vec::new();
        let main = (Role::Main, members.main.as_str());
        let failure = 'failed: {
            for (role, container) in [main].into_iter().chain(members.sidecars()) {
                // Counted before the call: one whose answer is lost may have frozen it.
                frozen.push((role, container));
                match self.set_frozen(role, container, true).await {
                    Ok(()) => {}
                    Err(failure) => break 'failed failure,
                }
            }
            match members.lacks_sidecar() {
                true => break 'failed Failure::Missing(Role::Egress),
                false => return Ok(()),
            }
        };
        // Without its sidecar the sandbox must not run again.
        if !matches!(failure, Failure::Missing(role) if role != Role::Main) {
            self.roll_back(frozen, false).await;
        }
        Err(failure)
    }

    async fn thaw(&self, members: &Members) -> Result<(), Failure> {
        if members.lacks_sidecar() {
            return Err(Failure::Missing(Role::Egress));
        }
        let mut thawed: Vec<(Role, &str)> = Vec::new();
        let main = (Role::Main, members.main.as_str());
        for (role, container) in members.sidecars().chain([main]) {
            thawed.push((role, container));
            if let Err(failure) = self.set_frozen(role, container, false).await {
                // The main container, if it is among them, before what it must not run without.
                self.roll_back(thawed, true).await;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Freezes or thaws a container. Succeeds if it is in that state already.
    async fn set_frozen(&self, role: Role, container: &str, freeze: bool) -> Result<(), Failure> {
        let docker = self.docker()?;
        let changed = if freeze {
            bounded(docker, docker.pause_container(container)).await
        } else {
            bounded(docker, docker.unpause_container(container)).await
        };
        let Err(failure) = changed else {
            return Ok(());
        };
        if error::is_missing(&failure) {
            return Err(Failure::Missing(role));
        }
        if error::unavailable(&failure).is_some() {
            return Err(Failure::Engine(role, failure));
        }
        // Statuses and messages of refusals differ between releases of the engine.
        let wanted = if freeze { Motion::Frozen } else { Motion::Runs };
        match self.motion(container).await? {
            motion if motion == wanted => Ok(()),
            Motion::Absent => Err(Failure::Missing(role)),
            _ => Err(Failure::Engine(role, failure)),
        }
    }

    async fn motion(&self, container: &str) -> Result<Motion, RuntimeError> {
        match self.inspect(container).await {
            Ok(inspected) => Ok(Motion::of(&inspected)),
            Err(RuntimeError::NotFound(_)) => Ok(Motion::Absent),
            Err(error) => Err(error),
        }
    }

    /// Undoes steps, the last one first. Ends at one that fails: the main container must not run
    /// beside a frozen sidecar.
    async fn roll_back(&self, steps: Vec<(Role, &str)>, freeze: bool) {
        for (role, container) in steps.into_iter().rev() {
            let failure = match self.set_frozen(role, container, freeze).await {
                Ok(()) => continue,
                // A main container that has ended keeps nothing from running, and its event reports
                // it; the same holds for a sidecar that is to be frozen.
                Err(Failure::Missing(_)) if role == Role::Main || freeze => continue,
                Err(failure) => failure,
            };
            let error = failure.into_error(|reason| RuntimeError::Other {
                runtime: super::KIND,
                op: "roll back a pause or a resume",
                reason,
            });
            warn!(container, %role, error = %ErrorChain(&error), "a container keeps its state");
            return;
        }
    }
}

impl Members {
    fn sidecars(&self) -> impl Iterator<Item = (Role, &str)> {
        let sidecars = self.sidecars.iter();
        sidecars.map(|(role, container)| (*role, container.as_str()))
    }

    fn lacks_sidecar(&self) -> bool {
        self.needs_sidecar && self.sidecars.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Runtime,
        docker::{fake_engine::FakeEngine, labels},
    };

    /// States of the containers of sandbox `a`: `main`, which joined the network of `side`.
    type States = Arc<Mutex<BTreeMap<&'static str, &'static str>>>;

    const RUNNING: (&str, &str) = ("running", "running");
    const PAUSED: (&str, &str) = ("paused", "paused");

    /// An engine with the freezer, whose call `broken` fails. An empty state is no container.
    async fn engine(
        (main, side): (&'static str, &'static str),
        broken: &str,
    ) -> (FakeEngine, States) {
        let states: States = Arc::new(Mutex::new([("main", main), ("side", side)].into()));
        let (shared, broken) = (Arc::clone(&states), broken.to_owned());
        let engine = FakeEngine::start(move |request| {
            let mut states = shared.lock().unwrap();
            states.retain(|_, state| !state.is_empty());
            if request.starts_with("GET /containers/json") {
                let is_by_role = request.contains("role%3Degress");
                let listed = states
                    .iter()
                    .filter(|(name, _)| !is_by_role || **name == "side");
                let listed: Vec<Value> = listed.map(|(name, state)| summary(name, state)).collect();
                return (200, Value::from(listed).to_string());
            }
            if request.starts_with("GET /volumes") {
                return (200, json!({"Volumes": []}).to_string());
            }
            let mut parts = request.split('/').skip(2);
            let (name, verb) = (parts.next().unwrap(), parts.next().unwrap_or_default());
            let known = states
                .get_key_value(name)
                .map(|(name, state)| (*name, *state));
            let Some((name, state)) = known else {
                return (404, json!({"message": "No such container"}).to_string());
            };
            if !broken.is_empty() && request.starts_with(&broken) {
                return (500, json!({"message": "the freezer is stuck"}).to_string());
            }
            let refused = |status| (status, json!({"message": "not in that state"}).to_string());
            let next = match (verb, state) {
                ("json", _) => return (200, inspected(name, state).to_string()),
                ("pause", "running") => "paused",
                ("unpause", "paused") => "running",
                ("pause", _) => return refused(409),
                ("unpause", _) => return refused(500),
                _ => return (200, json!({}).to_string()),
            };
            states.insert(name, next);
            (204, String::new())
        })
        .await;
        (engine, states)
    }

    fn labels_of(name: &str) -> Value {
        let role = if name == "side" { "egress" } else { "" };
        json!({labels::ID: "a", labels::SERVER: "us", labels::ROLE: role})
    }

    fn network_of(name: &str) -> &'static str {
        if name == "side" {
            "opensandbox"
        } else {
            "container:side"
        }
    }

    fn summary(name: &str, state: &str) -> Value {
        json!({
            "Id": name, "Created": 1, "State": state, "Labels": labels_of(name),
            "HostConfig": {"NetworkMode": network_of(name)},
        })
    }

    fn inspected(name: &str, state: &str) -> Value {
        json!({
            "Id": name, "Created": "2031-05-01T10:00:00Z",
            "Config": {"Labels": labels_of(name)},
            "HostConfig": {"NetworkMode": network_of(name)},
            "State": {
                "Running": matches!(state, "running" | "paused"), "Paused": state == "paused",
                "StartedAt": "2031-05-01T10:00:01Z",
            },
        })
    }

    fn now(states: &States) -> (&'static str, &'static str) {
        let states = states.lock().unwrap();
        let of = |name| states.get(name).copied().unwrap_or_default();
        (of("main"), of("side"))
    }

    fn changes(engine: &FakeEngine) -> Vec<String> {
        let posts = engine.requests("POST /containers/");
        let changes = posts.iter().map(|it| it.replace("POST /containers/", ""));
        changes.collect()
    }

    #[tokio::test]
    async fn the_main_container_never_runs_beside_a_frozen_sidecar() {
        let (engine, states) = engine(RUNNING, "").await;
        let (runtime, id) = (engine.runtime(), "a".into());
        let before = runtime.engine_time();
        let paused = runtime.pause(&id).await.unwrap();
        assert!(paused >= before);
        assert_eq!(now(&states), PAUSED);
        assert!(runtime.resume(&id).await.unwrap() >= paused);
        assert_eq!(now(&states), RUNNING);
        let order = ["main/pause", "side/pause", "side/unpause", "main/unpause"];
        assert_eq!(changes(&engine), order);
    }

    #[tokio::test]
    async fn a_failure_leaves_the_sandbox_as_it_was() {
        for (state, broken) in [
            (RUNNING, "POST /containers/main/pause"),
            (RUNNING, "POST /containers/side/pause"),
            (PAUSED, "POST /containers/side/unpause"),
            (PAUSED, "POST /containers/main/unpause"),
        ] {
            let (engine, states) = engine(state, broken).await;
            let (runtime, id) = (engine.runtime(), SandboxId::from("a"));
            let error = match state {
                RUNNING => runtime.pause(&id).await.unwrap_err(),
                _ => runtime.resume(&id).await.unwrap_err(),
            };
            assert!(
                error.to_string().contains("the freezer is stuck"),
                "{error}"
            );
            let fits = match &error {
                RuntimeError::Pause { .. } => state == RUNNING,
                RuntimeError::Resume { .. } => state == PAUSED,
                _ => false,
            };
            assert!(fits, "{broken}: {error:?}");
            assert_eq!(now(&states), state, "{broken}");
        }
    }

    #[tokio::test]
    async fn a_sandbox_in_another_state_is_refused() {
        for main in ["paused", "exited", "created"] {
            let (engine, _) = engine((main, "running"), "").await;
            let error = engine.runtime().pause(&"a".into()).await.unwrap_err();
            assert!(
                matches!(error, RuntimeError::NotRunning(_)),
                "{main}: {error}"
            );
            assert_eq!(changes(&engine), [""; 0]);
        }
        for main in ["running", "exited"] {
            let (engine, _) = engine((main, "running"), "").await;
            let error = engine.runtime().resume(&"a".into()).await.unwrap_err();
            assert!(
                matches!(error, RuntimeError::NotPaused(_)),
                "{main}: {error}"
            );
            assert_eq!(changes(&engine), [""; 0]);
        }
        let (engine, _) = engine(("", ""), "").await;
        let error = engine.runtime().pause(&"a".into()).await.unwrap_err();
        assert!(matches!(error, RuntimeError::NotFound(_)), "{error}");
    }

    #[tokio::test]
    async fn without_its_sidecar_a_sandbox_stays_paused() {
        for side in ["", "exited"] {
            let (engine, states) = engine(("running", side), "").await;
            let error = engine.runtime().pause(&"a".into()).await.unwrap_err();
            let message = "sandbox a cannot be paused: its egress container is missing";
            assert_eq!(error.to_string(), message);
            assert_eq!(now(&states), ("paused", side));
            let error = engine.runtime().resume(&"a".into()).await.unwrap_err();
            let message = "sandbox a cannot be resumed: its egress container is missing";
            assert_eq!(error.to_string(), message);
            assert_eq!(now(&states), ("paused", side));
        }
    }

    #[tokio::test]
    async fn a_sandbox_that_is_half_paused_can_be_resumed() {
        let (engine, states) = engine(("paused", "running"), "").await;
        engine.runtime().resume(&"a".into()).await.unwrap();
        assert_eq!(now(&states), RUNNING);
    }

    #[tokio::test]
    async fn a_sweep_settles_what_a_crash_left_half_done() {
        for (left, settled) in [
            (("paused", "running"), PAUSED),
            (("running", "paused"), RUNNING),
            (("exited", "paused"), ("exited", "paused")),
            (RUNNING, RUNNING),
            (PAUSED, PAUSED),
        ] {
            let (engine, states) = engine(left, "").await;
            let runtime = engine.runtime();
            // Every connection begins with a list.
            runtime.observe_all().await.unwrap();
            for _ in 0..2 {
                runtime.sweep().await.unwrap();
                assert_eq!(now(&states), settled, "{left:?}");
            }
            assert_eq!(changes(&engine).len(), usize::from(left != settled));
        }
    }

    #[tokio::test]
    async fn sidecars_are_thawed_with_a_capture_that_an_earlier_process_began() {
        let (engine, states) = engine(("running", "paused"), "").await;
        let (runtime, id) = (engine.runtime(), SandboxId::from("a"));
        runtime.observe_all().await.unwrap();
        let turn = runtime.turns.of(&id);
        let operation = turn.lock().await;
        runtime.settle_thawed(&id).await.unwrap();
        assert_eq!(now(&states), ("running", "paused"), "it has its turn");
        drop(operation);
        runtime.settle_thawed(&id).await.unwrap();
        assert_eq!(now(&states), RUNNING);
    }

    #[tokio::test]
    async fn a_sidecar_that_cannot_be_settled_does_not_end_the_sweep() {
        let left = ("paused", "running");
        let (engine, states) = engine(left, "POST /containers/side/pause").await;
        let runtime = engine.runtime();
        runtime.observe_all().await.unwrap();
        runtime.sweep().await.unwrap();
        assert_eq!(now(&states), left);
    }

    #[tokio::test]
    async fn a_container_that_cannot_be_inspected_does_not_end_the_sweep() {
        for broken in ["GET /containers/main/json", "GET /containers/side/json"] {
            let left = ("paused", "running");
            let (engine, states) = engine(left, broken).await;
            let runtime = engine.runtime();
            for (role, container) in [(Role::Main, "main"), (Role::Egress, "side")] {
                let id = "a".into();
                runtime.originals.record_created(&id, role, container);
            }
            runtime.sweep().await.unwrap();
            assert_eq!(now(&states), left, "{broken}");
        }
    }

    #[tokio::test]
    async fn a_rollback_that_fails_does_not_run_the_main_container_beside_a_frozen_sidecar() {
        // The sidecar was frozen although its pause failed, and it cannot be thawed.
        let (engine, states) = engine(PAUSED, "POST /containers/side/unpause").await;
        let steps = vec![(Role::Main, "main"), (Role::Egress, "side")];
        engine.runtime().roll_back(steps, false).await;
        assert_eq!(now(&states), PAUSED, "main thawed beside a frozen sidecar");
    }

    #[tokio::test]
    async fn a_sidecar_that_is_not_known_yet_is_paused_and_resumed_as_well() {
        let (engine, states) = engine(RUNNING, "").await;
        let (runtime, id) = (engine.runtime(), SandboxId::from("a"));
        // Only its main container is known, as when the sidecar's image cannot be inspected.
        runtime.originals.record_created(&id, Role::Main, "main");
        runtime.pause(&id).await.unwrap();
        assert_eq!(now(&states), PAUSED);
        runtime.resume(&id).await.unwrap();
        assert_eq!(now(&states), RUNNING);
    }
}

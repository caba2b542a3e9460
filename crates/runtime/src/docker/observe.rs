//! Observation of containers as sandboxes (contract: lifecycle §12).

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bollard::{
    models::{ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum},
    query_parameters::InspectContainerOptions,
};
use futures::{StreamExt, TryStreamExt, stream};
use osb_protocol::SandboxId;
use tokio::time::timeout;
use tracing::warn;

use super::{
    DockerRuntime,
    conversion::{Owner, network_mode},
    engine::bounded,
    error, group, labels,
};
use crate::{Foreign, Observed, Role, RuntimeError};

/// Most containers of a list, or images of them, that are inspected at the same time.
pub(super) const INSPECTIONS: usize = 8;
/// Longest wait for one container of a list, or for its image.
pub(super) const INSPECTION: Duration = Duration::from_secs(10);

/// Containers and images, by id, whose failing inspection was logged.
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<HashSet<String>>);

impl Unreadable {
    /// Adds an id; returns whether it is new.
    pub(super) fn insert(&self, id: &str) -> bool {
        self.locked().insert(id.to_owned())
    }

    fn forget(&self, id: &str) {
        self.locked().remove(id);
    }

    /// Forgets containers and images that a full list does not have.
    fn keep_listed(&self, list: &[ContainerSummary]) {
        let ids = list
            .iter()
            .flat_map(|container| [container.id.as_deref(), container.image_id.as_deref()]);
        let ids: HashSet<&str> = ids.flatten().collect();
        self.locked().retain(|id| ids.contains(id.as_str()));
    }

    fn locked(&self) -> MutexGuard<'_, HashSet<String>> {
        // The set is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Main containers that have the network of their sidecar, with the sidecar's attachment to it at that
/// time. A list shows neither when a container was started nor, therefore, that a sidecar was started
/// again and left its sandbox behind; but its attachment is another one then.
#[derive(Debug, Default)]
pub(super) struct Joined(Mutex<HashMap<String, String>>);

impl Joined {
    fn record(&self, main: String, attachment: String) {
        self.locked().insert(main, attachment);
    }

    fn has(&self, main: &str, attachment: &str) -> bool {
        self.locked()
            .get(main)
            .is_some_and(|known| known == attachment)
    }

    /// Forgets containers that a full list does not have.
    fn keep_listed(&self, list: &HashMap<&str, &ContainerSummary>) {
        self.locked()
            .retain(|main, _| list.contains_key(main.as_str()));
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, String>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DockerRuntime {
    /// Inspects a main container.
    pub(super) async fn observe(&self, container: &str) -> Result<Observed, RuntimeError> {
        let inspected = self.inspect(container).await?;
        let owner = self.inspect_owner(&inspected).await?;
        let id = inspected.id.clone();
        let attachment = owner.as_ref().and_then(Owner::attachment);
        let observed = self
            .read_inspect(inspected, owner)
            .ok_or_else(|| no_labels(container))?;
        if let (None, Some(id), Some(attachment)) = (observed.status.lost, id, attachment) {
            self.joined.record(id, attachment);
        }
        Ok(observed)
    }

    /// Inspects the container whose network a container has joined. `None` if it has its own.
    async fn inspect_owner(
        &self,
        container: &ContainerInspectResponse,
    ) -> Result<Option<Owner>, RuntimeError> {
        let host = container.host_config.as_ref();
        let mode = host.and_then(|host| host.network_mode.as_deref());
        let Some(owner) = group::network_owner(mode) else {
            return Ok(None);
        };
        match self.inspect(owner).await {
            Ok(owner) => Ok(Some(Owner::of_inspect(owner))),
            Err(RuntimeError::NotFound(_)) => Ok(Some(Owner::default())),
            Err(error) => Err(error),
        }
    }

    /// Inspects an unknown container with a sandbox's id. `None` if it is a copy.
    pub(super) async fn observe_unknown(
        &self,
        container: &str,
    ) -> Result<Option<Observed>, RuntimeError> {
        let inspected = self.inspect(container).await?;
        let image = inspected.image.clone();
        let owner = self.inspect_owner(&inspected).await?;
        let observed = self
            .read_inspect(inspected, owner)
            .ok_or_else(|| no_labels(container))?;
        let id = &observed.origin.id;
        let image = image.as_deref();
        if self.is_original(id, Role::Main, container, image).await? {
            return Ok(Some(observed));
        }
        self.originals.report_copy(id, container);
        Ok(None)
    }

    pub(super) async fn inspect(
        &self,
        container: &str,
    ) -> Result<ContainerInspectResponse, RuntimeError> {
        let docker = self.docker()?;
        bounded(
            docker,
            docker.inspect_container(container, None::<InspectContainerOptions>),
        )
        .await
        .map_err(|error| match error::is_missing(&error) {
            true => RuntimeError::NotFound(SandboxId::new(container)),
            false => error::other("inspect the sandbox", &error),
        })
    }

    /// Reads every sandbox of this installation, and those that it took over, which have no
    /// installation label.
    pub(super) async fn observe_all(&self) -> Result<Vec<Observed>, RuntimeError> {
        // Those that are started meanwhile may be missing in the list.
        let unclaimed = self.warm.unclaimed();
        let list = self.list_originals().await?;
        self.forget_ended(&unclaimed, &list);
        let by_id: HashMap<&str, &ContainerSummary> = list
            .iter()
            .filter_map(|container| Some((container.id.as_deref()?, container)))
            .collect();
        let mut listed = Vec::with_capacity(list.len());
        for container in &list {
            let owner = group::network_owner(network_mode(container)).map(|owner| {
                let owner = by_id.get(owner).copied();
                owner.map(Owner::of_summary).unwrap_or_default()
            });
            let may_be_lost = owner
                .as_ref()
                .is_some_and(|owner| self.may_have_left(container, owner));
            if let Some(observed) = self.read_summary(container, owner) {
                let has_process = matches!(
                    container.state,
                    Some(ContainerSummaryStateEnum::RUNNING | ContainerSummaryStateEnum::PAUSED)
                );
                // The list has neither the end of a container nor the reference's command line.
                let is_complete =
                    has_process && !observed.origin.entrypoint.is_empty() && !may_be_lost;
                let to_inspect = container.id.clone().filter(|_| !is_complete);
                listed.push((observed, to_inspect));
            }
        }
        self.unreadable.keep_listed(&list);
        self.joined.keep_listed(&by_id);
        let observed = stream::iter(listed)
            .map(async |(observed, to_inspect)| match to_inspect {
                None => Ok(Some(observed)),
                Some(container) => self.observe_listed(observed, &container).await,
            })
            .buffered(INSPECTIONS);
        observed
            .try_filter_map(async |observed| Ok(observed))
            .try_collect()
            .await
    }

    /// Forgets warm sidecars that have ended unnoticed, as when the engine was away.
    fn forget_ended(&self, unclaimed: &[SandboxId], list: &[ContainerSummary]) {
        for id in unclaimed {
            let runs = list.iter().any(|container| {
                let labels = container.labels.as_ref();
                container.state == Some(ContainerSummaryStateEnum::RUNNING)
                    && labels.is_some_and(|it| labels::Read(it).id().as_ref() == Some(id))
            });
            if !runs {
                self.warm.lose(id);
            }
        }
    }

    /// Whether a running sidecar may have been started since this main container joined its network.
    fn may_have_left(&self, main: &ContainerSummary, sidecar: &Owner) -> bool {
        let is_known = match (main.id.as_deref(), sidecar.attachment()) {
            (Some(main), Some(attachment)) => self.joined.has(main, &attachment),
            _ => false,
        };
        sidecar.runs() && !is_known
    }

    /// Lists the sandboxes with the label of another installation.
    pub(super) async fn observe_foreign(&self) -> Result<Vec<Foreign>, RuntimeError> {
        let list = self
            .list_labelled(labels::SERVER, "list other instances' sandboxes")
            .await?;
        let foreign = list.iter().filter_map(|container| {
            let read = labels::Read(container.labels.as_ref()?);
            let instance = read
                .server()
                .filter(|server| *server != self.config.instance)?;
            // A sidecar may wait for a sandbox that does not exist yet.
            let is_sandbox = read.role() != Some(Role::Egress);
            is_sandbox.then_some(())?;
            Some(Foreign {
                id: read.id()?,
                instance: instance.to_owned(),
            })
        });
        // Containers of later releases may have other roles.
        let mut foreign: Vec<Foreign> = foreign.collect();
        foreign.extend(self.adoptions.of_others(&self.config.instance));
        foreign.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
        foreign.dedup();
        Ok(foreign)
    }

    /// Inspects a listed container; `None` when it is gone by now. One that cannot be inspected is
    /// reported as the list has it: left out, it would count as removed.
    async fn observe_listed(
        &self,
        listed: Observed,
        container: &str,
    ) -> Result<Option<Observed>, RuntimeError> {
        let result = timeout(INSPECTION, self.observe(container)).await;
        let error = match result.unwrap_or_else(|_| Err(error::no_answer())) {
            Ok(exact) => {
                self.unreadable.forget(container);
                return Ok(Some(exact));
            }
            Err(RuntimeError::NotFound(_)) => return Ok(None),
            Err(error) if error::is_disconnected(&error) => return Err(error),
            Err(error) => error,
        };
        if self.unreadable.insert(container) {
            warn!(
                sandbox = %listed.origin.id,
                container,
                %error,
                "cannot inspect the container, reporting what the list shows"
            );
        }
        Ok(Some(listed))
    }

    /// Returns the sandbox that a container's labels name and the role in it, unless the container
    /// belongs to another installation.
    pub(super) fn place_if_ours(
        &self,
        labels: &HashMap<String, String>,
    ) -> Option<(SandboxId, Role)> {
        let read = labels::Read(labels);
        let (id, instance) = (read.id()?, &self.config.instance);
        let ours = match read.server() {
            Some(server) => server == instance,
            None => self.adoptions.is_owner(instance, &id),
        };
        Some((id, read.role()?)).filter(|_| ours)
    }
}

fn no_labels(container: &str) -> RuntimeError {
    RuntimeError::Other {
        runtime: super::KIND,
        op: "inspect the sandbox",
        reason: format!("{container} has no sandbox labels"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Phase, Runtime,
        docker::{
            DockerConfig,
            fake_engine::{self, CUT, FakeEngine, HANG, HOLD, STALL},
        },
    };

    /// A stopped main container in a list.
    fn stopped(id: &str) -> serde_json::Value {
        json!({
            "Id": id, "Created": 1_935_396_000, "State": "exited", "Image": "debian:12",
            "Labels": {labels::ID: format!("box-{id}"), labels::SERVER: "us"},
        })
    }

    #[tokio::test]
    async fn a_container_that_cannot_be_inspected_stays_in_the_list() {
        for (status, limit) in [(500, 60), (HANG, 1), (STALL, 1)] {
            let engine = FakeEngine::start(move |request| match request {
                _ if request.starts_with("GET /containers/json") => (
                    200,
                    json!([stopped("broken"), stopped("sound")]).to_string(),
                ),
                "GET /containers/sound/json" => {
                    let container = json!({
                        "Created": "2031-05-01T10:00:00Z",
                        "Config": {"Labels": {labels::ID: "box-sound", labels::SERVER: "us"}},
                        "State": {"ExitCode": 3, "FinishedAt": "2031-05-01T10:00:02Z"},
                    });
                    (200, container.to_string())
                }
                _ => (status, json!({"message": "layer is damaged"}).to_string()),
            })
            .await;
            let runtime = engine.runtime_with(DockerConfig {
                api_timeout: Duration::from_secs(limit),
                ..fake_engine::config()
            });
            let all = runtime.observe_all().await.unwrap();
            let phases = all.iter().map(|sandbox| {
                let status = &sandbox.status;
                (sandbox.origin.id.as_str(), status.phase)
            });
            assert_eq!(
                phases.collect::<Vec<_>>(),
                [
                    ("box-broken", Phase::Unknown),
                    ("box-sound", Phase::Exited(3))
                ],
                "{status}"
            );
        }
    }

    #[tokio::test]
    async fn paused_sandboxes_are_read_from_the_list_alone() {
        let engine = FakeEngine::start(|request| {
            assert!(request.starts_with("GET /containers/json"), "{request}");
            let of = |number: usize| {
                json!({
                    "Id": format!("c{number}"), "Created": 1, "State": "paused",
                    "Labels": {
                        labels::ID: format!("box-{number}"), labels::SERVER: "us",
                        labels::ENTRYPOINT: r#"["sleep"]"#,
                    },
                })
            };
            (200, json!((0..100).map(of).collect::<Vec<_>>()).to_string())
        })
        .await;
        let all = engine.runtime().observe_all().await.unwrap();
        let paused = all.iter().filter(|it| it.status.phase == Phase::Paused);
        assert_eq!(paused.count(), 100);
        assert_eq!(engine.requests("GET /containers/c").len(), 0);
    }

    #[tokio::test]
    async fn an_engine_that_vanishes_during_a_list_is_unavailable() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                (200, json!([stopped("a")]).to_string())
            }
            _ => (CUT, String::new()),
        })
        .await;
        let error = engine.runtime().observe_all().await.unwrap_err();
        assert!(matches!(error, RuntimeError::Unavailable { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_container_that_vanishes_during_a_list_is_left_out() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let running = json!({
                    "Id": "runs", "Created": 1_935_396_000, "State": "running", "Command": "sleep",
                    "Labels": {labels::ID: "box-runs", labels::SERVER: "us"},
                });
                (200, json!([stopped("vanished"), running]).to_string())
            }
            "GET /containers/runs/json" => {
                let container = json!({
                    "Config": {"Labels": {labels::ID: "box-runs", labels::SERVER: "us"}},
                    "State": {"Running": true, "StartedAt": "2031-05-01T10:00:02Z"},
                });
                (200, container.to_string())
            }
            _ => (404, json!({"message": "No such container"}).to_string()),
        })
        .await;
        let all = engine.runtime().observe_all().await.unwrap();
        let ids = all.iter().map(|sandbox| sandbox.origin.id.as_str());
        assert_eq!(ids.collect::<Vec<_>>(), ["box-runs"]);
    }

    #[tokio::test]
    async fn stopped_containers_are_inspected_side_by_side_within_a_bound() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let ids = (0..3 * INSPECTIONS).map(|number| stopped(&number.to_string()));
                (200, json!(ids.collect::<Vec<_>>()).to_string())
            }
            _ => (HOLD, json!({"message": "no labels"}).to_string()),
        })
        .await;
        let all = engine.runtime().observe_all().await.unwrap();
        assert_eq!(all.len(), 3 * INSPECTIONS);
        let most = engine.most_open();
        assert!((2..=INSPECTIONS).contains(&most), "{most}");
    }

    #[tokio::test]
    async fn sandboxes_of_other_installations_are_listed_separately() {
        let engine = FakeEngine::start(|_| {
            let of = |id: &str, server: &str| {
                json!({"Labels": {labels::ID: id, labels::SERVER: server}})
            };
            (200, json!([of("a", "us"), of("b", "them")]).to_string())
        })
        .await;
        let foreign = engine.runtime().foreign().await.unwrap();
        let [one] = foreign.as_slice() else {
            panic!("{foreign:?}");
        };
        assert_eq!((one.id.as_str(), one.instance.as_str()), ("b", "them"));
    }
}

//! The containers of each sandbox: one for each of its roles.
//!
//! A sandbox's id is a label, and labels are inherited: `docker commit` writes them into the image,
//! and every container of that image has them. Such a copy is not the sandbox. It is never listed,
//! swept or removed, and its events are ignored.
//!
//! Three criteria distinguish the sandbox from its copies, in this order:
//!
//! 1. Memory: the container that this process created, or found first.
//! 2. The image. Ids are random, so an image with a sandbox's id was committed from that sandbox, and
//!    a container that inherits its id is a copy. The sandbox itself was created before that image.
//!    Containers of earlier releases and of the reference need no mark for this.
//! 3. Age, among containers that were labelled by hand or whose image is gone: a copy is younger
//!    than the container that it was copied from.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bollard::{models::ContainerSummary, query_parameters::ListContainersOptionsBuilder};
use futures::{StreamExt, stream};
use osb_protocol::SandboxId;
use tokio::time::timeout;
use tracing::warn;

use super::{
    DockerRuntime,
    engine::bounded,
    error, labels, names,
    observe::{INSPECTION, INSPECTIONS},
};
use crate::{Role, RuntimeError};

/// Which container has which role in which sandbox.
#[derive(Debug, Default)]
pub(super) struct Originals(Mutex<State>);

/// What happens to a container whose image cannot be inspected, so that it may be a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undecided {
    /// It is reported as the sandbox, which would count as removed otherwise.
    Listed,
    /// The operation fails: a copy must not be removed.
    Refused,
}

/// A role in a sandbox.
type Place = (SandboxId, Role);

/// Results of inspecting images, by their ids.
#[derive(Debug, Default)]
struct Inspected {
    /// The sandbox whose id an image carries.
    ids: HashMap<String, Option<SandboxId>>,
    /// Why an image cannot be inspected.
    failed: HashMap<String, RuntimeError>,
}

#[derive(Debug, Default)]
struct State {
    /// Ids of containers, by sandbox and role.
    known: HashMap<Place, String>,
    /// Ids of containers that were reported as copies.
    copies: HashSet<String>,
    /// The sandbox whose id an image carries, by the image's id. An image never changes.
    images: HashMap<String, Option<SandboxId>>,
    /// Ids of containers that a create of this process starts and inspects itself.
    created: HashSet<String>,
    /// Containers whose names contain the sandbox's id.
    revealing: Vec<(SandboxId, String)>,
    /// Volumes that are removed with sandboxes of the reference.
    volumes: HashMap<SandboxId, Vec<String>>,
}

impl Originals {
    /// Returns the sandbox's main container, if it is known.
    pub(super) fn main(&self, id: &SandboxId) -> Option<String> {
        self.of(id, Role::Main)
    }

    /// Returns the sandbox's container with a role, if it is known.
    pub(super) fn of(&self, id: &SandboxId, role: Role) -> Option<String> {
        self.locked().known.get(&(id.clone(), role)).cloned()
    }

    /// Returns the sandbox's known containers, the main container first.
    pub(super) fn group(&self, id: &SandboxId) -> Vec<String> {
        let roles = Role::ALL.into_iter();
        roles.filter_map(|role| self.of(id, role)).collect()
    }

    /// Records a container that was just created for the sandbox, in place of an earlier one.
    pub(super) fn record_created(&self, id: &SandboxId, role: Role, container: &str) {
        let mut state = self.locked();
        state.created.insert(container.to_owned());
        let place = (id.clone(), role);
        if let Some(earlier) = state.known.insert(place, container.to_owned()) {
            state.created.remove(&earlier);
        }
    }

    /// Whether a start or an exit is the first event of a container since this process created it.
    pub(super) fn take_created(&self, container: &str) -> bool {
        self.locked().created.remove(container)
    }

    /// Records a container for a role of the sandbox, unless another container has it. Returns whether
    /// this one has it now.
    pub(super) fn claim(&self, id: &SandboxId, role: Role, container: &str) -> bool {
        let mut state = self.locked();
        let known = state.known.entry((id.clone(), role));
        known.or_insert_with(|| container.to_owned()) == container
    }

    /// Forgets a removed container.
    pub(super) fn forget(&self, id: &SandboxId, role: Role, container: &str) {
        let mut state = self.locked();
        let place = (id.clone(), role);
        let known = state.known.get(&place);
        if known.is_some_and(|known| known == container) {
            state.known.remove(&place);
            state.created.remove(container);
        }
    }

    /// Logs that a container is a copy, once.
    pub(super) fn report_copy(&self, id: &SandboxId, container: &str) {
        if self.locked().copies.insert(container.to_owned()) {
            warn!(
                sandbox = %id,
                container,
                "the container is a copy of the sandbox with the same id and is ignored"
            );
        }
    }

    /// Takes at most `most` of the containers whose names contain the sandbox's id.
    pub(super) fn take_revealing(&self, most: usize) -> Vec<(SandboxId, String)> {
        let mut state = self.locked();
        let rest = state.revealing.len().saturating_sub(most);
        state.revealing.split_off(rest)
    }

    /// Returns the volumes that are removed with a sandbox of the reference, as far as the last list had
    /// the sandbox.
    pub(super) fn volumes(&self, id: &SandboxId) -> Vec<String> {
        self.locked().volumes.get(id).cloned().unwrap_or_default()
    }

    /// Forgets containers and images that are not in a full list. Containers that were recorded while
    /// the list was read stay.
    fn keep_listed(&self, before: &HashMap<Place, String>, list: &[ContainerSummary]) {
        let containers: HashSet<_> = list.iter().filter_map(|it| it.id.as_deref()).collect();
        let images: HashSet<_> = list
            .iter()
            .filter_map(|it| it.image_id.as_deref())
            .collect();
        let mut state = self.locked();
        let State { known, created, .. } = &mut *state;
        known.retain(|place, container| {
            let stays =
                containers.contains(container.as_str()) || before.get(place) != Some(container);
            if !stays {
                created.remove(container);
            }
            stays
        });
        let copies = |container: &String| containers.contains(container.as_str());
        state.copies.retain(copies);
        state
            .images
            .retain(|image, _| images.contains(image.as_str()));
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // The maps are whole after every operation, so a panic elsewhere does not spoil them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DockerRuntime {
    /// Lists the containers of every sandbox of this installation.
    pub(super) async fn list_originals(&self) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let before = self.originals.locked().known.clone();
        let with_belongings = self.with_belongings();
        // After that: a create which has ended by now has its container in the list.
        let creating = self.creating.all();
        let mut list = self.list_labelled(labels::ID, "list the sandboxes").await?;
        let sidecars = self.list_labelled(labels::SIDECAR_FOR, "list sidecars");
        add_absent(&mut list, sidecars.await?);
        self.adopt_all(&list).await?;
        self.originals.keep_listed(&before, &list);
        let originals = self.select_originals(list, Undecided::Listed).await?;
        let revealing = originals.iter().filter_map(|container| {
            let (id, _) = self.place_if_ours(container.labels.as_ref()?)?;
            let reveals = names::reveals(container, &id);
            Some((id, container.id.clone()?)).filter(|_| reveals)
        });
        let revealing = revealing.collect();
        self.replace_belongings(&with_belongings, &creating, &originals);
        let volumes = originals.iter().filter_map(volumes_of).collect();
        let mut state = self.originals.locked();
        state.revealing = revealing;
        state.volumes = volumes;
        drop(state);
        Ok(originals)
    }

    /// Finds the containers of one sandbox, and records them as known.
    pub(super) async fn find_group(&self, id: &SandboxId) -> Result<Vec<String>, RuntimeError> {
        let label = format!("{}={id}", labels::ID);
        let mut list = self.list_labelled(&label, "find the sandbox").await?;
        // A container with our label has no sidecar of the reference.
        let is_ours = |container: &ContainerSummary| {
            let labels = container.labels.as_ref();
            labels.is_some_and(|labels| labels::Read(labels).server().is_some())
        };
        if !list.iter().any(is_ours) {
            let label = format!("{}={id}", labels::SIDECAR_FOR);
            let sidecars = self.list_labelled(&label, "find the sandbox's sidecar");
            add_absent(&mut list, sidecars.await?);
        }
        self.adopt_listed(&list).await?;
        // What is found is removed or frozen: the engine's filter alone does not decide that.
        list.retain(|container| {
            let labels = container.labels.as_ref();
            labels.is_some_and(|labels| labels::Read(labels).id().as_ref() == Some(id))
        });
        let found = self.select_originals(list, Undecided::Refused).await?;
        self.record_belongings(&found);
        let volumes = found.iter().filter_map(volumes_of);
        self.originals.locked().volumes.extend(volumes);
        Ok(found
            .into_iter()
            .filter_map(|container| container.id)
            .collect())
    }

    pub(super) async fn list_labelled(
        &self,
        label: &str,
        op: &'static str,
    ) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let filter = HashMap::from([("label", vec![label])]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filter)
            .build();
        let docker = self.docker()?;
        let list = bounded(docker, docker.list_containers(Some(options))).await;
        list.map_err(|error| error::other(op, &error))
    }

    /// Selects, of all containers with the same id and role, the one that belongs to the sandbox.
    async fn select_originals(
        &self,
        list: Vec<ContainerSummary>,
        undecided: Undecided,
    ) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let mut by_place = BTreeMap::<Place, Vec<ContainerSummary>>::new();
        for container in list {
            let place = container
                .labels
                .as_ref()
                .and_then(|it| self.place_if_ours(it));
            if let Some(place) = place {
                by_place.entry(place).or_default().push(container);
            }
        }
        let mut images = self.inspect_images(&by_place).await?;
        let mut originals = Vec::with_capacity(by_place.len());
        for ((id, role), mut containers) in by_place {
            // Oldest last.
            containers.sort_by_key(|it| (Reverse(it.created), it.id.clone()));
            let mut original = None;
            while let Some(container) = containers.pop() {
                let Some(name) = container.id.clone() else {
                    continue;
                };
                let image = container.image_id.as_deref();
                let is_original = match (self.originals.of(&id, role), image) {
                    (Some(known), _) => known == name,
                    (None, None) => self.originals.claim(&id, role, &name),
                    (None, Some(image)) => {
                        if undecided == Undecided::Refused
                            && let Some(error) = images.failed.remove(image)
                        {
                            return Err(error);
                        }
                        if let Some(error) = images.failed.get(image) {
                            if self.unreadable.insert(image) {
                                warn!(
                                    sandbox = %id,
                                    container = name,
                                    %error,
                                    "cannot check whether the container is a copy, assuming that it is not"
                                );
                            }
                            // Not recorded: the next list asks again, and a removal asks strictly.
                            original = Some(container);
                            break;
                        }
                        // Not inspected: the known container was removed in the meantime.
                        let Some(inherited) = images.ids.get(image) else {
                            continue;
                        };
                        inherited.as_ref() != Some(&id) && self.originals.claim(&id, role, &name)
                    }
                };
                match is_original {
                    true => original = Some(container),
                    false => self.originals.report_copy(&id, &name),
                }
            }
            originals.extend(original);
        }
        Ok(originals)
    }

    /// Inspects the images of containers with roles for which no container is known. Fails only if the
    /// engine cannot be reached.
    async fn inspect_images(
        &self,
        by_place: &BTreeMap<Place, Vec<ContainerSummary>>,
    ) -> Result<Inspected, RuntimeError> {
        let images: BTreeSet<String> = by_place
            .iter()
            .filter(|((id, role), _)| self.originals.of(id, *role).is_none())
            .flat_map(|(_, containers)| containers)
            .filter_map(|container| container.image_id.clone())
            .collect();
        let mut results = stream::iter(images)
            .map(async |image| {
                let id = self.id_in_image(&image).await;
                (image, id)
            })
            .buffer_unordered(INSPECTIONS);
        let mut inspected = Inspected::default();
        while let Some((image, result)) = results.next().await {
            match result {
                Ok(id) => drop(inspected.ids.insert(image, id)),
                Err(error) if error::is_disconnected(&error) => return Err(error),
                Err(error) => drop(inspected.failed.insert(image, error)),
            }
        }
        Ok(inspected)
    }

    /// Whether a container with the sandbox's id belongs to the sandbox. If none is known, it does from
    /// now on, unless it inherits the id from its image.
    pub(super) async fn is_original(
        &self,
        id: &SandboxId,
        role: Role,
        container: &str,
        image: Option<&str>,
    ) -> Result<bool, RuntimeError> {
        if let Some(known) = self.originals.of(id, role) {
            return Ok(known == container);
        }
        if let Some(image) = image
            && self.id_in_image(image).await?.as_ref() == Some(id)
        {
            return Ok(false);
        }
        Ok(self.originals.claim(id, role, container))
    }

    /// Reads the sandbox id among the labels of an image. An image that is gone has none.
    async fn id_in_image(&self, image: &str) -> Result<Option<SandboxId>, RuntimeError> {
        if let Some(known) = self.originals.locked().images.get(image) {
            return Ok(known.clone());
        }
        let docker = self.docker()?;
        let inspected = timeout(INSPECTION, bounded(docker, docker.inspect_image(image))).await;
        let labels = match inspected {
            Ok(Ok(image)) => image.config.and_then(|config| config.labels),
            Ok(Err(error)) if error::is_missing(&error) => return Ok(None),
            Ok(Err(error)) => return Err(error::other("inspect the image", &error)),
            Err(_) => return Err(error::no_answer()),
        };
        let id = labels.and_then(|labels| labels::Read(&labels).id());
        let mut state = self.originals.locked();
        state.images.insert(image.to_owned(), id.clone());
        Ok(id)
    }
}

/// Returns the sandbox of a container with the volumes that are removed with it, if there are any.
fn volumes_of(container: &ContainerSummary) -> Option<(SandboxId, Vec<String>)> {
    let read = labels::Read(container.labels.as_ref()?);
    Some((read.id()?, read.volumes())).filter(|(_, volumes)| !volumes.is_empty())
}

/// Adds the containers of a second list that the first does not have.
fn add_absent(list: &mut Vec<ContainerSummary>, more: Vec<ContainerSummary>) {
    let known: HashSet<Option<String>> = list.iter().map(|it| it.id.clone()).collect();
    list.extend(more.into_iter().filter(|it| !known.contains(&it.id)));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Runtime,
        docker::fake_engine::{FakeEngine, HOLD},
    };

    fn container(name: &str, image: &str, created: i64) -> Value {
        json!({
            "Id": name, "ImageID": image, "Created": created, "State": "running",
            "Labels": {
                labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: r#"["sleep"]"#,
            },
        })
    }

    /// Starts an engine with these containers and two images: `plain`, and `commit` of sandbox `a`.
    async fn engine(containers: Value) -> FakeEngine {
        FakeEngine::start(move |request| match request {
            _ if request.starts_with("GET /containers/json") => (200, containers.to_string()),
            "GET /images/plain/json" => (200, json!({"Config": {"Labels": null}}).to_string()),
            "GET /images/commit/json" => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!({"Config": {"Labels": labels}}).to_string())
            }
            "GET /images/damaged/json" => (500, json!({"message": "damaged"}).to_string()),
            _ if request.starts_with("GET /images") => (404, json!({"message": ""}).to_string()),
            _ if request.starts_with("DELETE") => (204, String::new()),
            _ => (500, json!({"message": request}).to_string()),
        })
        .await
    }

    async fn listed(runtime: &DockerRuntime) -> Vec<String> {
        let list = runtime.list_originals().await.unwrap();
        list.into_iter().filter_map(|it| it.id).collect()
    }

    #[tokio::test]
    async fn a_container_that_inherits_its_id_from_its_image_is_a_copy() {
        // The clock of the engine may have been set back in between.
        let copy = container("copy", "commit", 1);
        let both = engine(json!([copy, container("original", "plain", 2)])).await;
        let runtime = both.runtime();
        assert_eq!(listed(&runtime).await, ["original"]);
        assert_eq!(listed(&runtime).await, ["original"]);
        assert_eq!(
            both.requests("GET /images").len(),
            2,
            "an image never changes"
        );
        runtime.remove(&"a".into()).await.unwrap();
        // Again in a new process.
        both.runtime().remove(&"a".into()).await.unwrap();
        let removed = both.requests("DELETE");
        assert_eq!(removed.len(), 2);
        let original = |request: &String| request.starts_with("DELETE /containers/original?");
        assert!(removed.iter().all(original), "{removed:?}");

        let alone = engine(json!([copy])).await;
        let runtime = alone.runtime();
        assert_eq!(listed(&runtime).await, [""; 0]);
        runtime.remove(&"a".into()).await.unwrap();
        assert_eq!(alone.requests("DELETE"), [""; 0]);
    }

    #[tokio::test]
    async fn a_container_whose_image_cannot_be_inspected_is_listed_but_not_removed() {
        let engine = engine(json!([container("only", "damaged", 1)])).await;
        let runtime = engine.runtime();
        assert_eq!(listed(&runtime).await, ["only"]);
        runtime.remove(&"a".into()).await.unwrap_err();
        assert_eq!(engine.requests("DELETE"), [""; 0]);
    }

    #[tokio::test]
    async fn images_are_inspected_side_by_side_within_a_bound() {
        const SANDBOXES: usize = 3 * INSPECTIONS;
        let containers = (0..SANDBOXES).map(|number| {
            let id = format!("c{number}");
            json!({
                "Id": id, "ImageID": format!("i{number}"), "State": "running",
                "Labels": {labels::ID: id, labels::SERVER: "us"},
            })
        });
        let list = json!(containers.collect::<Vec<_>>()).to_string();
        let engine = FakeEngine::start(move |request| match request {
            _ if request.starts_with("GET /containers/json") => (200, list.clone()),
            _ => (HOLD, json!({}).to_string()),
        })
        .await;
        assert_eq!(listed(&engine.runtime()).await.len(), SANDBOXES);
        assert_eq!(engine.requests("GET /images").len(), SANDBOXES);
        let most = engine.most_open();
        assert!((2..=INSPECTIONS).contains(&most), "{most}");
    }

    #[tokio::test]
    async fn the_oldest_of_containers_labelled_by_hand_is_the_sandbox() {
        let (old, new) = (container("old", "gone", 1), container("new", "plain", 2));
        for order in [json!([old, new]), json!([new, old])] {
            let engine = engine(order).await;
            assert_eq!(listed(&engine.runtime()).await, ["old"]);
        }
    }

    #[tokio::test]
    async fn a_container_that_this_process_created_is_the_sandbox() {
        let (older, made) = (container("older", "plain", 1), container("made", "gone", 2));
        let engine = engine(json!([older, made])).await;
        let runtime = engine.runtime();
        runtime
            .originals
            .record_created(&"a".into(), Role::Main, "made");
        assert_eq!(listed(&runtime).await, ["made"]);
    }

    #[tokio::test]
    async fn a_container_that_is_not_listed_is_forgotten() {
        let engine = engine(json!([])).await;
        let runtime = engine.runtime();
        runtime
            .originals
            .record_created(&"a".into(), Role::Main, "made");
        assert_eq!(listed(&runtime).await, [""; 0]);
        assert_eq!(runtime.originals.main(&"a".into()), None);
    }
}

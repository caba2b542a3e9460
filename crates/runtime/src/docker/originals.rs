//! The containers of each sandbox: one for each of its roles.
//!
//! A sandbox's id is a label, and labels are inherited: `docker commit` writes them into the image,
//! and every container of that image carries them. Such a copy is not the sandbox. It is never
//! listed, swept or removed, and what happens to it is ignored.
//!
//! Three things tell the sandbox from its copies, in this order:
//!
//! 1. Memory: the container that this process made, or found first.
//! 2. The image. Ids are random, so an image that carries a sandbox's id was committed from that
//!    sandbox, and a container that has its id from there is a copy. The sandbox itself was made
//!    before that image. Containers of earlier releases and of the reference need no mark for this.
//! 3. Age, among containers that got the label by hand or whose image is gone: a copy is younger
//!    than what it was copied from.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bollard::{models::ContainerSummary, query_parameters::ListContainersOptionsBuilder};
use osb_protocol::SandboxId;
use tracing::warn;

use super::{DockerRuntime, engine::bounded, error, labels, names};
use crate::{Role, RuntimeError};

/// Which container each sandbox is.
#[derive(Debug, Default)]
pub(super) struct Originals(Mutex<State>);

/// What a container is to which sandbox.
type Place = (SandboxId, Role);

#[derive(Debug, Default)]
struct State {
    /// Ids of containers, by sandbox and role.
    known: HashMap<Place, String>,
    /// Ids of containers that were reported as copies.
    copies: HashSet<String>,
    /// The sandbox whose id an image carries, by the image's id. An image never changes.
    images: HashMap<String, Option<SandboxId>>,
    /// Ids of containers whose first start is a create's, which looks at them itself.
    created: HashSet<String>,
    /// Containers whose names tell the sandbox's id.
    revealing: Vec<(SandboxId, String)>,
}

impl Originals {
    /// The sandbox's main container, as far as this process knows.
    pub(super) fn main(&self, id: &SandboxId) -> Option<String> {
        self.of(id, Role::Main)
    }

    /// The sandbox's container with a role, as far as this process knows.
    pub(super) fn of(&self, id: &SandboxId, role: Role) -> Option<String> {
        self.locked().known.get(&(id.clone(), role)).cloned()
    }

    /// The sandbox's containers, as far as this process knows; the main container first.
    pub(super) fn group(&self, id: &SandboxId) -> Vec<String> {
        let roles = Role::ALL.into_iter();
        roles.filter_map(|role| self.of(id, role)).collect()
    }

    /// Takes a container that was made just now for the sandbox, which had another one or none.
    pub(super) fn record_created(&self, id: &SandboxId, role: Role, container: &str) {
        let mut state = self.locked();
        state.created.insert(container.to_owned());
        let place = (id.clone(), role);
        if let Some(earlier) = state.known.insert(place, container.to_owned()) {
            state.created.remove(&earlier);
        }
    }

    /// Whether a start, or an end, is the first that is heard of a container since it was made here.
    pub(super) fn take_created(&self, container: &str) -> bool {
        self.locked().created.remove(container)
    }

    /// Forgets a container that is gone.
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
                "the container is a copy of the sandbox: it carries the same id and is left alone"
            );
        }
    }

    /// Some of the containers whose names tell the sandbox's id, each of them once.
    pub(super) fn take_revealing(&self, most: usize) -> Vec<(SandboxId, String)> {
        let mut state = self.locked();
        let rest = state.revealing.len().saturating_sub(most);
        state.revealing.split_off(rest)
    }

    /// Forgets containers and images that a full list does not show. What was recorded while the
    /// list was read stays.
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
    /// Every sandbox of this installation.
    pub(super) async fn list_originals(&self) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let before = self.originals.locked().known.clone();
        let list = self.list_labelled(labels::ID, "list the sandboxes").await?;
        self.originals.keep_listed(&before, &list);
        let originals = self.select_originals(list).await?;
        let revealing = originals.iter().filter_map(|container| {
            let (id, _) = self.place_if_ours(container.labels.as_ref()?)?;
            let reveals = names::reveals(container, &id);
            Some((id, container.id.clone()?)).filter(|_| reveals)
        });
        self.originals.locked().revealing = revealing.collect();
        Ok(originals)
    }

    /// Looks for the containers of one sandbox; the main container is the first that is known then.
    pub(super) async fn find_group(&self, id: &SandboxId) -> Result<Vec<String>, RuntimeError> {
        let label = format!("{}={id}", labels::ID);
        let list = self.list_labelled(&label, "look for the sandbox").await?;
        let found = self.select_originals(list).await?;
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

    /// Of all containers with the same id the one that is the sandbox.
    async fn select_originals(
        &self,
        list: Vec<ContainerSummary>,
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
                if self.is_original(&id, role, &name, image).await? {
                    original = Some(container);
                } else {
                    self.originals.report_copy(&id, &name);
                }
            }
            originals.extend(original);
        }
        Ok(originals)
    }

    /// Whether a container that carries the sandbox's id is the sandbox. Without a known one it is,
    /// from now on, unless it has the id from its image.
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
        let mut state = self.originals.locked();
        let known = state.known.entry((id.clone(), role));
        Ok(known.or_insert_with(|| container.to_owned()) == container)
    }

    /// The sandbox id among the labels of an image; an image that is gone has none.
    async fn id_in_image(&self, image: &str) -> Result<Option<SandboxId>, RuntimeError> {
        if let Some(known) = self.originals.locked().images.get(image) {
            return Ok(known.clone());
        }
        let docker = self.docker()?;
        let labels = match bounded(docker, docker.inspect_image(image)).await {
            Ok(image) => image.config.and_then(|config| config.labels),
            Err(error) if error::is_missing(&error) => return Ok(None),
            Err(error) => return Err(error::other("look at the image", &error)),
        };
        let id = labels.and_then(|labels| labels::Read(&labels).id());
        let mut state = self.originals.locked();
        state.images.insert(image.to_owned(), id.clone());
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Runtime, docker::fake_engine::FakeEngine};

    fn container(name: &str, image: &str, created: i64) -> Value {
        json!({
            "Id": name, "ImageID": image, "Created": created, "State": "running",
            "Labels": {
                labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: r#"["sleep"]"#,
            },
        })
    }

    /// An engine with these containers and two images: `plain`, and `commit` of sandbox `a`.
    async fn engine(containers: Value) -> FakeEngine {
        FakeEngine::start(move |request| match request {
            _ if request.starts_with("GET /containers/json") => (200, containers.to_string()),
            "GET /images/plain/json" => (200, json!({"Config": {"Labels": null}}).to_string()),
            "GET /images/commit/json" => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!({"Config": {"Labels": labels}}).to_string())
            }
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
    async fn a_container_that_has_its_id_from_its_image_is_a_copy() {
        // The clock of the engine may have been set back in between.
        let copy = container("copy", "commit", 1);
        let both = engine(json!([copy, container("original", "plain", 2)])).await;
        let runtime = both.runtime();
        assert_eq!(listed(&runtime).await, ["original"]);
        assert_eq!(listed(&runtime).await, ["original"]);
        assert_eq!(both.asked("GET /images").len(), 2, "an image never changes");
        runtime.remove(&"a".into()).await.unwrap();
        // Again without memory.
        both.runtime().remove(&"a".into()).await.unwrap();
        let removed = both.asked("DELETE");
        assert_eq!(removed.len(), 2);
        let original = |request: &String| request.starts_with("DELETE /containers/original?");
        assert!(removed.iter().all(original), "{removed:?}");

        let alone = engine(json!([copy])).await;
        let runtime = alone.runtime();
        assert_eq!(listed(&runtime).await, [""; 0]);
        runtime.remove(&"a".into()).await.unwrap();
        assert_eq!(alone.asked("DELETE"), [""; 0]);
    }

    #[tokio::test]
    async fn of_containers_with_a_label_by_hand_the_oldest_is_the_sandbox() {
        let (old, new) = (container("old", "gone", 1), container("new", "plain", 2));
        for order in [json!([old, new]), json!([new, old])] {
            let engine = engine(order).await;
            assert_eq!(listed(&engine.runtime()).await, ["old"]);
        }
    }

    #[tokio::test]
    async fn the_container_that_was_made_is_the_sandbox_whatever_others_say() {
        let (older, made) = (container("older", "plain", 1), container("made", "gone", 2));
        let engine = engine(json!([older, made])).await;
        let runtime = engine.runtime();
        runtime
            .originals
            .record_created(&"a".into(), Role::Main, "made");
        assert_eq!(listed(&runtime).await, ["made"]);
    }

    #[tokio::test]
    async fn a_container_that_is_gone_is_forgotten() {
        let engine = engine(json!([])).await;
        let runtime = engine.runtime();
        runtime
            .originals
            .record_created(&"a".into(), Role::Main, "made");
        assert_eq!(listed(&runtime).await, [""; 0]);
        assert_eq!(runtime.originals.main(&"a".into()), None);
    }
}

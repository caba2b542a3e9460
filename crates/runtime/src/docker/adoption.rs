//! Owners of sandboxes without an installation label.
//!
//! Labels cannot change, so a sandbox of the reference looks the same to every installation on the
//! engine, also after one of them took it over. Two owners would both end it, each by the expiry that
//! it knows. The owner is therefore recorded on the engine: as an empty volume, whose name follows
//! from the sandbox's id and whose label names the installation. The engine has each name once and
//! leaves an existing volume as it is, so exactly one of several installations finds its own label.
//!
//! A sandbox whose owner cannot be read or recorded is not taken over yet; the next list tries again.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bollard::{
    models::{ContainerSummary, Volume, VolumeCreateRequest},
    query_parameters::{ListVolumesOptionsBuilder, RemoveVolumeOptions},
};
use futures::{StreamExt, stream};
use osb_protocol::SandboxId;
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::{DockerRuntime, engine::bounded, error, labels, observe::INSPECTIONS};
use crate::{Foreign, RuntimeError};

/// Prefix of the names of records.
const PREFIX: &str = "osb-owner-";
/// Bytes of the id's digest in the name of a record. The id itself would be shown to every user of the
/// engine.
const DIGEST_BYTES: usize = 16;
/// Prefix of the volume that the reference gives to a sandbox with a sidecar.
const RUNTIME_VOLUME: &str = "opensandbox-runtime-";
/// Value of the label of a volume that is removed with its sandbox.
pub(super) const MANAGED: &str = "server";

/// Installations that own sandboxes without an installation label.
#[derive(Debug, Default)]
pub(super) struct Adoptions(Mutex<HashMap<SandboxId, String>>);

impl Adoptions {
    /// Whether the owner of a sandbox is known.
    pub(super) fn is_decided(&self, id: &SandboxId) -> bool {
        self.locked().contains_key(id)
    }

    /// Whether an installation is known to own a sandbox.
    pub(super) fn is_owner(&self, instance: &str, id: &SandboxId) -> bool {
        self.locked().get(id).is_some_and(|owner| owner == instance)
    }

    /// Returns the sandboxes that other installations own.
    pub(super) fn of_others(&self, instance: &str) -> Vec<Foreign> {
        let owners = self.locked();
        let others = owners.iter().filter(|(_, owner)| *owner != instance);
        others
            .map(|(id, owner)| Foreign {
                id: id.clone(),
                instance: owner.clone(),
            })
            .collect()
    }

    fn record(&self, id: SandboxId, owner: String) {
        self.locked().insert(id, owner);
    }

    fn forget(&self, id: &SandboxId) {
        self.locked().remove(id);
    }

    fn keep(&self, ids: &BTreeSet<SandboxId>) {
        self.locked().retain(|id, _| ids.contains(id));
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<SandboxId, String>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name of the record of a sandbox's owner.
fn record_name(id: &SandboxId) -> String {
    let digest = Sha256::digest(id.as_str());
    let mut name = PREFIX.to_owned();
    for byte in &digest[..DIGEST_BYTES] {
        write!(name, "{byte:02x}").expect("a string takes any text");
    }
    name
}

/// Reads a record: the sandbox and its owner.
fn read_record(volume: &Volume) -> Option<(SandboxId, String)> {
    let id = volume.labels.get(labels::OWNER_OF)?;
    let owner = volume.labels.get(labels::SERVER)?;
    Some((SandboxId::new(id), owner.clone()))
}

/// Ids of the sandboxes in a list that have no installation label.
fn unlabelled(list: &[ContainerSummary]) -> BTreeSet<SandboxId> {
    let labels = list
        .iter()
        .filter_map(|container| container.labels.as_ref());
    labels
        .map(labels::Read)
        .filter(|read| read.server().is_none())
        .filter_map(|read| read.id())
        .collect()
}

impl DockerRuntime {
    /// Finds the owners of all sandboxes without an installation label. The list has every container
    /// of the engine that belongs to a sandbox.
    pub(super) async fn adopt_all(&self, list: &[ContainerSummary]) -> Result<(), RuntimeError> {
        self.adoptions.keep(&unlabelled(list));
        self.adopt_listed(list).await
    }

    /// Finds the owners of the sandboxes in a list that have no installation label. One without an
    /// owner is taken over.
    pub(super) async fn adopt_listed(&self, list: &[ContainerSummary]) -> Result<(), RuntimeError> {
        let ids = unlabelled(list);
        if ids.is_empty() {
            return Ok(());
        }
        let mut records = match self.list_records().await {
            Ok(records) => records,
            Err(error) => {
                self.report_undecided(PREFIX, error)?;
                HashMap::new()
            }
        };
        let mut ownerless = Vec::new();
        for id in ids {
            match records.remove(&id) {
                Some(owner) => self.adoptions.record(id, owner),
                None => ownerless.push(id),
            }
        }
        if !self.config.take_over {
            return Ok(());
        }
        let mut adopted = stream::iter(ownerless)
            .map(async |id| {
                let result = self.adopt(&id).await;
                (id, result)
            })
            .buffer_unordered(INSPECTIONS);
        while let Some((id, result)) = adopted.next().await {
            if let Err(error) = result {
                self.report_undecided(id.as_str(), error)?;
            }
        }
        Ok(())
    }

    /// Takes over a sandbox, unless another installation owns it.
    pub(super) async fn adopt(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        let failed = |error| error::other("record the owner of a sandbox", &error);
        let name = record_name(id);
        let instance = &self.config.instance;
        let labels = HashMap::from([
            (labels::OWNER_OF.to_owned(), id.to_string()),
            (labels::SERVER.to_owned(), instance.clone()),
        ]);
        let request = VolumeCreateRequest {
            name: Some(name.clone()),
            labels: Some(labels),
            ..VolumeCreateRequest::default()
        };
        let made = bounded(docker, docker.create_volume(request)).await;
        made.map_err(failed)?;
        // The response does not show whether the volume existed before.
        let record = bounded(docker, docker.inspect_volume(&name)).await;
        let record = record.map_err(failed)?;
        let owner = read_record(&record).map(|(_, owner)| owner);
        // Another program's volume of that name has no owner, and cannot get one.
        let owner = owner.unwrap_or_default();
        if owner == *instance {
            info!(sandbox = %id, record = name, "took over a sandbox of another server");
        } else {
            info!(sandbox = %id, record = name, owner, "another instance owns the sandbox");
        }
        self.adoptions.record(id.clone(), owner);
        Ok(())
    }

    /// Removes what belongs to a sandbox without an installation label besides its containers: the
    /// volumes that were made for it, and the record of its owner. A volume that stays is no reason to
    /// keep the sandbox.
    pub(super) async fn remove_belongings(&self, id: &SandboxId, mut volumes: Vec<String>) {
        // Not in the list if the reference died while it created the sandbox.
        volumes.push(format!("{RUNTIME_VOLUME}{id}"));
        volumes.sort_unstable();
        volumes.dedup();
        for volume in volumes {
            if self.is_managed(id, &volume).await {
                self.remove_volume(id, &volume).await;
            }
        }
        self.remove_volume(id, &record_name(id)).await;
        self.adoptions.forget(id);
    }

    /// Removes records of this installation whose sandboxes are gone, with what belongs to those.
    pub(super) async fn sweep_records(&self) -> Result<(), RuntimeError> {
        // The records first: each was made for a container that existed.
        let mut records = self.list_records().await?;
        records.retain(|_, owner| *owner == self.config.instance);
        if records.is_empty() {
            return Ok(());
        }
        let mut alive = HashSet::new();
        for label in [labels::ID, labels::SIDECAR_FOR] {
            let list = self.list_labelled(label, "list the sandboxes").await?;
            let labels = list.iter().filter_map(|it| it.labels.as_ref());
            alive.extend(labels.filter_map(|labels| labels::Read(labels).id()));
        }
        for id in records.into_keys().filter(|id| !alive.contains(id)) {
            self.remove_belongings(&id, Vec::new()).await;
        }
        Ok(())
    }

    /// Lists all records: sandboxes with their owners.
    async fn list_records(&self) -> Result<HashMap<SandboxId, String>, RuntimeError> {
        let docker = self.docker()?;
        let filter = HashMap::from([("label", vec![labels::OWNER_OF])]);
        let options = ListVolumesOptionsBuilder::default()
            .filters(&filter)
            .build();
        let list = bounded(docker, docker.list_volumes(Some(options))).await;
        let list = list.map_err(|error| error::other("list the owners of sandboxes", &error))?;
        let volumes = list.volumes.unwrap_or_default();
        Ok(volumes.iter().filter_map(read_record).collect())
    }

    /// Whether a volume was made for sandboxes. A container's list of volumes is a label, and labels are
    /// inherited from images.
    async fn is_managed(&self, id: &SandboxId, volume: &str) -> bool {
        let Ok(docker) = self.docker() else {
            return false;
        };
        match bounded(docker, docker.inspect_volume(volume)).await {
            Ok(found) => {
                let label = found.labels.get(labels::VOLUMES).map(String::as_str);
                if label != Some(MANAGED) {
                    warn!(sandbox = %id, volume, "keeping a volume that was not made for sandboxes");
                }
                label == Some(MANAGED)
            }
            Err(error) if error::is_missing(&error) => false,
            Err(error) => {
                let reason = error::reason(&error);
                warn!(sandbox = %id, volume, reason, "cannot inspect a volume of the sandbox, keeping it");
                false
            }
        }
    }

    async fn remove_volume(&self, id: &SandboxId, volume: &str) {
        let Ok(docker) = self.docker() else {
            return;
        };
        let removed = docker.remove_volume(volume, None::<RemoveVolumeOptions>);
        match bounded(docker, removed).await {
            Ok(()) => info!(sandbox = %id, volume, "removed a volume of the sandbox"),
            Err(error) if error::is_missing(&error) => {}
            Err(error) => {
                let reason = error::reason(&error);
                warn!(sandbox = %id, volume, reason, "cannot remove a volume of the sandbox");
            }
        }
    }

    /// Logs, once, that the owner of a sandbox is not known. Fails if the engine cannot be reached.
    fn report_undecided(&self, about: &str, error: RuntimeError) -> Result<(), RuntimeError> {
        if error::is_disconnected(&error) {
            return Err(error);
        }
        if self.unreadable.insert(about) {
            warn!(about, %error, "cannot read which instance owns a sandbox without an instance label");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Runtime,
        docker::{
            DockerConfig,
            fake_engine::{self, FakeEngine, FakeVolumes},
        },
    };

    const SANDBOXES: usize = 20;

    fn containers() -> Value {
        let of = |number| {
            json!({
                "Id": format!("c{number}"), "Created": 1, "State": "running",
                "Names": [format!("/sandbox-box-{number}")],
                "Labels": {labels::ID: format!("box-{number}"), labels::ENTRYPOINT: r#"["x"]"#},
            })
        };
        (0..SANDBOXES).map(of).collect()
    }

    /// An engine with sandboxes of the reference.
    async fn engine() -> (FakeEngine, Arc<FakeVolumes>) {
        let volumes = Arc::<FakeVolumes>::default();
        let shared = Arc::clone(&volumes);
        let engine = FakeEngine::start_reading(move |request, body| {
            if let Some(response) = shared.respond(request, body) {
                return response;
            }
            if request.starts_with("GET /containers/json") {
                let is_swept = request.contains("created") || request.contains("sidecar");
                let list = if is_swept { json!([]) } else { containers() };
                return (200, list.to_string());
            }
            (204, String::new())
        })
        .await;
        (engine, volumes)
    }

    fn instance(engine: &FakeEngine, name: &str) -> DockerRuntime {
        engine.runtime_with(DockerConfig {
            instance: name.to_owned(),
            ..fake_engine::config()
        })
    }

    async fn listed(runtime: &DockerRuntime) -> BTreeSet<String> {
        let all = runtime.observe_all().await.unwrap();
        all.iter().map(|it| it.origin.id.to_string()).collect()
    }

    #[tokio::test]
    async fn two_instances_on_one_engine_never_own_the_same_sandbox() {
        let (engine, volumes) = engine().await;
        let (one, two) = (instance(&engine, "one"), instance(&engine, "two"));
        let (mine, theirs) = tokio::join!(listed(&one), listed(&two));
        assert!(mine.is_disjoint(&theirs), "{mine:?} {theirs:?}");
        assert_eq!(mine.len() + theirs.len(), SANDBOXES);
        for (instance, before) in [("one", &mine), ("two", &theirs)] {
            let restarted = self::instance(&engine, instance);
            assert_eq!(listed(&restarted).await, *before, "after a restart");
            let others = restarted.foreign().await.unwrap().len();
            assert_eq!(others, SANDBOXES - before.len());
        }
        // A removal by the other instance removes nothing.
        let (owner, other) = match mine.contains("box-0") {
            true => (&one, &two),
            false => (&two, &one),
        };
        let id = "box-0".into();
        other.remove(&id).await.unwrap();
        assert_eq!(engine.requests("DELETE"), [""; 0]);
        owner.remove(&id).await.unwrap();
        // The list of this engine, which knows no filters, never changes: it is removed once more.
        assert_eq!(engine.requests("DELETE /containers/c0?").len(), 2);
        assert_eq!(engine.requests("DELETE /containers/").len(), 2);
        assert_eq!(volumes.names().len(), SANDBOXES - 1, "the record is gone");
    }

    #[tokio::test]
    async fn a_sandbox_whose_owner_cannot_be_recorded_is_not_taken_over() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => (200, containers().to_string()),
            _ => (500, json!({"message": "read-only"}).to_string()),
        })
        .await;
        assert_eq!(listed(&instance(&engine, "one")).await.len(), 0);
        assert_eq!(engine.requests("POST /volumes/create").len(), SANDBOXES);
    }

    #[tokio::test]
    async fn records_of_sandboxes_that_are_gone_are_swept() {
        let (engine, volumes) = engine().await;
        let runtime = instance(&engine, "one");
        listed(&runtime).await;
        runtime.adopt(&"gone".into()).await.unwrap();
        instance(&engine, "two")
            .adopt(&"theirs".into())
            .await
            .unwrap();
        volumes.add(
            "opensandbox-runtime-gone",
            json!({labels::VOLUMES: MANAGED}),
        );
        runtime.sweep_records().await.unwrap();
        let left = volumes.names();
        assert_eq!(left.len(), SANDBOXES + 1, "{left:?}");
        assert!(left.contains(&record_name(&"theirs".into())), "{left:?}");
        assert!(!left.contains(&record_name(&"gone".into())), "{left:?}");
    }

    #[tokio::test]
    async fn only_volumes_that_were_made_for_sandboxes_are_removed_with_one() {
        let (engine, volumes) = engine().await;
        let runtime = instance(&engine, "one");
        volumes.add(
            "opensandbox-runtime-box-1",
            json!({labels::VOLUMES: MANAGED}),
        );
        volumes.add("made", json!({labels::VOLUMES: MANAGED}));
        volumes.add("database", json!({}));
        let listed = ["made", "database", "absent"].map(str::to_owned).to_vec();
        runtime.remove_belongings(&"box-1".into(), listed).await;
        assert_eq!(volumes.names(), ["database"]);
    }
}

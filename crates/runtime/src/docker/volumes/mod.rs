//! Volumes of sandboxes: directories of the host, named volumes, and buckets (contract: lifecycle
//! §17.8, §17.9).
//!
//! ```text
//! create:  find or make each volume ─▶ record it for the sandbox ─▶ mounts and labels of the container
//! remove:  containers ─▶ volumes and buckets that no other sandbox uses
//! sweep:   what a crash left: volumes and buckets of this installation without a user
//! ```
//!
//! Who uses what follows from the labels of all containers on the engine, and from the creates in
//! progress ([`ledger`]). Nothing else is stored, so a new process knows as much as the last one.

mod below;
mod claims;
mod host_files;
mod ledger;
mod ossfs;
mod others;
mod places;
mod provide;

use std::{collections::HashSet, path::PathBuf, time::Duration};

use bollard::models::{ContainerCreateBody, ContainerSummary, HealthConfig, Mount};
use osb_protocol::SandboxId;
use tokio::{task::spawn_blocking, time::timeout};
use tracing::warn;

pub(super) use self::ledger::Belongings;
use self::{
    below::Watched, host_files::AllowedPaths, ledger::Ledger, ossfs::Ossfs, others::Starts,
};
use super::{DockerConfig, DockerRuntime, labels, turns::Turns};
use crate::{RuntimeError, VolumeFailure};

/// Longest look at files of the host: a file system on a network may hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the back end knows of volumes.
#[derive(Debug)]
pub(super) struct Volumes {
    ledger: Ledger,
    /// One operation at a time on each named volume.
    claims: Turns<String>,
    /// One operation at a time on each bucket.
    buckets: Turns<String>,
    ossfs: Ossfs,
    allowed: AllowedPaths,
    starts: Starts,
}

impl Volumes {
    pub(super) fn new(config: &DockerConfig) -> Self {
        let allowed = AllowedPaths::resolve(&config.storage.allowed_host_paths);
        Self {
            ledger: Ledger::default(),
            claims: Turns::default(),
            buckets: Turns::default(),
            ossfs: Ossfs::new(&config.storage, &config.instance, allowed.clone()),
            allowed,
            starts: Starts::default(),
        }
    }
}

/// The volumes of a create, as its main container gets them.
#[derive(Debug, Default)]
pub(super) struct Provided {
    mounts: Vec<Mount>,
    claims: Vec<String>,
    /// Volumes that this create made and that go with their last user.
    managed: Vec<String>,
    buckets: Vec<PathBuf>,
    /// Directories of the host.
    watched: Vec<Watched>,
    /// Directories of volumes that the engine looks up, with the place of each volume in the request.
    sub_paths: Vec<(usize, String)>,
}

impl Provided {
    /// Adds the mounts and their labels to the create request of the main container. execd starts nothing
    /// if another directory was mounted.
    pub(super) fn attach(&self, id: &SandboxId, body: &mut ContainerCreateBody) {
        if self.mounts.is_empty() {
            return;
        }
        let racy = self.watched.iter().filter(|watched| watched.is_racy);
        let flags: Vec<String> = racy.map(Watched::flag).collect();
        if !flags.is_empty() {
            // The engine would run the image's check beside execd, perhaps before execd has looked.
            body.healthcheck = Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            });
        }
        if let Some(init) = &mut body.entrypoint {
            // Before the mark that ends the flags.
            let end = init.len().saturating_sub(1);
            init.splice(end..end, flags);
        }
        let host = body.host_config.get_or_insert_default();
        host.mounts = Some(self.mounts.clone());
        let (buckets, labels) = (&self.buckets, body.labels.get_or_insert_default());
        labels::put_volumes(labels, &self.claims, &self.managed, buckets);
        if !self.watched.is_empty() {
            let held = below::held(&self.watched);
            labels.insert(labels::HELD.to_owned(), places::note(id, held));
        }
    }

    /// The volume of the request that an engine's own words about a failed start are about.
    pub(super) fn blamed(&self, own_words: &str, reason: &str) -> Option<RuntimeError> {
        below::blamed(&self.sub_paths, own_words, reason)
    }
}

/// Why a volume of a request cannot be provided.
#[derive(Debug)]
enum Refused {
    Volume {
        member: &'static str,
        failure: VolumeFailure,
        reason: String,
    },
    Runtime(RuntimeError),
}

impl From<RuntimeError> for Refused {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl Refused {
    fn sub_path(failure: VolumeFailure, reason: impl Into<String>) -> Self {
        Self::Volume {
            member: "subPath",
            failure,
            reason: reason.into(),
        }
    }

    fn of_volume(self, index: usize) -> RuntimeError {
        match self {
            Self::Volume {
                member,
                failure,
                reason,
            } => RuntimeError::Volume {
                index,
                member,
                failure,
                reason,
            },
            Self::Runtime(error) => error,
        }
    }
}

impl DockerRuntime {
    /// What a sandbox uses besides its containers, as far as this process knows.
    pub(super) fn belongings(&self, id: &SandboxId) -> Belongings {
        self.volumes.ledger.of(id)
    }

    /// The sandboxes that have belongings, as far as this process knows.
    pub(super) fn with_belongings(&self) -> HashSet<SandboxId> {
        self.volumes.ledger.known()
    }

    /// Records what the sandboxes of a list use.
    pub(super) fn record_belongings(&self, list: &[ContainerSummary]) {
        let labels = list.iter().filter_map(|it| it.labels.as_ref());
        for read in labels.map(labels::Read) {
            if let Some(id) = read.id() {
                self.volumes.ledger.add(&id, Belongings::of(&read));
            }
        }
    }

    /// Records what all sandboxes use, by a full list. Those that were known `before` it and are not in it
    /// are gone, unless their create was in progress when it began.
    pub(super) fn replace_belongings(
        &self,
        before: &HashSet<SandboxId>,
        creating: &HashSet<SandboxId>,
        list: &[ContainerSummary],
    ) {
        let labels = list.iter().filter_map(|it| it.labels.as_ref());
        let listed: HashSet<SandboxId> = labels
            .filter_map(|labels| labels::Read(labels).id())
            .collect();
        self.volumes
            .ledger
            .keep(before, |id| listed.contains(id) || creating.contains(id));
        self.record_belongings(list);
    }

    /// Removes a sandbox's volumes that go with their last user, and ends the mounts of its buckets, as far
    /// as no other sandbox uses them. The sandbox has no container any more. What fails is left to the
    /// sweep: it is no reason to keep the sandbox.
    pub(super) async fn release_volumes(&self, id: &SandboxId, mut belongings: Belongings) {
        belongings.merge(self.volumes.ledger.of(id));
        if belongings.is_empty() {
            return;
        }
        match self.used_by_others(Some(id)).await {
            Ok(used) => self.release_unused(Some(id), belongings, &used).await,
            Err(error) => {
                warn!(sandbox = %id, %error, "cannot read which volumes are in use, leaving them to the sweep");
            }
        }
        self.volumes.ledger.forget(id);
    }

    /// Removes volumes and mounts of this installation that no sandbox uses: a crash left them, or a
    /// container was removed by another program.
    pub(super) async fn sweep_volumes(&self) -> Result<(), RuntimeError> {
        let ossfs = &self.volumes.ossfs;
        ossfs.remove_stale_files();
        let left = Belongings {
            claims: self.transient_volumes().await?.into_iter().collect(),
            buckets: ossfs.own_mounts().await.into_iter().collect(),
            is_foreign: false,
        };
        if left.is_empty() {
            return Ok(());
        }
        let used = self.used_by_others(None).await?;
        self.release_unused(None, left, &used).await;
        Ok(())
    }

    async fn release_unused(
        &self,
        id: Option<&SandboxId>,
        belongings: Belongings,
        used: &Belongings,
    ) {
        let Volumes {
            ledger,
            claims,
            buckets,
            ossfs,
            ..
        } = &self.volumes;
        for name in belongings.claims {
            let turn = claims.of(&name);
            let _turn = turn.lock().await;
            // A create may have begun to use it since the list was read.
            let is_used =
                used.claims.contains(&name) || ledger.of_others(id).claims.contains(&name);
            if !is_used {
                self.remove_claim(id, &name).await;
            }
        }
        for path in belongings.buckets {
            let Some(bucket) = ossfs.bucket_of(&path) else {
                continue;
            };
            let turn = buckets.of(&bucket);
            let _turn = turn.lock().await;
            let mut in_use = ledger.of_others(id).buckets;
            in_use.extend(used.buckets.iter().cloned());
            ossfs.release(&path, &in_use, belongings.is_foreign).await;
        }
    }

    /// What the sandboxes of all installations on the engine use, but one.
    async fn used_by_others(&self, id: Option<&SandboxId>) -> Result<Belongings, RuntimeError> {
        let list = self
            .list_labelled(labels::ID, "list the users of volumes")
            .await?;
        let mut used = self.volumes.ledger.of_others(id);
        for labels in list.iter().filter_map(|it| it.labels.as_ref()) {
            let read = labels::Read(labels);
            if id.is_none() || read.id().as_ref() != id {
                used.merge(Belongings::of(&read));
            }
        }
        Ok(used)
    }
}

/// Does work on files, unless it takes too long.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(PATIENCE, spawn_blocking(work)).await.ok()?.ok()
}

#[cfg(test)]
mod tests;

//! Snapshots as images on the engine (contract: lifecycle §9.3).
//!
//! A capture is one call of the engine, which freezes the main container, stores its layer and names
//! the image: after that the snapshot is complete. A second step only removes what the image says of
//! the sandbox. Everything that is known of a snapshot on the engine is in the labels of its image.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use bollard::{
    errors::Error,
    models::{ContainerInspectResponse, ImageSummary},
    query_parameters::{
        CommitContainerOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
    },
};
use osb_protocol::SandboxId;
use osb_service::ErrorChain;
use tracing::{info, warn};

use super::{DockerRuntime, engine::bounded, error, image, labels, snapshot_config};
use crate::{RuntimeError, SecureKind, Snapshots, StoredSnapshot};

/// Start of the comment on an image. Unlike labels, images that are made from it do not inherit it.
const COMMENT: &str = "OpenSandbox snapshot ";
/// How long an image without a name is kept: the engine names it right after it made it.
const NAMELESS_KEPT: Duration = Duration::from_secs(3600);
/// Pause between two looks at a sandbox that the engine still captures.
const STILL_FROZEN: Duration = Duration::from_secs(1);

#[async_trait]
impl Snapshots for DockerRuntime {
    async fn check(&self, sandbox: &SandboxId) -> Result<(), RuntimeError> {
        self.capturable(sandbox).await.map(drop)
    }

    async fn take(
        &self,
        sandbox: &SandboxId,
        snapshot: &str,
    ) -> Result<StoredSnapshot, RuntimeError> {
        let turn = self.turns.of(sandbox);
        let _no_pause_meanwhile = turn.lock().await;
        let (container, inspected) = self.capturable(sandbox).await?;
        if !is_running(&inspected) {
            return Err(failed(snapshot, format!("sandbox {sandbox} does not run")));
        }
        self.commit(sandbox, snapshot, &container, inspected).await
    }

    async fn thawed(&self, sandbox: &SandboxId) {
        while self.capturing.contains(sandbox) {
            let is_frozen = match self.main_container(sandbox).await {
                Ok(container) => self.is_frozen(&container).await,
                Err(RuntimeError::NotFound(_)) => Some(false),
                Err(_) => None,
            };
            if is_frozen == Some(false) {
                self.capturing.leave(sandbox);
                return;
            }
            tokio::time::sleep(STILL_FROZEN).await;
        }
    }

    async fn may_go_on(&self, sandbox: &SandboxId) -> Result<bool, RuntimeError> {
        let container = match self.main_container(sandbox).await {
            Ok(container) => container,
            Err(RuntimeError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        match self.inspect(&container).await {
            Ok(inspected) => Ok(is_frozen(&inspected)),
            Err(RuntimeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn find(&self, snapshot: &str) -> Result<Option<StoredSnapshot>, RuntimeError> {
        let (docker, image) = (self.docker()?, image::of_snapshot(snapshot));
        match bounded(docker, docker.inspect_image(&image)).await {
            Ok(_) => {}
            Err(error) if error::is_missing(&error) => return Ok(None),
            Err(error) => return Err(error::other("look for the snapshot", &error)),
        }
        Ok(Some(self.completed(snapshot).await))
    }

    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError> {
        let image = image::of_snapshot(snapshot);
        match self.remove_image(&image, "remove the snapshot").await? {
            None => Ok(()),
            Some(reason) => Err(RuntimeError::SnapshotInUse {
                snapshot: snapshot.to_owned(),
                reason,
            }),
        }
    }

    async fn list(&self) -> Result<Vec<(String, Duration)>, RuntimeError> {
        let label = format!("{}={}", labels::SNAPSHOT_SERVER, self.config.instance);
        let filter = HashMap::from([("label", vec![label.as_str()])]);
        let options = ListImagesOptionsBuilder::default().filters(&filter).build();
        let docker = self.docker()?;
        let list = bounded(docker, docker.list_images(Some(options))).await;
        let list = list.map_err(|error| error::other("list the snapshots", &error))?;
        let mut snapshots = Vec::with_capacity(list.len());
        for listed in list {
            let Some(id) = listed.labels.get(labels::SNAPSHOT).cloned() else {
                continue;
            };
            let age = self.age(&listed);
            // An image that was made from it has the labels as well, but another name.
            if listed.repo_tags.contains(&image::of_snapshot(&id)) {
                snapshots.push((id, age));
            } else if has_no_name(&listed) && age >= NAMELESS_KEPT {
                match self.remove_nameless(&id, &listed.id).await {
                    Err(error @ RuntimeError::Unavailable { .. }) => return Err(error),
                    Err(error) => {
                        warn!(
                            snapshot = id, image = listed.id, error = %ErrorChain(&error),
                            "an image without a name stays"
                        );
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(snapshots)
    }
}

/// What became of an image that was to be removed.
pub(super) enum Removal {
    /// It was removed.
    Done,
    /// There was none.
    Missing,
    /// It is in use: the engine's reason.
    InUse(String),
}

impl DockerRuntime {
    /// The main container of a sandbox, unless the engine does not see what is written in it. By default,
    /// gVisor keeps that in a file of its own (contract: lifecycle §9, A10).
    async fn capturable(
        &self,
        sandbox: &SandboxId,
    ) -> Result<(String, ContainerInspectResponse), RuntimeError> {
        let container = self.main_container(sandbox).await?;
        let inspected = self
            .inspect(&container)
            .await
            .map_err(|error| match error {
                // By its own name rather than that of its container.
                RuntimeError::NotFound(_) => RuntimeError::NotFound(sandbox.clone()),
                error => error,
            })?;
        let host = inspected.host_config.as_ref();
        let runtime = host.and_then(|host| host.runtime.as_deref());
        match runtime.and_then(|name| self.secure_runtime_named(name)) {
            Some(secure @ SecureKind::Gvisor) => Err(RuntimeError::Uncapturable {
                id: sandbox.clone(),
                secure,
            }),
            Some(SecureKind::Kata) | None => Ok((container, inspected)),
        }
    }

    async fn commit(
        &self,
        sandbox: &SandboxId,
        snapshot: &str,
        container: &str,
        inspected: ContainerInspectResponse,
    ) -> Result<StoredSnapshot, RuntimeError> {
        let docker = self.docker()?;
        let config = inspected.config.unwrap_or_default();
        let base = inspected.image.unwrap_or_default();
        let base = match bounded(docker, docker.inspect_image(&base)).await {
            Ok(base) => base.config.unwrap_or_default(),
            // Nothing else says what the sandbox has from its image, and what is a secret of its own.
            Err(error) if error::is_missing(&error) => {
                let reason = format!("the image of sandbox {sandbox} was deleted from the host");
                return Err(failed(snapshot, reason));
            }
            Err(error) => return Err(error::other("inspect the sandbox's image", &error)),
        };
        let marks = [
            (labels::SNAPSHOT_SERVER, self.config.instance.as_str()),
            (labels::SNAPSHOT, snapshot),
            (labels::SNAPSHOT_SOURCE, sandbox.as_str()),
            (labels::VENDOR, labels::VENDOR_NAME),
        ];
        let options = CommitContainerOptionsBuilder::default()
            .container(container)
            .repo(image::SNAPSHOTS)
            .tag(snapshot)
            .comment(&format!("{COMMENT}{snapshot}"))
            .pause(true)
            .build();
        let body = snapshot_config::of(&config, base, &marks);
        let frozen_by_the_engine = self.capturing.enter(sandbox);
        let committed = bounded(docker, docker.commit_container(options, body)).await;
        if let Err(error) = &committed
            && error::unavailable(error).is_some()
            && self.is_frozen(container).await != Some(false)
        {
            // The engine goes on. Sidecars must not follow the main container meanwhile.
            frozen_by_the_engine.keep();
        } else {
            drop(frozen_by_the_engine);
        }
        match committed {
            Ok(_) => {}
            Err(Error::RequestTimeoutError) => {
                return Err(RuntimeError::CaptureTimedOut {
                    snapshot: snapshot.to_owned(),
                    seconds: docker.timeout().as_secs(),
                });
            }
            Err(error) if error::is_missing(&error) => {
                return Err(RuntimeError::NotFound(sandbox.clone()));
            }
            Err(error) => {
                let reason = error::reason(&error);
                let unavailable = error::unavailable(&error);
                return Err(unavailable.unwrap_or_else(|| failed(snapshot, reason)));
            }
        }
        Ok(self.completed(snapshot).await)
    }

    /// Whether a container is frozen. `None` if the engine does not say.
    async fn is_frozen(&self, container: &str) -> Option<bool> {
        match self.inspect(container).await {
            Ok(inspected) => Some(is_frozen(&inspected)),
            Err(RuntimeError::NotFound(_)) => Some(false),
            Err(_) => None,
        }
    }

    /// Describes a snapshot that is stored. Its capture may have been cut off after that.
    async fn completed(&self, snapshot: &str) -> StoredSnapshot {
        self.clean_snapshot(snapshot).await;
        let image = image::of_snapshot(snapshot);
        let size_bytes = self.own_size(&image).await;
        StoredSnapshot { image, size_bytes }
    }

    /// The size of an image's topmost layer: what the capture added. Unknown after a failure, which does
    /// not make the snapshot unusable.
    async fn own_size(&self, image: &str) -> Option<u64> {
        let docker = self.docker().ok()?;
        match bounded(docker, docker.image_history(image)).await {
            Ok(layers) => u64::try_from(layers.first()?.size).ok(),
            Err(error) => {
                let reason = error::reason(&error);
                warn!(image, reason, "the size of the snapshot is not known");
                None
            }
        }
    }

    /// Removes a name of an image, and with its last name the layers that only it has. Returns why it
    /// stays, if it is in use.
    pub(super) async fn remove_image(
        &self,
        image: &str,
        op: &'static str,
    ) -> Result<Option<String>, RuntimeError> {
        match self.remove_name(image, op).await? {
            Removal::Done | Removal::Missing => Ok(None),
            Removal::InUse(reason) => Ok(Some(reason)),
        }
    }

    /// The same, and says what happened.
    pub(super) async fn remove_name(
        &self,
        image: &str,
        op: &'static str,
    ) -> Result<Removal, RuntimeError> {
        let docker = self.docker()?;
        let removed = docker.remove_image(image, None::<RemoveImageOptions>, None);
        match bounded(docker, removed).await {
            Ok(_) => Ok(Removal::Done),
            Err(error) if error::is_missing(&error) => Ok(Removal::Missing),
            Err(error) if error::status(&error) == Some(409) => {
                Ok(Removal::InUse(error::reason(&error)))
            }
            Err(error) => Err(error::other(op, &error)),
        }
    }

    /// Removes an image that the engine made for a snapshot and did not name. Another one without a name
    /// may have inherited the labels.
    async fn remove_nameless(&self, snapshot: &str, image: &str) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        let inspected = match bounded(docker, docker.inspect_image(image)).await {
            Ok(inspected) => inspected,
            Err(error) if error::is_missing(&error) => return Ok(()),
            Err(error) => return Err(error::other("inspect an image without a name", &error)),
        };
        if inspected.comment.as_deref() != Some(&format!("{COMMENT}{snapshot}")) {
            return Ok(());
        }
        // It is in use if sandboxes were created from it before it lost its name, or other snapshots
        // need it.
        let in_use = self.remove_image(image, "remove the snapshot").await?;
        if in_use.is_none() {
            info!(snapshot, image, "removed an image without a name");
        }
        Ok(())
    }

    fn age(&self, image: &ImageSummary) -> Duration {
        let seconds = self.engine_time().unix_ms() / 1000 - image.created;
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}

fn is_running(container: &ContainerInspectResponse) -> bool {
    let Some(state) = &container.state else {
        return false;
    };
    let is = |flag: Option<bool>| flag == Some(true);
    is(state.running) && !is(state.paused) && !is(state.restarting)
}

fn is_frozen(container: &ContainerInspectResponse) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.paused == Some(true))
}

fn has_no_name(image: &ImageSummary) -> bool {
    let mut tags = image.repo_tags.iter();
    tags.all(|tag| tag == "<none>:<none>")
}

fn failed(snapshot: &str, reason: String) -> RuntimeError {
    RuntimeError::Capture {
        snapshot: snapshot.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests;

//! execd in a volume: filled once per build and mounted read-only into every sandbox, so that a
//! create copies nothing.
//!
//! The volume is named by the hash of the binary. It is filled through a helper container that is
//! never started, because the engine writes into a volume only through a container. A server that
//! crashes in between leaves a volume without a complete binary, so the size of the file is compared
//! once per process.

use std::{collections::HashMap, path::Path};

use bollard::{
    Docker,
    models::{Volume, VolumeCreateRequest},
    query_parameters::{
        ContainerArchiveInfoOptionsBuilder, ListVolumesOptionsBuilder, RemoveVolumeOptions,
        UploadToContainerOptionsBuilder,
    },
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, OnceCell};
use tracing::{debug, info};

use super::{engine::bounded, error, execd_binary::ExecdBinary, helper, labels};
use crate::RuntimeError;

/// Where the volume appears in a sandbox. `/opt/opensandbox` itself stays writable.
pub(super) const MOUNT: &str = "/opt/opensandbox/.dist";
/// How long an unused volume of another installation is kept.
const FOREIGN_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// execd inside a sandbox.
pub(super) const EXECD: &str = "/opt/opensandbox/.dist/execd";

/// The volume of this server's execd build.
#[derive(Debug)]
pub(super) struct ExecdVolume {
    name: String,
    build: String,
    instance: String,
    binary: ExecdBinary,
    filled: OnceCell<()>,
    /// How often the volume was recreated. The lock admits one at a time, as that begins with a
    /// removal.
    refilled: Mutex<u64>,
}

impl ExecdVolume {
    pub(super) fn load(path: &Path, instance: &str) -> Result<Self, RuntimeError> {
        let binary = ExecdBinary::open(path)?;
        let build = binary.build();
        Ok(Self {
            name: format!("opensandbox-execd-{build}"),
            build,
            instance: instance.to_owned(),
            binary,
            filled: OnceCell::new(),
            refilled: Mutex::default(),
        })
    }

    /// The build of execd that it is for.
    #[cfg(test)]
    pub(super) fn build(&self) -> &str {
        &self.build
    }

    /// Returns the bind of a sandbox.
    pub(super) fn bind(&self) -> String {
        format!("{}:{MOUNT}:ro,nocopy", self.name)
    }

    /// Makes sure that the volume contains execd. `image` is any image on the host.
    pub(super) async fn ensure(&self, docker: &Docker, image: &str) -> Result<(), RuntimeError> {
        self.filled
            .get_or_try_init(|| self.fill(docker, image))
            .await
            .copied()
    }

    /// Whether the volume is known to contain execd.
    pub(super) fn is_ready(&self) -> bool {
        self.filled.initialized()
    }

    /// Returns how often the volume was recreated. Waits while it is being recreated.
    pub(super) async fn generation(&self) -> u64 {
        *self.refilled.lock().await
    }

    /// Whether the volume is not what this server filled, after a sandbox did not start. The engine's
    /// words cannot show that, because a client or its image may have covered execd. The volume shows it:
    /// another program removed it, and the engine made one of that name for a container, without its
    /// label. If the engine's own words blame execd, `is_blamed`, its content counts as well. `true`, too,
    /// if the volume was recreated after generation `seen`.
    pub(super) async fn is_lost(
        &self,
        docker: &Docker,
        image: &str,
        seen: u64,
        is_blamed: bool,
    ) -> bool {
        if self.generation().await != seen {
            return true;
        }
        match bounded(docker, docker.inspect_volume(&self.name)).await {
            Ok(volume) if volume.labels.get(labels::EXECD_BUILD) == Some(&self.build) => {
                is_blamed && self.is_empty(docker, image).await
            }
            Ok(_) => true,
            Err(error) => error::is_missing(&error),
        }
    }

    /// Whether the volume has no complete execd. An image with volumes of its own, which may cover it, is
    /// no way to see that.
    async fn is_empty(&self, docker: &Docker, image: &str) -> bool {
        let Ok(inspected) = bounded(docker, docker.inspect_image(image)).await else {
            return false;
        };
        let declared = inspected.config.and_then(|config| config.volumes);
        if declared.is_some_and(|declared| !declared.is_empty()) {
            return false;
        }
        let Ok(helper) = self.create_helper(docker, image).await else {
            return false;
        };
        let has_execd = self.has_execd(docker, &helper).await;
        helper::remove(docker, &helper).await;
        matches!(has_execd, Ok(false))
    }

    /// Recreates a volume that is lost ([`Self::is_lost`]). Does nothing if that was done after generation `seen`,
    /// because another create may be about to use the new volume.
    pub(super) async fn refill(
        &self,
        docker: &Docker,
        image: &str,
        seen: u64,
    ) -> Result<(), RuntimeError> {
        let mut generation = self.refilled.lock().await;
        if *generation != seen {
            return Ok(());
        }
        let removed = docker.remove_volume(&self.name, None::<RemoveVolumeOptions>);
        if let Err(error) = bounded(docker, removed).await {
            debug!(
                volume = self.name,
                reason = error::reason(&error),
                "cannot remove the execd volume"
            );
        }
        if let Err(error) = self.fill(docker, image).await {
            // With its label it would count as filled.
            let removed = docker.remove_volume(&self.name, None::<RemoveVolumeOptions>);
            if let Err(left) = bounded(docker, removed).await {
                debug!(
                    volume = self.name,
                    reason = error::reason(&left),
                    "an empty execd volume stays"
                );
            }
            return Err(error);
        }
        *generation += 1;
        Ok(())
    }

    async fn fill(&self, docker: &Docker, image: &str) -> Result<(), RuntimeError> {
        let label = HashMap::from([
            (labels::EXECD_BUILD.to_owned(), self.build.clone()),
            (labels::SERVER.to_owned(), self.instance.clone()),
        ]);
        let request = VolumeCreateRequest {
            name: Some(self.name.clone()),
            labels: Some(label),
            ..VolumeCreateRequest::default()
        };
        bounded(docker, docker.create_volume(request))
            .await
            .map_err(|error| failed("create the volume", error))?;
        let helper = self.create_helper(docker, image).await?;
        let written = self.write_if_needed(docker, &helper).await;
        helper::remove(docker, &helper).await;
        written
    }

    /// Creates a helper container with the volume, and returns its name.
    async fn create_helper(&self, docker: &Docker, image: &str) -> Result<String, RuntimeError> {
        let bind = format!("{}:{MOUNT}:nocopy", self.name);
        helper::create(docker, image, &self.instance, vec![bind])
            .await
            .map_err(|error| failed("create the helper container", error))
    }

    /// Whether the volume has a file of execd's size, as a helper container shows.
    async fn has_execd(&self, docker: &Docker, helper: &str) -> Result<bool, RuntimeError> {
        let options = ContainerArchiveInfoOptionsBuilder::default()
            .path(EXECD)
            .build();
        let info = docker.get_container_archive_info(helper, Some(options));
        match bounded(docker, info).await {
            Ok(info) => Ok(u64::try_from(info.size) == Ok(self.binary.size())),
            Err(error) if error::is_missing(&error) => Ok(false),
            Err(error) => Err(failed("inspect the volume", error)),
        }
    }

    async fn write_if_needed(&self, docker: &Docker, helper: &str) -> Result<(), RuntimeError> {
        if self.has_execd(docker, helper).await? {
            return Ok(());
        }
        let options = UploadToContainerOptionsBuilder::default()
            .path(MOUNT)
            .build();
        let archive = bollard::body_full(self.binary.archive().await?);
        let written = docker.upload_to_container(helper, Some(options), archive);
        bounded(docker, written)
            .await
            .map_err(|error| failed("write execd", error))?;
        info!(
            volume = self.name,
            bytes = self.binary.size(),
            "execd provided"
        );
        Ok(())
    }

    /// Removes unused volumes of other execd builds: this installation's at once, those of other
    /// installations when they are old. An installation that needs one again recreates it.
    pub(super) async fn sweep_other_builds(&self, docker: &Docker) -> Result<(), RuntimeError> {
        let filter = HashMap::from([("label", vec![labels::EXECD_BUILD])]);
        let options = ListVolumesOptionsBuilder::default()
            .filters(&filter)
            .build();
        let list = bounded(docker, docker.list_volumes(Some(options)))
            .await
            .map_err(|error| error::other("list volumes", &error))?;
        let now = Timestamp::now();
        let old = list.volumes.unwrap_or_default().into_iter();
        for volume in old.filter(|volume| self.is_useless(volume, now)) {
            let removed = docker.remove_volume(&volume.name, None::<RemoveVolumeOptions>);
            match bounded(docker, removed).await {
                Ok(()) => info!(volume = volume.name, "removed an unused execd volume"),
                Err(error) => debug!(
                    volume = volume.name,
                    reason = error::reason(&error),
                    "an older execd volume is still in use"
                ),
            }
        }
        Ok(())
    }

    /// Whether the volume may be removed if no container uses it. Another installation may be about to
    /// use its own, so those are kept for a while.
    fn is_useless(&self, volume: &Volume, now: Timestamp) -> bool {
        if volume.name == self.name {
            return false;
        }
        if volume.labels.get(labels::SERVER) == Some(&self.instance) {
            return true;
        }
        let made = volume.created_at.as_deref();
        made.and_then(|made| made.parse::<Timestamp>().ok())
            .is_some_and(|made| now.duration_since(made) > FOREIGN_KEPT)
    }
}

fn failed(what: &str, error: bollard::errors::Error) -> RuntimeError {
    error::unavailable(&error).unwrap_or_else(|| RuntimeError::Execd {
        reason: format!("cannot {what}: {}", error::reason(&error)),
        source: Some(error.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[test]
    fn volumes_of_other_installations_are_removed_only_when_they_are_old() {
        let own = ExecdVolume {
            name: "opensandbox-execd-new".to_owned(),
            build: "new".to_owned(),
            instance: "us".to_owned(),
            binary: ExecdBinary::open(Path::new("/dev/null")).unwrap(),
            filled: OnceCell::new(),
            refilled: Mutex::default(),
        };
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let useless = |name: &str, server: Option<&str>, made: Option<&str>| {
            let server = server.map(|server| (labels::SERVER.to_owned(), server.to_owned()));
            own.is_useless(
                &Volume {
                    name: name.to_owned(),
                    labels: server.into_iter().collect(),
                    created_at: made.map(str::to_owned),
                    ..Volume::default()
                },
                now,
            )
        };
        let (old, fresh) = (
            Some("2026-11-20T19:59:59+08:00"),
            Some("2026-11-20T12:00:01Z"),
        );
        assert!(!useless("opensandbox-execd-new", Some("us"), old));
        assert!(useless("opensandbox-execd-a", Some("us"), fresh));
        assert!(useless("opensandbox-execd-a", Some("them"), old));
        assert!(useless("opensandbox-execd-a", None, old));
        assert!(!useless("opensandbox-execd-a", Some("them"), fresh));
        assert!(!useless("opensandbox-execd-a", Some("them"), None));
        assert!(!useless(
            "opensandbox-execd-a",
            Some("them"),
            Some("yesterday")
        ));
    }

    #[tokio::test]
    async fn concurrent_creates_without_execd_recreate_the_volume_once() {
        let engine = FakeEngine::start(FakeEngine::with_volumes).await;
        let (runtime, docker) = (engine.runtime(), engine.docker());
        let seen = runtime.execd.generation().await;
        let refills = (0..8).map(|_| runtime.execd.refill(&docker, "debian:12", seen));
        futures::future::try_join_all(refills).await.unwrap();
        assert_eq!(engine.requests("DELETE /volumes").len(), 1);
        assert_eq!(engine.requests("PUT").len(), 1);
        let seen = runtime.execd.generation().await;
        runtime
            .execd
            .refill(&docker, "debian:12", seen)
            .await
            .unwrap();
        assert_eq!(engine.requests("PUT").len(), 2, "it vanished again");
    }
}

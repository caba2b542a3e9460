//! Removal of what a crash left behind (contract: lifecycle §17.12).

use std::collections::HashMap;

use bollard::{
    Docker,
    errors::Error,
    models::ContainerStateStatusEnum,
    query_parameters::{InspectContainerOptions, ListContainersOptionsBuilder},
};
use osb_protocol::SandboxId;
use tracing::{info, warn};

use super::{
    DockerRuntime,
    engine::bounded,
    error, labels,
    remove::{Force, remove_container},
};
use crate::{Role, RuntimeError};

/// Longest create of another server, in seconds; until then its sidecar has no sandbox.
const FOREIGN_CREATE_SECONDS: i64 = 900;

impl DockerRuntime {
    /// Removes this installation's containers that were never started, helpers of a server that
    /// crashed, volumes and mounts without a sandbox, and execd volumes of older builds. Also renames containers whose names contain an id.
    pub(super) async fn sweep_leftovers(&self) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        self.rename_revealing().await?;
        let ours = format!("{}={}", labels::SERVER, self.config.instance);
        let helpers = format!("{}={}", labels::HELPER, self.config.instance);
        for label in [ours, helpers] {
            let is_helper = label.starts_with(labels::HELPER);
            let filter =
                HashMap::from([("label", vec![label.as_str()]), ("status", vec!["created"])]);
            let options = ListContainersOptionsBuilder::default()
                .all(true)
                .filters(&filter)
                .build();
            let list = bounded(docker, docker.list_containers(Some(options)))
                .await
                .map_err(|error| error::other("list left-over containers", &error))?;
            for container in list {
                let labels = container.labels.unwrap_or_default();
                let read = labels::Read(&labels);
                let (id, role) = (read.id(), read.role());
                // Checked after the list was read: every create in the list is registered by now.
                let is_in_use = match &id {
                    Some(id) => self.creating.contains(id) || self.warm.owns(id),
                    // A helper lives for milliseconds, during a create.
                    None => is_helper && !self.creating.is_empty(),
                };
                let Some(name) = container.id.filter(|_| !is_in_use) else {
                    continue;
                };
                if let (Some(id), Some(role)) = (&id, role) {
                    let image = container.image_id.as_deref();
                    match self.is_original(id, role, &name, image).await {
                        Ok(true) => {}
                        Ok(false) => {
                            self.originals.report_copy(id, &name);
                            continue;
                        }
                        Err(error) => {
                            self.skip(id, &name, error)?;
                            continue;
                        }
                    }
                }
                match remove_never_started(docker, &name).await {
                    Ok(true) => info!(container = name, "removed a container that never started"),
                    Ok(false) => {}
                    Err(error) => {
                        warn!(
                            container = name,
                            reason = error::reason(&error),
                            "cannot remove a left-over container"
                        );
                    }
                }
            }
        }
        self.sweep_sidecars().await?;
        self.sweep_records().await?;
        self.sweep_volumes().await?;
        self.execd.sweep_other_builds(docker).await
    }

    /// Removes sidecars without a main container: a crash during a create leaves them running, and a crash
    /// of the server leaves its warm ones. Others are brought to the state of their main container.
    pub(super) async fn sweep_sidecars(&self) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        let mut kept = Vec::new();
        let roles = Role::ALL.into_iter().filter(|role| *role != Role::Main);
        let ours = roles.map(|role| (role, format!("{}={role}", labels::ROLE)));
        let reference = (Role::Egress, labels::SIDECAR_FOR.to_owned());
        for (role, label) in ours.chain([reference]) {
            for container in self.list_labelled(&label, "list sidecars").await? {
                // Another server may be creating its sandbox.
                let age = self.engine_time().unix_ms() / 1000 - container.created.unwrap_or(0);
                if label == labels::SIDECAR_FOR && age < FOREIGN_CREATE_SECONDS {
                    continue;
                }
                let place = container
                    .labels
                    .as_ref()
                    .and_then(|labels| self.place_if_ours(labels));
                let (Some((id, _)), Some(name)) = (place, container.id) else {
                    continue;
                };
                // A create registers before its first container exists, and so does a warm sidecar.
                if self.creating.contains(&id) || self.warm.owns(&id) {
                    continue;
                }
                if self.originals.main(&id).is_some() {
                    kept.push((id, role, name, container.state));
                    continue;
                }
                let image = container.image_id.as_deref();
                let is_left_over = async {
                    self.find_group(&id).await?;
                    let has_main = self.originals.main(&id).is_some();
                    let is_original = self.is_original(&id, role, &name, image);
                    Ok::<_, RuntimeError>(!has_main && is_original.await?)
                };
                match is_left_over.await {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        self.skip(&id, &name, error)?;
                        continue;
                    }
                }
                match remove_container(docker, &name, Force::Yes).await {
                    Ok(_) => info!(sandbox = %id, %role, "removed a sidecar without its sandbox"),
                    Err(error) => {
                        let reason = error::reason(&error);
                        warn!(sandbox = %id, %role, reason, "cannot remove a left-over sidecar");
                    }
                }
            }
        }
        self.settle_sidecars(kept).await
    }

    /// Logs, once, that a container stays because it may be a copy. An engine that cannot be reached
    /// ends the sweep instead.
    fn skip(
        &self,
        id: &SandboxId,
        container: &str,
        error: RuntimeError,
    ) -> Result<(), RuntimeError> {
        if error::is_disconnected(&error) {
            return Err(error);
        }
        if self.unreadable.insert(container) {
            warn!(
                sandbox = %id,
                container,
                %error,
                "cannot check whether the left-over container is a copy, keeping it"
            );
        }
        Ok(())
    }
}

/// Removes a container that no create uses, unless it has been started. Returns whether it was
/// removed. Its create may have ended after the list was read, so the engine is asked again.
async fn remove_never_started(docker: &Docker, name: &str) -> Result<bool, Error> {
    let inspected = docker.inspect_container(name, None::<InspectContainerOptions>);
    let container = match bounded(docker, inspected).await {
        Err(error) if error::is_missing(&error) => return Ok(false),
        container => container?,
    };
    let status = container.state.and_then(|state| state.status);
    if status != Some(ContainerStateStatusEnum::CREATED) {
        return Ok(false);
    }
    remove_container(docker, name, Force::No).await
}

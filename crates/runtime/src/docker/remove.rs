//! Removing sandboxes and what was left behind (contract: lifecycle §17.12).

use std::collections::HashMap;

use bollard::{
    Docker,
    models::ContainerSummaryStateEnum,
    query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder},
};
use osb_protocol::SandboxId;
use tracing::{info, warn};

use super::{DockerRuntime, error, labels};
use crate::RuntimeError;

impl DockerRuntime {
    pub(super) async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        remove_container(docker, &Self::container_name(id))
            .await
            .map_err(|error| {
                error::unavailable(&error).unwrap_or_else(|| RuntimeError::Remove {
                    id: id.clone(),
                    reason: error::reason(&error),
                })
            })
    }

    /// Containers of ours that were made but never started, helpers of a server that died, and
    /// execd volumes of older builds.
    pub(super) async fn sweep_leftovers(&self) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
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
            let list = docker
                .list_containers(Some(options))
                .await
                .map_err(|error| error::other("look for left-over containers", &error))?;
            for container in list {
                let labels = container.labels.unwrap_or_default();
                // Asked after the list was read: a create that is in the list has entered by now.
                let busy = match labels::Read(&labels).id() {
                    Some(id) => self.creating.contains(&id),
                    // A helper lives for milliseconds, during a create.
                    None => is_helper && !self.creating.is_empty(),
                };
                let never_started = container.state == Some(ContainerSummaryStateEnum::CREATED);
                let Some(name) = container.id.filter(|_| never_started && !busy) else {
                    continue;
                };
                match remove_container(docker, &name).await {
                    Ok(()) => info!(container = name, "removed a container that never started"),
                    Err(error) => {
                        warn!(
                            container = name,
                            reason = error::reason(&error),
                            "cannot sweep"
                        );
                    }
                }
            }
        }
        self.execd.sweep_other_builds(docker).await
    }
}

/// Kills and removes in one call, with the anonymous volumes that the image declared: nobody else
/// knows them.
async fn remove_container(docker: &Docker, name: &str) -> Result<(), bollard::errors::Error> {
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    match docker.remove_container(name, Some(options)).await {
        Err(error) if error::is_missing(&error) => Ok(()),
        // Somebody else is removing it right now; the destroy event will tell.
        Err(error)
            if error::status(&error) == Some(409)
                && error::reason(&error).contains("already in progress") =>
        {
            Ok(())
        }
        result => result,
    }
}

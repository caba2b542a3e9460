//! Removing sandboxes and what was left behind (contract: lifecycle §17.12).

use std::{collections::HashMap, time::Duration};

use bollard::{
    Docker,
    models::ContainerSummaryStateEnum,
    query_parameters::{
        ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder,
    },
};
use futures::StreamExt;
use osb_protocol::SandboxId;
use tracing::{info, warn};

use super::{DockerRuntime, error, labels};
use crate::RuntimeError;

/// Longest wait for a removal that somebody else began.
const FOREIGN_REMOVAL: Duration = Duration::from_secs(30);

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
        // Somebody else is removing it right now, which may still fail.
        Err(error)
            if error::status(&error) == Some(409)
                && error::reason(&error).contains("already in progress") =>
        {
            wait_until_gone(docker, name).await.unwrap_or(Err(error))
        }
        result => result,
    }
}

/// Waits for a removal by somebody else; `None` when it takes too long.
async fn wait_until_gone(
    docker: &Docker,
    name: &str,
) -> Option<Result<(), bollard::errors::Error>> {
    let options = WaitContainerOptionsBuilder::default()
        .condition("removed")
        .build();
    let mut gone = docker.wait_container(name, Some(options));
    match tokio::time::timeout(FOREIGN_REMOVAL, gone.next()).await {
        // The exit status of the container comes as an error, which does not matter here.
        Ok(Some(Ok(_) | Err(bollard::errors::Error::DockerContainerWaitError { .. })) | None) => {
            Some(Ok(()))
        }
        Ok(Some(Err(error))) if error::is_missing(&error) => Some(Ok(())),
        Ok(Some(Err(error))) => Some(Err(error)),
        Err(_) => None,
    }
}

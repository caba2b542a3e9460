//! Containers that are never started: the engine shows and writes files only through a container.

use std::collections::HashMap;

use bollard::{
    Docker,
    errors::Error,
    models::{ContainerCreateBody, HostConfig},
    query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder},
};
use rand::RngExt;
use tracing::debug;

use super::{engine::bounded, error, labels};

/// Creates a container of an image for an installation, and returns its name. The sweep removes it if
/// this process does not.
pub(super) async fn create(
    docker: &Docker,
    image: &str,
    instance: &str,
    binds: Vec<String>,
) -> Result<String, Error> {
    let name = format!("opensandbox-helper-{:016x}", rand::rng().random::<u64>());
    let label = (labels::HELPER.to_owned(), instance.to_owned());
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        // It is never run, but an image need not have a command.
        entrypoint: Some(vec!["/helper".to_owned()]),
        labels: Some(HashMap::from([label])),
        host_config: Some(HostConfig {
            binds: Some(binds),
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::default().name(&name).build();
    bounded(docker, docker.create_container(Some(options), body)).await?;
    Ok(name)
}

/// Removes such a container, with the volumes that its image declares.
pub(super) async fn remove(docker: &Docker, helper: &str) {
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    let removed = docker.remove_container(helper, Some(options));
    if let Err(error) = bounded(docker, removed).await {
        // The sweep removes it later.
        debug!(
            helper,
            error = error::reason(&error),
            "cannot remove the helper container"
        );
    }
}

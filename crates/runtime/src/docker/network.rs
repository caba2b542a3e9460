//! The network that sandboxes share.

use std::collections::HashMap;

use bollard::{
    Docker,
    models::{NetworkCreateRequest, NetworkInspect},
    query_parameters::InspectNetworkOptions,
};
use tokio::sync::OnceCell;

use super::{KIND, NetworkMode, error};
use crate::RuntimeError;

/// Option of a bridge network: whether containers on it reach each other.
const ICC: &str = "com.docker.network.bridge.enable_icc";
/// Our own bridge network.
pub(super) const OWN_NETWORK: &str = "opensandbox";

/// Knows the sandboxes' network and makes ours when it is missing.
#[derive(Debug)]
pub(super) struct SandboxNetwork {
    mode: NetworkMode,
    /// Set once the own network was seen; the engine tells at create if it vanished since.
    ready: OnceCell<()>,
}

impl SandboxNetwork {
    pub(super) fn new(mode: NetworkMode) -> Self {
        Self {
            mode,
            ready: OnceCell::new(),
        }
    }

    pub(super) fn is_host(&self) -> bool {
        self.mode == NetworkMode::Host
    }

    /// The name to attach to.
    pub(super) fn name(&self) -> &str {
        match &self.mode {
            NetworkMode::Host => "host",
            NetworkMode::Bridge => OWN_NETWORK,
            NetworkMode::Named(name) => name,
        }
    }

    /// Makes sure that the network exists.
    pub(super) async fn ensure(&self, docker: &Docker) -> Result<(), RuntimeError> {
        if self.mode != NetworkMode::Bridge {
            return Ok(());
        }
        self.ready.get_or_try_init(|| make(docker)).await.copied()
    }

    /// The engine said that the network is gone: ours is made again, a configured one is not.
    pub(super) async fn remake(&self, docker: &Docker) -> Result<(), RuntimeError> {
        match &self.mode {
            NetworkMode::Named(name) => Err(RuntimeError::NoNetwork(name.clone())),
            NetworkMode::Host => Ok(()),
            NetworkMode::Bridge => make(docker).await,
        }
    }
}

/// Makes our network unless it exists. Inter-container traffic is off: one sandbox must not reach
/// another's execd, or anything else of it.
async fn make(docker: &Docker) -> Result<(), RuntimeError> {
    const OP: &str = "make the sandbox network";
    match docker
        .inspect_network(OWN_NETWORK, None::<InspectNetworkOptions>)
        .await
    {
        Ok(network) => return keeps_apart(&network),
        Err(error) if error::is_missing(&error) => {}
        Err(error) => return Err(error::other(OP, &error)),
    }
    let request = NetworkCreateRequest {
        name: OWN_NETWORK.to_owned(),
        driver: Some("bridge".to_owned()),
        options: Some(HashMap::from([(ICC.to_owned(), "false".to_owned())])),
        labels: Some(HashMap::from([(
            "opensandbox.io/network".to_owned(),
            "true".to_owned(),
        )])),
        ..NetworkCreateRequest::default()
    };
    match docker.create_network(request).await {
        Ok(_) => Ok(()),
        // Another server made it in this very moment.
        Err(error) if error::status(&error) == Some(409) => Ok(()),
        Err(error) => Err(error::other(OP, &error)),
    }
}

/// A network of that name may be somebody else's.
fn keeps_apart(network: &NetworkInspect) -> Result<(), RuntimeError> {
    let icc = network
        .options
        .as_ref()
        .and_then(|options| options.get(ICC));
    if network.driver.as_deref() == Some("bridge") && icc.is_some_and(|icc| icc == "false") {
        return Ok(());
    }
    Err(RuntimeError::Other {
        runtime: KIND,
        op: "use the sandbox network",
        reason: format!(
            "a network named {OWN_NETWORK} exists on which containers can reach each other; \
             remove it, or name another one in docker.network_mode"
        ),
    })
}

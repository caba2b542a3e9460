//! The network that sandboxes share.

use std::collections::HashMap;

use bollard::{
    Docker,
    errors::Error,
    models::{NetworkCreateRequest, NetworkInspect},
    query_parameters::{InspectNetworkOptions, ListNetworksOptionsBuilder},
};
use tokio::sync::OnceCell;
use tracing::{info, warn};

use super::{KIND, NetworkMode, engine::bounded, engine_message::unframed, error};
use crate::RuntimeError;

/// Option of a bridge network: whether containers on it can reach each other.
const ICC: &str = "com.docker.network.bridge.enable_icc";
/// Operation, in errors.
const CREATE: &str = "create the sandbox network";
/// Name of the server's own bridge network.
pub(super) const OWN_NETWORK: &str = "opensandbox";

/// The network of the sandboxes. The server's own one is created if it is missing.
#[derive(Debug)]
pub(super) struct SandboxNetwork {
    mode: NetworkMode,
    /// Set once the own network exists. If it vanishes later, a create fails.
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

    /// Returns the network's name.
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
        self.ready
            .get_or_try_init(|| create_own(docker))
            .await
            .copied()
    }

    /// Creates the own network again after the engine reported that it is gone. A configured one is an
    /// error.
    pub(super) async fn recreate(&self, docker: &Docker) -> Result<(), RuntimeError> {
        match &self.mode {
            NetworkMode::Named(name) => Err(RuntimeError::NoNetwork(name.clone())),
            NetworkMode::Host => Ok(()),
            NetworkMode::Bridge => create_own(docker).await,
        }
    }
}

/// Creates the own network unless it exists. Traffic between containers is off: a sandbox must not
/// reach another's execd or any other port of it.
async fn create_own(docker: &Docker) -> Result<(), RuntimeError> {
    match inspect(docker).await {
        Ok(network) => return check_isolation(&network),
        Err(error) if error::is_missing(&error) => {}
        Err(error) if is_ambiguous(&error) => return remove_duplicates(docker).await,
        Err(error) => return Err(error::other(CREATE, &error)),
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
    match bounded(docker, docker.create_network(request)).await {
        // The engine checks names before it creates, not while: another server may have created one at
        // the same time, and then no container can refer to either.
        Ok(_) => remove_duplicates(docker).await,
        Err(error) if error::status(&error) == Some(409) => Ok(()),
        Err(error) => Err(error::other(CREATE, &error)),
    }
}

async fn inspect(docker: &Docker) -> Result<NetworkInspect, Error> {
    let options = None::<InspectNetworkOptions>;
    bounded(docker, docker.inspect_network(OWN_NETWORK, options)).await
}

/// What messages about the network of a container begin with. What follows is its name or its id, and
/// the name is the operator's.
const ABOUT_NETWORKS: [&str; 2] = ["network ", "could not find a network "];

/// Whether the error means that the engine has several networks of the name.
fn is_ambiguous(error: &Error) -> bool {
    let message = error::message(error).to_ascii_lowercase();
    let message = unframed(&message);
    // An older engine begins with their number: "2 matches found based on name: network n is ambiguous".
    let counted = message.split_once(" matches found based on name: ");
    let counted = counted.filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    let message = counted.map_or(message, |(_, rest)| rest);
    message.starts_with("network ") && message.contains("is ambiguous")
}

/// Whether the engine cannot resolve the network of a container: there is none, or several.
pub(super) fn is_lacking(error: &Error) -> bool {
    let message = error::message(error).to_ascii_lowercase();
    let message = unframed(&message);
    let is_about = ABOUT_NETWORKS
        .iter()
        .any(|words| message.starts_with(words));
    let is_missing = error::is_missing(error) && is_about && message.ends_with("not found");
    is_missing || is_ambiguous(error)
}

/// Keeps the oldest of several networks of the name, so that servers that do this at the same time
/// agree.
async fn remove_duplicates(docker: &Docker) -> Result<(), RuntimeError> {
    let filter = HashMap::from([("name", vec![OWN_NETWORK])]);
    let options = ListNetworksOptionsBuilder::default()
        .filters(&filter)
        .build();
    let list = bounded(docker, docker.list_networks(Some(options))).await;
    let mut same_name: Vec<_> = list
        .map_err(|error| error::other(CREATE, &error))?
        .into_iter()
        // The filter matches parts of names too.
        .filter(|network| network.name.as_deref() == Some(OWN_NETWORK))
        .filter_map(|network| Some((network.created?.to_string(), network.id?)))
        .collect();
    same_name.sort();
    for (_, id) in same_name.into_iter().skip(1) {
        match bounded(docker, docker.remove_network(&id)).await {
            Ok(()) => info!(network = id, "removed a second network named {OWN_NETWORK}"),
            Err(error) if error::is_missing(&error) => {}
            // Containers are attached. The inspection below fails if that matters.
            Err(error) => {
                warn!(network = id, error = %error::reason(&error), "cannot remove a duplicate network")
            }
        }
    }
    match inspect(docker).await {
        Ok(network) => check_isolation(&network),
        Err(error) => Err(error::other(CREATE, &error)),
    }
}

/// Checks that containers cannot reach each other on a network that may be the operator's.
fn check_isolation(network: &NetworkInspect) -> Result<(), RuntimeError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    /// Starts an engine with these networks of the name, the oldest first. Removals succeed.
    async fn engine(networks: &'static [&'static str]) -> FakeEngine {
        let removed = std::sync::Mutex::new(0);
        FakeEngine::start(move |request| {
            let mut removed = removed.lock().unwrap();
            if request.starts_with("DELETE /networks/") {
                *removed += 1;
                return (204, String::new());
            }
            let left = networks.len() - *removed;
            if request.starts_with("GET /networks/opensandbox") {
                let reason = "2 matches found based on name: network opensandbox is ambiguous";
                return match left {
                    1 => (200, ours("n", 1).to_string()),
                    _ => (400, json!({ "message": reason }).to_string()),
                };
            }
            assert!(request.starts_with("GET /networks"), "{request}");
            let age = networks.iter().enumerate().rev();
            let list: Vec<_> = age.map(|(second, id)| ours(id, second)).collect();
            (200, json!(list).to_string())
        })
        .await
    }

    fn ours(id: &str, second: usize) -> serde_json::Value {
        json!({
            "Name": OWN_NETWORK, "Id": id, "Driver": "bridge", "Options": {ICC: "false"},
            "Created": format!("2031-05-01T10:00:0{second}Z"),
        })
    }

    #[tokio::test]
    async fn the_oldest_of_several_networks_is_kept() {
        let engine = engine(&["old", "new", "newest"]).await;
        create_own(engine.runtime().docker().unwrap())
            .await
            .unwrap();
        let asked = engine.requests("DELETE /networks/");
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert!(
            !asked.iter().any(|request| request.ends_with("/old")),
            "{asked:?}"
        );
    }
}

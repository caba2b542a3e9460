//! Names of containers.
//!
//! The engine's DNS resolves the addresses of a container's neighbours to their names. Because a
//! sandbox's id gives access to its ports through the server's proxy, a name only marks the container
//! as a sandbox; the id is a label. Host name and network alias are the engine's defaults, the first
//! digits of the container's id.

use bollard::{models::ContainerSummary, query_parameters::RenameContainerOptionsBuilder};
use osb_protocol::SandboxId;
use rand::RngExt;
use tracing::{info, warn};

use super::{DockerRuntime, engine::bounded, error};
use crate::RuntimeError;

/// Prefix of the names of sandboxes.
const PREFIX: &str = "osb-";
/// Most containers that one round of the sweep renames.
const ROUND: usize = 256;

/// Returns a name for a container: recognisable for operators, and random.
pub(super) fn random() -> String {
    format!("{PREFIX}{:016x}", rand::rng().random::<u64>())
}

/// Whether a container's name contains the sandbox's id, as those of earlier builds do.
pub(super) fn reveals(container: &ContainerSummary, id: &SandboxId) -> bool {
    let names = container.names.iter().flatten();
    names
        .into_iter()
        .any(|name| !name.trim_start_matches('/').starts_with(PREFIX) && name.contains(id.as_str()))
}

impl DockerRuntime {
    /// Renames the containers that the last list found with an id in their names. The next list finds
    /// those that fail.
    pub(super) async fn rename_revealing(&self) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        for (id, container) in self.originals.take_revealing(ROUND) {
            let name = random();
            let options = RenameContainerOptionsBuilder::default().name(&name).build();
            match bounded(docker, docker.rename_container(&container, options)).await {
                Ok(()) => {
                    info!(sandbox = %id, name, "renamed a container whose name contained its id")
                }
                Err(error) if error::is_missing(&error) => {}
                Err(error) => {
                    warn!(sandbox = %id, reason = error::reason(&error), "cannot rename the container");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Runtime,
        docker::{fake_engine::FakeEngine, labels},
    };

    #[tokio::test]
    async fn only_names_that_contain_the_id_are_replaced_and_only_once() {
        let id = "9f1c2ab4-77d1-4b6e-8f1e-2f6f5d1c0a11";
        let engine = FakeEngine::start(move |request| {
            let container = |name: &str, id: &str| {
                let labels = json!({labels::ID: id, labels::SERVER: "us", labels::ENTRYPOINT: "[\"x\"]"});
                json!({"Id": name, "Names": [format!("/{name}")], "Labels": labels, "State": "running"})
            };
            match request {
                _ if request.starts_with("GET /containers/json") && request.contains("created") => {
                    (200, json!([]).to_string())
                }
                _ if request.starts_with("GET /containers/json") => {
                    let old = container(&format!("sandbox-{id}"), id);
                    let new = container("osb-00000000000000b0", "b0");
                    (200, json!([old, new, container("by-hand", "c")]).to_string())
                }
                _ if request.starts_with("GET /volumes") => (200, "{}".to_owned()),
                _ => (204, String::new()),
            }
        })
        .await;
        let runtime = engine.runtime();
        assert_eq!(runtime.observe_all().await.unwrap().len(), 3);
        runtime.sweep().await.unwrap();
        runtime.sweep().await.unwrap();
        let renamed = engine.requests("POST");
        assert_eq!(renamed.len(), 1, "{renamed:?}");
        let start = format!("POST /containers/sandbox-{id}/rename?name={PREFIX}");
        assert!(renamed[0].starts_with(&start), "{renamed:?}");
    }

    #[test]
    fn names_are_random() {
        assert_ne!(random(), random());
    }
}

//! The create requests of a sandbox's containers.
//!
//! Without sidecars the main container is attached to the network and publishes the ports. With
//! sidecars the first of them does, and every other container joins its network namespace. The owner
//! of the network is created and started first: the engine lets a container join only one that runs.

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig};
use osb_protocol::SandboxId;

use super::{DockerConfig, SidecarConfig, labels};
use crate::Role;

/// Capabilities to change the network and to send packets around its rules. The main container must
/// not have them if another container keeps its rules in the same namespace.
const NETWORK_CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];
/// Prefix of the network mode of a container that joins another's namespace.
const JOINED: &str = "container:";

/// A container to create.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) role: Role,
    pub(super) body: ContainerCreateBody,
}

/// Plans all containers of a sandbox, the owner of its network first and the main container last.
/// `egress` is the sidecar of its network policy.
pub(super) fn plan(
    id: &SandboxId,
    mut main: ContainerCreateBody,
    egress: Option<Member>,
    config: &DockerConfig,
    log: Option<&HostConfigLogConfig>,
) -> Vec<Member> {
    let sidecars = config.sidecars.iter().map(|sidecar| Member {
        role: sidecar.role,
        body: sidecar_body(id, sidecar, config, log),
    });
    let mut members: Vec<Member> = egress.into_iter().chain(sidecars).collect();
    if let Some(owner) = members.first_mut() {
        move_network(&mut main, &mut owner.body);
    }
    members.push(Member {
        role: Role::Main,
        body: main,
    });
    members
}

fn sidecar_body(
    id: &SandboxId,
    sidecar: &SidecarConfig,
    config: &DockerConfig,
    log: Option<&HostConfigLogConfig>,
) -> ContainerCreateBody {
    let host_config = HostConfig {
        cap_add: Some(sidecar.add_capabilities.clone()),
        log_config: log.cloned(),
        ..HostConfig::default()
    };
    let entrypoint = sidecar.entrypoint.clone();
    ContainerCreateBody {
        image: Some(sidecar.image.clone()),
        entrypoint: Some(entrypoint).filter(|words| !words.is_empty()),
        labels: Some(labels::of_sidecar(id, sidecar.role, &config.instance)),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// Moves the network with its published ports from the main container to its new owner.
pub(super) fn move_network(main: &mut ContainerCreateBody, owner: &mut ContainerCreateBody) {
    let exposed = main.exposed_ports.take().into_iter().flatten();
    owner.exposed_ports.get_or_insert_default().extend(exposed);
    let from = main.host_config.get_or_insert_default();
    let to = owner.host_config.get_or_insert_default();
    to.network_mode = from.network_mode.take();
    let bindings = from.port_bindings.take().into_iter().flatten();
    to.port_bindings.get_or_insert_default().extend(bindings);
    let dropped = from.cap_drop.get_or_insert_default();
    for name in NETWORK_CAPABILITIES {
        if !dropped.iter().any(|known| is_same_capability(known, name)) {
            dropped.push(name.to_owned());
        }
    }
}

/// Whether a configured name is this capability. Engines ignore prefix and case.
fn is_same_capability(configured: &str, name: &str) -> bool {
    let configured = configured.trim().to_ascii_uppercase();
    configured.strip_prefix("CAP_").unwrap_or(&configured) == name
}

/// Makes a container join the network of its group's owner, which exists by now.
pub(super) fn join_network(body: &mut ContainerCreateBody, owner: &str) {
    let host = body.host_config.get_or_insert_default();
    host.network_mode = Some(format!("{JOINED}{owner}"));
}

/// Returns the container whose network namespace a network mode joins. `None` if it has its own.
pub(super) fn network_owner(mode: Option<&str>) -> Option<&str> {
    mode?.strip_prefix(JOINED)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::docker::fake_engine;

    fn main() -> ContainerCreateBody {
        ContainerCreateBody {
            exposed_ports: Some(vec!["44772/tcp".to_owned()]),
            host_config: Some(HostConfig {
                network_mode: Some("opensandbox".to_owned()),
                port_bindings: Some([("44772/tcp".to_owned(), None)].into()),
                cap_drop: Some(vec!["NET_RAW".to_owned()]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        }
    }

    fn planned(sidecars: Vec<SidecarConfig>) -> Vec<(Role, Value)> {
        let config = DockerConfig {
            sidecars,
            ..fake_engine::config()
        };
        let members = plan(&"a".into(), main(), None, &config, None);
        let sent = members.into_iter().map(|mut member| {
            if member.role == Role::Main && !config.sidecars.is_empty() {
                join_network(&mut member.body, "owner");
            }
            (member.role, serde_json::to_value(member.body).unwrap())
        });
        sent.collect()
    }

    fn egress() -> SidecarConfig {
        SidecarConfig {
            role: Role::Egress,
            image: "egress".to_owned(),
            entrypoint: Vec::new(),
            add_capabilities: vec!["NET_ADMIN".to_owned()],
        }
    }

    #[test]
    fn without_a_sidecar_the_main_container_owns_the_network() {
        let members = planned(Vec::new());
        let [(Role::Main, body)] = members.as_slice() else {
            panic!("{members:?}");
        };
        assert_eq!(*body, serde_json::to_value(main()).unwrap());
    }

    #[test]
    fn a_sidecar_owns_the_network() {
        let members = planned(vec![egress()]);
        let [(Role::Egress, owner), (Role::Main, main)] = members.as_slice() else {
            panic!("{members:?}");
        };
        assert_eq!(owner["HostConfig"]["NetworkMode"], "opensandbox");
        assert_eq!(owner["HostConfig"]["CapAdd"], json!(["NET_ADMIN"]));
        assert!(
            owner["HostConfig"]["PortBindings"]
                .get("44772/tcp")
                .is_some()
        );
        assert_eq!(owner["ExposedPorts"], json!({"44772/tcp": {}}));
        assert_eq!(owner["Labels"][labels::ID], "a");
        assert_eq!(owner["Labels"][labels::ROLE], "egress");
        assert_eq!(main["HostConfig"]["NetworkMode"], "container:owner");
        assert_eq!(
            main["HostConfig"]["CapDrop"],
            json!(["NET_RAW", "NET_ADMIN"])
        );
        assert_eq!(main["HostConfig"].get("PortBindings"), None);
        assert_eq!(main.get("ExposedPorts"), None);
    }

    #[test]
    fn the_owner_of_a_network_is_read_from_the_mode() {
        assert_eq!(network_owner(Some("container:abc")), Some("abc"));
        for own in [None, Some("bridge"), Some("host"), Some("opensandbox")] {
            assert_eq!(network_owner(own), None);
        }
    }
}

//! What makes one sidecar as good as another.

use bollard::models::ContainerCreateBody;

use super::super::{
    egress::{AWAIT_CLAIM, RULES, SANDBOX_ID, TOKEN},
    labels,
};

/// Variables that a claim replaces, or that belong to the sandbox to be.
const OWN: [&str; 4] = [RULES, TOKEN, SANDBOX_ID, AWAIT_CLAIM];

/// The create request of a sidecar without the identity of its sandbox, its policy, and the numbers of
/// its ports on the host. Everything else of it must be the same in a sidecar that takes its place, also
/// what a later release adds to it.
#[derive(Debug, PartialEq)]
pub(super) struct Shape(ContainerCreateBody);

impl Shape {
    pub(super) fn of(body: &ContainerCreateBody) -> Self {
        let mut body = body.clone();
        if let Some(labels) = &mut body.labels {
            labels.remove(labels::ID);
        }
        let is_own = |entry: &String| {
            let name = entry.split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| OWN.contains(&name))
        };
        if let Some(env) = &mut body.env {
            env.retain(|entry| !is_own(entry));
        }
        let host = body.host_config.as_mut();
        let bindings = host.and_then(|host| host.port_bindings.as_mut());
        let bindings = bindings.into_iter().flat_map(|map| map.values_mut());
        for binding in bindings.flatten().flatten() {
            binding.host_port = None;
        }
        Self(body)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bollard::models::{HostConfig, HostConfigLogConfig, PortBinding};

    use super::*;

    fn body(port: &str, env: &[&str], id: &str) -> ContainerCreateBody {
        let binding = PortBinding {
            host_ip: Some("127.0.0.1".to_owned()),
            host_port: Some(port.to_owned()),
        };
        let bindings = HashMap::from([("44772/tcp".to_owned(), Some(vec![binding]))]);
        ContainerCreateBody {
            image: Some("egress".to_owned()),
            env: Some(env.iter().map(|entry| (*entry).to_owned()).collect()),
            labels: Some([(labels::ID.to_owned(), id.to_owned())].into()),
            host_config: Some(HostConfig {
                port_bindings: Some(bindings),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        }
    }

    fn shape(change: impl FnOnce(&mut ContainerCreateBody)) -> Shape {
        let mut body = body("40000", &["OPENSANDBOX_EGRESS_MODE=dns"], "a");
        change(&mut body);
        Shape::of(&body)
    }

    #[test]
    fn identity_policy_and_numbers_of_ports_do_not_count() {
        let cold = body(
            "40001",
            &[
                "OPENSANDBOX_EGRESS_RULES={}",
                "OPENSANDBOX_EGRESS_MODE=dns",
                "OPENSANDBOX_EGRESS_TOKEN=t",
                "OPENSANDBOX_EGRESS_SANDBOX_ID=b",
            ],
            "b",
        );
        let warm = body(
            "40002",
            &[
                "OPENSANDBOX_EGRESS_AWAIT_CLAIM=true",
                "OPENSANDBOX_EGRESS_MODE=dns",
                "OPENSANDBOX_EGRESS_TOKEN=u",
                "OPENSANDBOX_EGRESS_SANDBOX_ID=c",
            ],
            "c",
        );
        assert_eq!(Shape::of(&cold), Shape::of(&warm));
    }

    #[test]
    fn everything_else_counts() {
        let usual = shape(|_| {});
        let host = |change: fn(&mut HostConfig)| {
            shape(|body| change(body.host_config.get_or_insert_default()))
        };
        for (what, other) in [
            ("image", shape(|body| body.image = Some("other".to_owned()))),
            (
                "mode",
                shape(|body| {
                    body.env = Some(vec!["OPENSANDBOX_EGRESS_MODE=dns+nft".to_owned()]);
                }),
            ),
            (
                "level",
                shape(|body| {
                    let env = body.env.get_or_insert_default();
                    env.push("OPENSANDBOX_EGRESS_LOG_LEVEL=debug".to_owned());
                }),
            ),
            (
                "server",
                shape(|body| {
                    let labels = body.labels.get_or_insert_default();
                    labels.insert(labels::SERVER.to_owned(), "them".to_owned());
                }),
            ),
            (
                "network",
                host(|it| it.network_mode = Some("other".to_owned())),
            ),
            ("ports", host(|it| it.port_bindings = None)),
            ("IPv6", host(|it| it.sysctls = Some(HashMap::new()))),
            (
                "log",
                host(|it| it.log_config = Some(HostConfigLogConfig::default())),
            ),
            ("capabilities", host(|it| it.cap_add = Some(Vec::new()))),
        ] {
            assert_ne!(usual, other, "{what}");
        }
        let address = host(|it| {
            let bindings = it.port_bindings.get_or_insert_default();
            for binding in bindings.values_mut().flatten().flatten() {
                binding.host_ip = Some("0.0.0.0".to_owned());
            }
        });
        assert_ne!(usual, address, "address to publish on");
    }
}

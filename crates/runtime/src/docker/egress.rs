//! The egress sidecar of a sandbox: whether it has one, and its create request (contract: lifecycle
//! §17.7).

mod readiness;

use std::{collections::HashMap, net::IpAddr, sync::atomic::Ordering};

use bollard::{
    errors::Error,
    models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, PortBinding},
};
use osb_protocol::{Feature, SandboxId};
use secrecy::{ExposeSecret, SecretString};

use super::{
    DockerConfig, DockerRuntime, EgressConfig, KIND, error, group::Member, labels, ports::Reserved,
};
use crate::{CreateSpec, EGRESS_PORT, NetworkPolicy, Role, RuntimeError};

/// Capability to change the network.
const NET_ADMIN: &str = "NET_ADMIN";
/// Memory in bytes of a sidecar, without swap. What it remembers is bounded to less; a sandbox must
/// not get more of the host through it if that fails. The rules outlive a worker that is killed for it.
const MEMORY: i64 = 512 << 20;
/// Threads and processes of a sidecar.
const PIDS: i64 = 1024;
/// Interfaces, and groups of them, on which IPv6 is turned off.
const INTERFACES: [&str; 3] = ["all", "default", "lo"];
/// Name servers of this host.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Name servers behind systemd's stub.
const BEHIND_STUB: &str = "/run/systemd/resolve/resolv.conf";
/// Asked if this host names no name server that sandboxes reach, as the engine does.
const FALLBACK: &str = "8.8.8.8";
/// Variable with the first policy of the sidecar.
pub(super) const RULES: &str = "OPENSANDBOX_EGRESS_RULES";
/// Variable with the token of its API.
pub(super) const TOKEN: &str = "OPENSANDBOX_EGRESS_TOKEN";
/// Variable with the sandbox's id.
pub(super) const SANDBOX_ID: &str = "OPENSANDBOX_EGRESS_SANDBOX_ID";
/// Variable by which the sidecar refuses everything until the sandbox claims it.
pub(super) const AWAIT_CLAIM: &str = "OPENSANDBOX_EGRESS_AWAIT_CLAIM";
/// Variable with the file in which the sidecar keeps its policy.
const POLICY_FILE: &str = "OPENSANDBOX_EGRESS_POLICY_FILE";
/// That file, in the sidecar's container, unless the request names another.
const POLICY_PATH: &str = "/var/lib/opensandbox-egress.json";

/// A sidecar that a create needs.
#[derive(Debug)]
pub(super) struct EgressPlan<'a> {
    policy: &'a NetworkPolicy,
    egress: &'a EgressConfig,
    /// Port of the host for its API. A server that reaches containers at their own addresses needs
    /// none.
    port: Option<Reserved>,
    /// Whether the engine's kernel has IPv6, as far as is known.
    has_ipv6: bool,
}

impl EgressPlan<'_> {
    /// Leaves out the settings that turn IPv6 off.
    pub(super) fn without_ipv6_settings(&mut self) {
        self.has_ipv6 = false;
    }

    /// The operator's settings.
    pub(super) fn egress(&self) -> &EgressConfig {
        self.egress
    }

    /// Port of the host for its API.
    pub(super) fn port(&self) -> Option<u16> {
        self.port.as_ref().map(Reserved::port)
    }
}

/// The sandbox that a sidecar is for.
#[derive(Debug)]
struct Ward<'a> {
    id: &'a SandboxId,
    token: Option<&'a SecretString>,
    /// `None` if the sidecar is to wait until the sandbox claims it.
    policy: Option<&'a NetworkPolicy>,
}

/// The sidecar of a sandbox with a network policy. IPv6 can be turned off only where the engine's
/// kernel has it. `port` publishes its API.
fn member(
    ward: &Ward<'_>,
    egress: &EgressConfig,
    has_ipv6: bool,
    config: &DockerConfig,
    log: Option<&HostConfigLogConfig>,
    port: Option<u16>,
) -> Member {
    let bindings = port.map(|port| {
        let binding = PortBinding {
            host_ip: Some(config.publish_host.to_string()),
            host_port: Some(port.to_string()),
        };
        HashMap::from([(published(), Some(vec![binding]))])
    });
    let host_config = HostConfig {
        cap_add: Some(vec![NET_ADMIN.to_owned()]),
        port_bindings: bindings,
        sysctls: (egress.disable_ipv6 && has_ipv6).then(without_ipv6),
        log_config: log.cloned(),
        memory: Some(MEMORY),
        memory_swap: Some(MEMORY),
        pids_limit: Some(PIDS),
        ..HostConfig::default()
    };
    Member {
        role: Role::Egress,
        body: ContainerCreateBody {
            image: Some(egress.image.clone()),
            env: Some(environment(ward, egress)),
            exposed_ports: port.map(|_| vec![published()]),
            labels: Some(labels::of_sidecar(ward.id, Role::Egress, &config.instance)),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        },
    }
}

fn published() -> String {
    format!("{EGRESS_PORT}/tcp")
}

/// Settings that turn IPv6 off in the network namespace.
fn without_ipv6() -> HashMap<String, String> {
    let names = INTERFACES.map(|name| format!("net.ipv6.conf.{name}.disable_ipv6"));
    names
        .into_iter()
        .map(|name| (name, "1".to_owned()))
        .collect()
}

fn environment(ward: &Ward<'_>, egress: &EgressConfig) -> Vec<String> {
    let token = ward.token.map(|token| token.expose_secret().to_owned());
    let awaits = ward.policy.is_none().then(|| true.to_string());
    let own = [
        (RULES, ward.policy.map(|policy| policy.rules.clone())),
        (AWAIT_CLAIM, awaits),
        ("OPENSANDBOX_EGRESS_MODE", Some(egress.mode.clone())),
        (TOKEN, token),
        (SANDBOX_ID, Some(ward.id.to_string())),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", egress.otlp_endpoint.clone()),
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", Some(upstreams(egress))),
    ];
    let own = own
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let requested = ward.policy.map(|policy| policy.variables.iter());
    // A sidecar with a policy must not wait for a claim that never comes.
    let requested = requested.into_iter().flatten();
    let requested = requested.filter(|(name, _)| *name != AWAIT_CLAIM);
    let requested: Vec<_> = requested
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    // Otherwise a worker that is started again would go back to the policy of the create, and open what
    // a later change refused.
    let has_file = requested.iter().any(|(name, _)| *name == POLICY_FILE);
    let file = (!has_file).then(|| (POLICY_FILE, POLICY_PATH.to_owned()));
    // The server's values come last and count.
    let all = requested.into_iter().chain(file).chain(own);
    all.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Name servers for the sidecar.
fn upstreams(egress: &EgressConfig) -> String {
    if !egress.dns_upstreams.is_empty() {
        return egress.dns_upstreams.join(",");
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut found = resolvers(&read(RESOLV_CONF), egress.disable_ipv6);
    if found.is_empty() {
        // The former only names a stub on this host, which sandboxes do not reach.
        found = resolvers(&read(BEHIND_STUB), egress.disable_ipv6);
    }
    match found.is_empty() {
        true => FALLBACK.to_owned(),
        false => found.join(","),
    }
}

/// Name servers in a `resolv.conf` that sandboxes may reach: no loopback addresses, and no link-local
/// ones, which mean nothing without a device.
fn resolvers(text: &str, only_v4: bool) -> Vec<String> {
    let addresses = text.lines().filter_map(|line| {
        let address: IpAddr = line
            .trim()
            .strip_prefix("nameserver")?
            .trim()
            .parse()
            .ok()?;
        let is_local = match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_unspecified(),
            IpAddr::V6(address) => {
                only_v4
                    || address.is_loopback()
                    || address.is_unspecified()
                    || address.is_unicast_link_local()
            }
        };
        (!is_local).then(|| address.to_string())
    });
    addresses.collect()
}

/// Whether the engine cannot apply the settings that turn IPv6 off, because its kernel has none.
/// `failure` is that of the start of a sidecar: the engine mentions no text of a client there.
pub(super) fn lacks_ipv6(failure: &Error) -> bool {
    let message = error::message(failure).to_ascii_lowercase();
    let message = message.trim().trim_end_matches(": unknown");
    // runc, crun, and runc of 2020, which quotes its own errors.
    let message = message.replace(['`', '"', '\\'], "");
    INTERFACES.iter().any(|name| {
        let place = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        let sentence = format!("open {place}: no such file or directory");
        let before = message.strip_suffix(&sentence);
        before.is_some_and(|before| before.is_empty() || before.ends_with([' ', ':']))
    })
}

impl DockerRuntime {
    /// The sidecar that a sandbox needs; `None` without a network policy. Its port is reserved until
    /// the result is dropped.
    ///
    /// # Errors
    /// The sandbox has a policy, but there is no image for sidecars, or no free port.
    pub(super) fn sidecar_of<'a>(
        &'a self,
        spec: &'a CreateSpec,
    ) -> Result<Option<EgressPlan<'a>>, RuntimeError> {
        let Some(policy) = &spec.network_policy else {
            return Ok(None);
        };
        // A sandbox must never run without its policy.
        let egress = self.config.egress.as_ref();
        let egress = egress.ok_or(RuntimeError::Unsupported {
            runtime: KIND,
            feature: Feature::NetworkPolicy,
        })?;
        let port = match self.config.has_route {
            true => None,
            false => Some(self.ports.draw()?),
        };
        Ok(Some(EgressPlan {
            policy,
            egress,
            port,
            has_ipv6: self.has_ipv6.load(Ordering::Relaxed),
        }))
    }

    /// Its container.
    pub(super) fn sidecar_member(
        &self,
        spec: &CreateSpec,
        sidecar: &EgressPlan<'_>,
        log: Option<&HostConfigLogConfig>,
    ) -> Member {
        let ward = Ward {
            id: spec.id(),
            token: spec.origin.egress_token.as_ref(),
            policy: Some(sidecar.policy),
        };
        let has_ipv6 = sidecar.has_ipv6;
        let (egress, port) = (sidecar.egress, sidecar.port());
        member(&ward, egress, has_ipv6, &self.config, log, port)
    }

    /// The container of a sidecar that refuses everything until its sandbox claims it. `port` publishes
    /// its API.
    pub(super) fn unclaimed_member(
        &self,
        id: &SandboxId,
        token: &SecretString,
        egress: &EgressConfig,
        log: Option<&HostConfigLogConfig>,
        port: Option<u16>,
    ) -> Member {
        let ward = Ward {
            id,
            token: Some(token),
            policy: None,
        };
        let has_ipv6 = self.has_ipv6.load(Ordering::Relaxed);
        member(&ward, egress, has_ipv6, &self.config, log, port)
    }

    /// Notes that the engine's kernel has no IPv6, for all sidecars from now on: only the start of one
    /// that belongs to no client may be the reason. Returns whether that is new.
    pub(super) fn lose_ipv6(&self) -> bool {
        self.has_ipv6.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bollard::Docker;
    use osb_protocol::WireTime;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Origin, Runtime, SecureKind, SecureRuntime, Source,
        docker::{NetworkMode, fake_engine},
    };

    fn egress() -> EgressConfig {
        EgressConfig {
            image: "egress:1".to_owned(),
            mode: "dns+nft".to_owned(),
            disable_ipv6: true,
            otlp_endpoint: None,
            dns_upstreams: vec!["192.0.2.53".to_owned()],
            readiness_timeout: Duration::from_secs(30),
            warm: 0,
        }
    }

    fn body(egress: &EgressConfig, port: Option<u16>) -> Value {
        let at = WireTime::from_unix_us(0).unwrap();
        let mut spec = CreateSpec::new(Origin::new("a", Source::Image("i".into()), at));
        spec.origin.egress_token = Some("secret".to_owned().into());
        let policy = NetworkPolicy {
            rules: r#"{"egress":[]}"#.to_owned(),
            variables: [
                (
                    "OPENSANDBOX_EGRESS_LOG_LEVEL".to_owned(),
                    "debug".to_owned(),
                ),
                (TOKEN.to_owned(), "mine".to_owned()),
                (AWAIT_CLAIM.to_owned(), "true".to_owned()),
            ]
            .into(),
        };
        let ward = Ward {
            id: spec.id(),
            token: spec.origin.egress_token.as_ref(),
            policy: Some(&policy),
        };
        let member = member(&ward, egress, true, &fake_engine::config(), None, port);
        serde_json::to_value(member.body).unwrap()
    }

    #[test]
    fn only_the_engines_whole_sentence_means_that_the_kernel_has_no_ipv6() {
        let lacks = |message: &str| {
            lacks_ipv6(&Error::DockerResponseServerError {
                status_code: 400,
                message: message.to_owned(),
            })
        };
        for message in [
            // Docker 20.10 with runc 1.1, and Docker 28.
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
             container process: error during container init: open \
             /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory: unknown",
            "failed to create task for container: failed to create shim task: OCI runtime create \
             failed: runc create failed: unable to start container process: error during container \
             init: write sysctl key net.ipv6.conf.lo.disable_ipv6: open \
             /proc/sys/net/ipv6/conf/lo/disable_ipv6: no such file or directory",
            // runc of 2020, and crun.
            r#"OCI runtime create failed: container_linux.go:370: starting container process caused: process_linux.go:459: container init caused "open /proc/sys/net/ipv6/conf/default/disable_ipv6: no such file or directory": unknown"#,
            "OCI runtime create failed: open `/proc/sys/net/ipv6/conf/all/disable_ipv6`: No such file \
             or directory: unknown",
        ] {
            assert!(lacks(message), "{message}");
        }
        for message in [
            "lstat /var/lib/docker/overlay2/a/merged/etc/hostname/disable_ipv6: not a directory",
            "mkdir /m/open /proc/sys/net/ipv6/conf/all/disable_ipv6: not a directory: unknown",
            "open /proc/sys/net/ipv6/conf/all/disable_ipv6: read-only file system: unknown",
            "stat /m/proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory",
            "sysctl net.ipv6.conf.all.disable_ipv6: no such file",
        ] {
            assert!(!lacks(message), "{message}");
        }
    }

    #[tokio::test]
    async fn a_policy_needs_an_image_and_a_network_that_the_kernel_filters() {
        let runtime = |change: fn(&mut DockerConfig)| {
            let mut config = DockerConfig {
                network: NetworkMode::Bridge,
                egress: Some(egress()),
                ..fake_engine::config()
            };
            change(&mut config);
            DockerRuntime::over(config, Docker::connect_with_defaults).unwrap()
        };
        let has_policies = |runtime: &DockerRuntime| {
            let features = runtime.create_features();
            features.contains(Feature::NetworkPolicy)
        };
        assert!(has_policies(&runtime(|_| {})));
        let on_the_hosts_network = runtime(|config| config.network = NetworkMode::Host);
        assert!(!has_policies(&on_the_hosts_network));
        let under_gvisor = runtime(|config| {
            config.secure_runtime = Some(SecureRuntime::usual(SecureKind::Gvisor));
        });
        let under_kata =
            runtime(|config| config.secure_runtime = Some(SecureRuntime::usual(SecureKind::Kata)));
        assert!(!has_policies(&under_gvisor) && !has_policies(&under_kata));
        let without_an_image = runtime(|config| config.egress = None);
        assert!(!has_policies(&without_an_image));

        let at = WireTime::from_unix_us(0).unwrap();
        let mut spec = CreateSpec::new(Origin::new("a", Source::Image("i".into()), at));
        assert!(without_an_image.sidecar_of(&spec).unwrap().is_none());
        spec.network_policy = Some(NetworkPolicy::default());
        let refused = without_an_image.sidecar_of(&spec).unwrap_err();
        assert!(matches!(refused, RuntimeError::Unsupported { .. }));
        let published = runtime(|config| config.has_route = false);
        let plan = published.sidecar_of(&spec).unwrap().unwrap();
        assert!(plan.port().is_some());
    }

    #[test]
    fn the_sidecar_gets_its_policy_and_the_right_to_enforce_it() {
        let body = body(&egress(), None);
        assert_eq!(body["Image"], "egress:1");
        assert_eq!(body["HostConfig"]["CapAdd"], json!(["NET_ADMIN"]));
        let own = &body["HostConfig"];
        let limits = ["Memory", "MemorySwap", "PidsLimit"].map(|name| own[name].as_i64().unwrap());
        assert_eq!(limits, [512 << 20, 512 << 20, 1024]);
        assert_eq!(
            body["HostConfig"]["Sysctls"],
            json!({
                "net.ipv6.conf.all.disable_ipv6": "1",
                "net.ipv6.conf.default.disable_ipv6": "1",
                "net.ipv6.conf.lo.disable_ipv6": "1",
            })
        );
        assert_eq!(
            body["Env"],
            json!([
                "OPENSANDBOX_EGRESS_LOG_LEVEL=debug",
                "OPENSANDBOX_EGRESS_TOKEN=mine",
                "OPENSANDBOX_EGRESS_POLICY_FILE=/var/lib/opensandbox-egress.json",
                "OPENSANDBOX_EGRESS_RULES={\"egress\":[]}",
                "OPENSANDBOX_EGRESS_MODE=dns+nft",
                "OPENSANDBOX_EGRESS_TOKEN=secret",
                "OPENSANDBOX_EGRESS_SANDBOX_ID=a",
                "OPENSANDBOX_EGRESS_DNS_UPSTREAM=192.0.2.53",
            ])
        );
        assert_eq!(body["Labels"][labels::ROLE], "egress");
        assert_eq!(body.get("ExposedPorts"), None);
    }

    #[test]
    fn a_sidecar_without_a_sandbox_waits_for_its_claim() {
        let token = SecretString::from("secret");
        let ward = Ward {
            id: &"a".into(),
            token: Some(&token),
            policy: None,
        };
        assert_eq!(
            environment(&ward, &egress()),
            [
                "OPENSANDBOX_EGRESS_POLICY_FILE=/var/lib/opensandbox-egress.json",
                "OPENSANDBOX_EGRESS_AWAIT_CLAIM=true",
                "OPENSANDBOX_EGRESS_MODE=dns+nft",
                "OPENSANDBOX_EGRESS_TOKEN=secret",
                "OPENSANDBOX_EGRESS_SANDBOX_ID=a",
                "OPENSANDBOX_EGRESS_DNS_UPSTREAM=192.0.2.53",
            ]
        );
    }

    #[test]
    fn its_api_is_published_only_where_that_is_the_way_to_it() {
        let settings = EgressConfig {
            disable_ipv6: false,
            otlp_endpoint: Some("http://collector:4318".to_owned()),
            ..egress()
        };
        let body = body(&settings, Some(40123));
        let binding = &body["HostConfig"]["PortBindings"]["18080/tcp"][0];
        assert_eq!(binding["HostPort"], "40123");
        assert_eq!(body["ExposedPorts"], json!({"18080/tcp": {}}));
        assert_eq!(body["HostConfig"].get("Sysctls"), None);
        let env = body["Env"].as_array().unwrap();
        assert!(env.contains(&json!("OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318")));
    }

    #[test]
    fn name_servers_that_sandboxes_cannot_reach_are_left_out() {
        let text = "search corp\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n nameserver fe80::1\n\
                    nameserver 2001:db8::1\nnameserver ::1\nnameserver x\n";
        assert_eq!(resolvers(text, true), ["10.0.0.2"]);
        assert_eq!(resolvers(text, false), ["10.0.0.2", "2001:db8::1"]);
        let mut settings = egress();
        settings.dns_upstreams = vec!["10.0.0.1".to_owned(), "[2001:db8::2]:5353".to_owned()];
        assert_eq!(upstreams(&settings), "10.0.0.1,[2001:db8::2]:5353");
        settings.dns_upstreams.clear();
        assert!(!upstreams(&settings).is_empty());
    }
}

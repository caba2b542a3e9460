//! The create request of a main container (contract: lifecycle §17.4).

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigLogConfig, PortBinding,
};
use osb_protocol::{execd::HOOKS_ENV, resources::GpuCount};
use secrecy::ExposeSecret;

use super::{DockerConfig, execd_volume, labels, network::SandboxNetwork};
use crate::{CreateSpec, EXECD_PORT, HTTP_PORT, Ports, SERVER_VARIABLES};

/// Where execd keeps the files that isolated sessions write. The container's own layer is unsuitable:
/// the kernel accepts no overlay as the upper directory of another one.
const ISOLATION_UPPERS: &str = "/var/lib/execd/isolation";
/// Capability that namespaces and mounts require.
const ISOLATION_CAPABILITY: &str = "SYS_ADMIN";

/// Builds the create request of a main container.
pub(super) fn body(
    spec: &CreateSpec,
    image: &str,
    config: &DockerConfig,
    network: &SandboxNetwork,
    execd_bind: String,
    log: Option<HostConfigLogConfig>,
    ports: Ports,
) -> ContainerCreateBody {
    let attached = attachment(config, network, ports);
    let mut binds = config.sandbox_binds.clone();
    binds.push(execd_bind);
    let mut host_config = HostConfig {
        binds: Some(binds),
        cap_drop: Some(config.drop_capabilities.clone()),
        security_opt: Some(security_options(config)),
        log_config: log,
        pids_limit: Some(config.pids_limit),
        memory: spec.limits.memory_bytes,
        nano_cpus: spec.limits.nano_cpus,
        device_requests: spec.limits.gpus.map(gpu_request),
        runtime: config.secure_runtime.as_ref().map(|it| it.name.clone()),
        ..attached.host_config.unwrap_or_default()
    };
    if spec.isolation {
        allow_isolation(&mut host_config);
    }
    // The container's log belongs to the entry point. execd only adds its errors.
    let init = [execd_volume::EXECD, "init", "--log-level", "4"].into_iter();
    let mark = spec.waits.then_some(["--claim-mark", CLAIM_MARK]);
    let init = init.chain(mark.into_iter().flatten()).chain(["--"]);
    let init = init.map(str::to_owned).collect();
    ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(init),
        cmd: Some(command(&spec.origin.entrypoint)),
        env: Some(environment(spec, &config.sandbox_env)),
        exposed_ports: attached.exposed_ports,
        labels: Some(labels::of(&spec.origin, &config.instance, ports)),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// The part of a create request that attaches a container to the network and publishes its ports.
pub(super) fn attachment(
    config: &DockerConfig,
    network: &SandboxNetwork,
    ports: Ports,
) -> ContainerCreateBody {
    let published: Vec<(String, u16)> = [(EXECD_PORT, ports.execd), (HTTP_PORT, ports.http)]
        .into_iter()
        .filter_map(|(inside, outside)| Some((format!("{inside}/tcp"), outside?)))
        .collect();
    let bindings: HashMap<String, Option<Vec<PortBinding>>> = published
        .iter()
        .map(|(inside, outside)| {
            let binding = PortBinding {
                host_ip: Some(config.publish_host.to_string()),
                host_port: Some(outside.to_string()),
            };
            (inside.clone(), Some(vec![binding]))
        })
        .collect();
    ContainerCreateBody {
        exposed_ports: Some(published.into_iter().map(|(inside, _)| inside).collect()),
        host_config: Some(HostConfig {
            network_mode: Some(network.name().to_owned()),
            port_bindings: Some(bindings),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

fn security_options(config: &DockerConfig) -> Vec<String> {
    let mut options = Vec::new();
    if config.no_new_privileges {
        options.push("no-new-privileges=true".to_owned());
    }
    options.extend(
        config
            .apparmor_profile
            .iter()
            .map(|name| format!("apparmor={name}")),
    );
    options.extend(
        config
            .seccomp_profile
            .iter()
            .map(|name| format!("seccomp={name}")),
    );
    options
}

/// Lets execd isolate sessions (contract: lifecycle §A8, execd A9.1). `no-new-privileges` stays, as
/// isolation does not need to gain privileges.
fn allow_isolation(host: &mut HostConfig) {
    // Engines prefer the addition, or reject a capability that is both added and dropped.
    if let Some(dropped) = &mut host.cap_drop {
        dropped.retain(|name| !is_isolation_capability(name));
    }
    host.cap_add = Some(vec![ISOLATION_CAPABILITY.to_owned()]);
    let options = host.security_opt.get_or_insert_default();
    options.retain(|option| !option.starts_with("apparmor=") && !option.starts_with("seccomp="));
    options.extend(["apparmor=unconfined", "seccomp=unconfined"].map(str::to_owned));
    host.tmpfs = Some(HashMap::from([(
        ISOLATION_UPPERS.to_owned(),
        String::new(),
    )]));
    // Absent lists would mean the engine's defaults, and the kernel refuses to mount a new `/proc` in
    // a user namespace while parts of the existing one are masked.
    host.masked_paths = Some(Vec::new());
    host.readonly_paths = Some(Vec::new());
}

/// Whether a configured name is the isolation capability. Engines ignore prefix and case.
fn is_isolation_capability(name: &str) -> bool {
    let name = name.trim().to_ascii_uppercase();
    name.strip_prefix("CAP_").unwrap_or(&name) == ISOLATION_CAPABILITY
}

fn gpu_request(count: GpuCount) -> Vec<DeviceRequest> {
    let count = match count {
        GpuCount::All => -1,
        GpuCount::Exactly(count) => count,
    };
    vec![DeviceRequest {
        count: Some(count),
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    }]
}

/// Splits a single word with a space as a command line (contract: lifecycle §17.4). Validation has
/// checked its quotes; a word that cannot be split is kept.
pub(super) fn command(entrypoint: &[String]) -> Vec<String> {
    match entrypoint {
        [line] if line.contains(' ') => {
            shell_words::split(line).unwrap_or_else(|_| vec![line.clone()])
        }
        words => words.to_vec(),
    }
}

/// Variable with the path of execd's settings for isolated sessions and hardening.
const ISOLATION_CONFIG: &str = "EXECD_ISOLATION_CONFIG";
/// File with the claim of a sandbox that waited for it. It is not on execd's volume, which sandboxes
/// share.
pub(super) const CLAIM_MARK: &str = "/opt/opensandbox/.claim";
/// Variable that lets the first client claim an execd.
const RUNTIME_INIT: &str = "EXECD_RUNTIME_INIT";
/// Prefix of the variables of the egress sidecar.
const EGRESS: &str = "OPENSANDBOX_EGRESS_";
/// Variable of the sidecar that the sandbox gets as well (contract: lifecycle §A9).
const EGRESS_TRANSPARENT: &str = "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT";

/// Merges configured defaults, the request's variables (a null removes a default), and the server's.
fn environment(spec: &CreateSpec, defaults: &BTreeMap<String, String>) -> Vec<String> {
    let mut env = defaults.clone();
    for (key, value) in &spec.env {
        match value {
            Some(value) => env.insert(key.clone(), value.clone()),
            None => env.remove(key),
        };
    }
    env.retain(|key, _| {
        let is_sidecars = key.starts_with(EGRESS) && key != EGRESS_TRANSPARENT;
        !is_sidecars && !SERVER_VARIABLES.contains(&key.as_str())
    });
    if let Some(hooks) = &spec.lifecycle {
        env.insert(HOOKS_ENV.to_owned(), hooks.clone());
    }
    // It may restrict privileges, so the operator's setting wins.
    if let Some(file) = defaults.get(ISOLATION_CONFIG) {
        env.insert(ISOLATION_CONFIG.to_owned(), file.clone());
    }
    let mut list: Vec<String> = env
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if let Some(token) = &spec.origin.token {
        list.push(format!("EXECD_ACCESS_TOKEN={}", token.expose_secret()));
    }
    list.push(format!("OPENSANDBOX_ID={}", spec.origin.id));
    // Always set, because the image may set another value.
    list.push(format!("{RUNTIME_INIT}={}", spec.waits));
    list
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        SecureKind, SecureRuntime,
        docker::{NetworkMode, StorageConfig},
    };

    fn config() -> DockerConfig {
        DockerConfig {
            instance: "us".into(),
            execd: "/execd".into(),
            network: NetworkMode::Bridge,
            has_route: true,
            api_timeout: Duration::from_secs(1),
            drop_capabilities: ["NET_ADMIN", "SYS_ADMIN", "cap_sys_admin", "SYS_PTRACE"]
                .map(str::to_owned)
                .to_vec(),
            apparmor_profile: Some("ours".into()),
            seccomp_profile: Some("/etc/ours.json".into()),
            no_new_privileges: true,
            log_limit: None,
            pids_limit: 256,
            port_min: 40000,
            port_max: 60000,
            publish_host: Ipv4Addr::LOCALHOST,
            sandbox_env: BTreeMap::new(),
            sandbox_binds: Vec::new(),
            sidecars: Vec::new(),
            egress: None,
            storage: StorageConfig::default(),
            take_over: true,
            secure_runtime: None,
        }
    }

    /// Returns the body that is sent to the engine.
    fn sent(spec: &CreateSpec, config: &DockerConfig) -> Value {
        let network = SandboxNetwork::new(config.network.clone());
        let body = body(
            spec,
            "debian:12",
            config,
            &network,
            "execd:/x:ro".into(),
            None,
            Ports::default(),
        );
        serde_json::to_value(body).unwrap()
    }

    fn isolating() -> CreateSpec {
        CreateSpec {
            isolation: true,
            ..labels::tests::spec()
        }
    }

    #[test]
    fn a_sandbox_has_only_the_configured_privileges() {
        let host = &sent(&labels::tests::spec(), &config())["HostConfig"];
        assert_eq!(
            host["CapDrop"],
            json!(["NET_ADMIN", "SYS_ADMIN", "cap_sys_admin", "SYS_PTRACE"])
        );
        let options = [
            "no-new-privileges=true",
            "apparmor=ours",
            "seccomp=/etc/ours.json",
        ];
        assert_eq!(host["SecurityOpt"], json!(options));
        for absent in ["CapAdd", "Tmpfs", "MaskedPaths", "ReadonlyPaths"] {
            assert!(host.get(absent).is_none(), "{absent}: {host}");
        }
    }

    #[test]
    fn the_request_has_all_parameters_of_the_contract() {
        let spec = CreateSpec {
            env: [("A".to_owned(), Some("1".to_owned()))].into(),
            limits: osb_protocol::resources::ResourceLimits {
                nano_cpus: Some(500_000_000),
                memory_bytes: Some(268_435_456),
                gpus: Some(GpuCount::Exactly(2)),
            },
            lifecycle: Some("{}".to_owned()),
            ..labels::tests::spec()
        };
        let config = DockerConfig {
            sandbox_env: [("LANG".to_owned(), "C".to_owned())].into(),
            sandbox_binds: vec!["/srv:/srv:ro".to_owned()],
            secure_runtime: Some(SecureRuntime::usual(SecureKind::Gvisor)),
            ..config()
        };
        let network = SandboxNetwork::new(NetworkMode::Named("ours".to_owned()));
        let ports = Ports {
            execd: Some(40_001),
            http: Some(40_002),
        };
        let bind = "execd:/opt/opensandbox/.dist:ro".to_owned();
        let body = body(&spec, "debian:12", &config, &network, bind, None, ports);
        let mut sent = serde_json::to_value(body).unwrap();
        let labels = sent.as_object_mut().unwrap().remove("Labels").unwrap();
        assert_eq!(labels["opensandbox.io/embedding-proxy-port"], "40001");
        assert_eq!(labels["opensandbox.io/http-port"], "40002");
        let published = |port: &str| json!([{"HostIp": "127.0.0.1", "HostPort": port}]);
        let want = json!({
            "Image": "debian:12",
            "Entrypoint": ["/opt/opensandbox/.dist/execd", "init", "--log-level", "4", "--"],
            "Cmd": ["sh", "-c", "echo \"ä b\""],
            "Env": [
                "A=1", "LANG=C", "OPENSANDBOX_LIFECYCLE={}", "EXECD_ACCESS_TOKEN=t0ken",
                "OPENSANDBOX_ID=a", "EXECD_RUNTIME_INIT=false",
            ],
            "ExposedPorts": {"44772/tcp": {}, "8080/tcp": {}},
            "HostConfig": {
                "NetworkMode": "ours",
                "PortBindings": {"44772/tcp": published("40001"), "8080/tcp": published("40002")},
                "Binds": ["/srv:/srv:ro", "execd:/opt/opensandbox/.dist:ro"],
                "CapDrop": ["NET_ADMIN", "SYS_ADMIN", "cap_sys_admin", "SYS_PTRACE"],
                "SecurityOpt": [
                    "no-new-privileges=true", "apparmor=ours", "seccomp=/etc/ours.json",
                ],
                "PidsLimit": 256,
                "Memory": 268_435_456,
                "NanoCpus": 500_000_000,
                "DeviceRequests": [{"Count": 2, "Capabilities": [["gpu"]]}],
                "Runtime": "runsc",
            },
        });
        assert_eq!(sent, want);
        let bare = super::body(
            &spec,
            "debian:12",
            &config,
            &SandboxNetwork::new(NetworkMode::Host),
            String::new(),
            None,
            Ports::default(),
        );
        let bare = serde_json::to_value(bare).unwrap();
        assert_eq!(
            bare["ExposedPorts"],
            json!({}),
            "the host's own ports serve"
        );
        assert_eq!(bare["HostConfig"]["PortBindings"], json!({}));
        assert_eq!(bare["HostConfig"]["NetworkMode"], "host");
    }

    #[test]
    fn isolation_adds_its_requirements_and_keeps_the_rest() {
        let without = sent(&labels::tests::spec(), &config());
        let with = sent(&isolating(), &config());
        let host = &with["HostConfig"];
        assert_eq!(host["CapAdd"], json!(["SYS_ADMIN"]));
        assert_eq!(host["CapDrop"], json!(["NET_ADMIN", "SYS_PTRACE"]));
        let options = [
            "no-new-privileges=true",
            "apparmor=unconfined",
            "seccomp=unconfined",
        ];
        assert_eq!(host["SecurityOpt"], json!(options));
        assert_eq!(host["Tmpfs"], json!({"/var/lib/execd/isolation": ""}));
        // Not absent: that would be the engine's defaults.
        assert_eq!(host["MaskedPaths"], json!([]));
        assert_eq!(host["ReadonlyPaths"], json!([]));
        let rest = |body: &Value| {
            let mut body = body.clone();
            let host = body["HostConfig"].as_object_mut().unwrap();
            for changed in [
                "CapAdd",
                "CapDrop",
                "SecurityOpt",
                "Tmpfs",
                "MaskedPaths",
                "ReadonlyPaths",
            ] {
                host.remove(changed);
            }
            body
        };
        assert_eq!(rest(&with), rest(&without), "labels and all else");
    }

    #[test]
    fn isolation_needs_no_configuration() {
        let bare = DockerConfig {
            drop_capabilities: Vec::new(),
            apparmor_profile: None,
            seccomp_profile: None,
            no_new_privileges: false,
            ..config()
        };
        let host = &sent(&isolating(), &bare)["HostConfig"];
        assert_eq!(
            host["SecurityOpt"],
            json!(["apparmor=unconfined", "seccomp=unconfined"])
        );
        assert_eq!(host["CapAdd"], json!(["SYS_ADMIN"]));
    }

    #[test]
    fn a_waiting_sandbox_needs_a_claim() {
        let spec = CreateSpec {
            waits: true,
            ..labels::tests::spec()
        };
        let body = sent(&spec, &config());
        let env = body["Env"].as_array().unwrap();
        assert!(env.contains(&json!("EXECD_RUNTIME_INIT=true")), "{env:?}");
        let init: Vec<_> = body["Entrypoint"].as_array().unwrap()[4..].to_vec();
        assert_eq!(
            json!(init),
            json!(["--claim-mark", "/opt/opensandbox/.claim", "--"])
        );
    }

    #[test]
    fn requests_cannot_configure_execd() {
        let environment = |env: Value, defaults: &[(&str, &str)]| {
            let spec = CreateSpec {
                env: serde_json::from_value(env).unwrap(),
                ..labels::tests::spec()
            };
            let defaults = defaults.iter();
            let defaults = defaults.map(|&(key, value)| (key.to_owned(), value.to_owned()));
            environment(&spec, &defaults.collect())
        };
        let count = |list: &[String], start: &str| {
            let found = list.iter().filter(|entry| entry.starts_with(start));
            found.count()
        };
        for value in [json!({}), json!({ "EXECD_RUNTIME_INIT": "1" })] {
            let list = environment(value, &[]);
            assert!(list.contains(&"EXECD_RUNTIME_INIT=false".to_owned()));
            assert_eq!(count(&list, "EXECD_RUNTIME_INIT="), 1, "{list:?}");
        }
        let configured = [("EXECD_ISOLATION_CONFIG", "/ours"), ("LANG", "C")];
        for value in [json!("/theirs"), json!(""), json!(null)] {
            let request = json!({ "EXECD_ISOLATION_CONFIG": value, "LANG": "de" });
            let list = environment(request, &configured);
            assert!(list.contains(&"EXECD_ISOLATION_CONFIG=/ours".to_owned()));
            assert_eq!(count(&list, "EXECD_ISOLATION_CONFIG="), 1, "{list:?}");
            assert!(list.contains(&"LANG=de".to_owned()));
        }
        let mut hooked = labels::tests::spec();
        hooked.lifecycle = Some("{}".to_owned());
        let fleet = [
            (HOOKS_ENV, "fleet"),
            ("OPENSANDBOX_EGRESS_LOG_LEVEL", "debug"),
        ];
        let fleet = fleet.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let list = super::environment(&hooked, &fleet.into());
        assert!(list.contains(&format!("{HOOKS_ENV}={{}}")), "{list:?}");
        assert_eq!(count(&list, HOOKS_ENV), 1, "the request's, not the fleet's");
        assert_eq!(count(&list, "OPENSANDBOX_EGRESS_"), 0, "{list:?}");
        let alone = environment(json!({ "EXECD_ISOLATION_CONFIG": "/theirs" }), &[]);
        assert!(alone.contains(&"EXECD_ISOLATION_CONFIG=/theirs".to_owned()));
    }

    #[test]
    fn one_word_with_spaces_is_split_like_a_shell_does() {
        let split = |line: &str| command(&[line.to_owned()]);
        assert_eq!(split("tail -f /dev/null"), ["tail", "-f", "/dev/null"]);
        assert_eq!(split("sh -c 'a b'"), ["sh", "-c", "a b"]);
        assert_eq!(split("sleep"), ["sleep"]);
        assert_eq!(command(&["a b".into(), "c".into()]), ["a b", "c"]);
    }
}

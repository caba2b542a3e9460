//! The container of a sandbox (contract: lifecycle §17.4).

use std::collections::{BTreeMap, HashMap};

use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, PortBinding};
use osb_protocol::resources::GpuCount;
use secrecy::ExposeSecret;

use super::{DockerConfig, execd_volume, labels, network::SandboxNetwork};
use crate::{CreateSpec, EXECD_PORT, HTTP_PORT, Ports};

/// Builds the engine's request for a sandbox.
pub(super) fn body(
    spec: &CreateSpec,
    config: &DockerConfig,
    network: &SandboxNetwork,
    execd_bind: String,
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
    let mut binds = config.sandbox_binds.clone();
    binds.push(execd_bind);
    let host_config = HostConfig {
        network_mode: Some(network.name().to_owned()),
        port_bindings: Some(bindings),
        binds: Some(binds),
        cap_drop: Some(config.drop_capabilities.clone()),
        security_opt: Some(security_options(config)),
        pids_limit: Some(config.pids_limit),
        memory: spec.limits.memory_bytes,
        nano_cpus: spec.limits.nano_cpus,
        device_requests: spec.limits.gpus.map(gpu_request),
        runtime: config.oci_runtime.clone(),
        ..HostConfig::default()
    };
    // The container's log is the entry point's; of execd it carries only what went wrong.
    let init = [execd_volume::EXECD, "init", "--log-level", "4", "--"]
        .map(str::to_owned)
        .to_vec();
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: Some(init),
        cmd: Some(command(&spec.entrypoint)),
        env: Some(environment(spec, &config.sandbox_env)),
        exposed_ports: Some(published.into_iter().map(|(inside, _)| inside).collect()),
        labels: Some(labels::of(spec, &config.instance, ports)),
        host_config: Some(host_config),
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

/// A single word with a space is a command line (contract: lifecycle §17.4). Quotes were checked
/// when the request was validated; what does not split stays as it is.
fn command(entrypoint: &[String]) -> Vec<String> {
    match entrypoint {
        [line] if line.contains(' ') => {
            shell_words::split(line).unwrap_or_else(|_| vec![line.clone()])
        }
        words => words.to_vec(),
    }
}

/// Configured defaults, then the request's (a null removes a default), then ours.
fn environment(spec: &CreateSpec, defaults: &BTreeMap<String, String>) -> Vec<String> {
    let mut env = defaults.clone();
    for (key, value) in &spec.env {
        match value {
            Some(value) => env.insert(key.clone(), value.clone()),
            None => env.remove(key),
        };
    }
    // execd's own settings are not the request's to make: a foreign token would lock us out.
    for key in ["EXECD_ACCESS_TOKEN", "OPENSANDBOX_ID"] {
        env.remove(key);
    }
    let mut list: Vec<String> = env
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if let Some(token) = &spec.token {
        list.push(format!("EXECD_ACCESS_TOKEN={}", token.expose_secret()));
    }
    list.push(format!("OPENSANDBOX_ID={}", spec.id));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_with_spaces_is_split_like_a_shell_does() {
        let split = |line: &str| command(&[line.to_owned()]);
        assert_eq!(split("tail -f /dev/null"), ["tail", "-f", "/dev/null"]);
        assert_eq!(split("sh -c 'a b'"), ["sh", "-c", "a b"]);
        assert_eq!(split("sleep"), ["sleep"]);
        assert_eq!(command(&["a b".into(), "c".into()]), ["a b", "c"]);
    }
}

//! Logs and settings of single containers (contract: lifecycle §11).

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use bollard::{
    models::{ContainerInspectResponse, PortBinding},
    query_parameters::LogsOptionsBuilder,
};
use osb_protocol::{SandboxId, WireTime};

use super::{DockerRuntime, labels, log_tail::TailBuffer};
use crate::{
    Diagnostics, HealthCheck, Inspection, LogFollow, LogLines, LogQuery, LogText, MASK,
    RuntimeError, names_secret,
};

#[async_trait]
impl Diagnostics for DockerRuntime {
    async fn read_log(&self, id: &SandboxId, query: LogQuery) -> Result<LogText, RuntimeError> {
        let mut options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .tail(&query.lines.to_string());
        if let Some(since) = query.since {
            // The engine takes whole seconds; earlier lines of the first one are left out below.
            let seconds = since.unix_ms().div_euclid(1000).max(0);
            options = options.since(i32::try_from(seconds).unwrap_or(i32::MAX));
        }
        let container = self.main_container(id).await?;
        let output = self
            .read_output(&container, options.build(), TailBuffer::new(query.bytes))
            .await?
            .ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
        Ok(LogText::of_output(&output.bytes, &query, output.is_cut))
    }

    async fn open_log(&self, id: &SandboxId, wanted: LogFollow) -> Result<LogLines, RuntimeError> {
        self.open_output(id, wanted).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Inspection, RuntimeError> {
        let container = self.main_container(id).await?;
        let inspected = Self::inspect(self, &container).await;
        let inspected = inspected.map_err(|error| match error {
            RuntimeError::NotFound(_) => RuntimeError::NotFound(id.clone()),
            other => other,
        })?;
        Ok(convert(inspected))
    }
}

fn convert(container: ContainerInspectResponse) -> Inspection {
    let state = container.state.unwrap_or_default();
    let config = container.config.unwrap_or_default();
    let host = container.host_config.unwrap_or_default();
    let network = container.network_settings.unwrap_or_default();
    let is = |flag: Option<bool>| flag == Some(true);
    let limit = |amount: Option<i64>| amount.filter(|amount| *amount > 0);
    // Times before the first start are years before the epoch.
    let time = |text: &str| WireTime::parse(text).ok().filter(|at| at.unix_us() > 0);
    let finished = state.finished_at.as_deref().and_then(time);
    let health = state.health.and_then(|health| health.log);
    Inspection {
        container: container.id.unwrap_or_default(),
        name: container
            .name
            .map(|name| name.trim_start_matches('/').to_owned())
            .unwrap_or_default(),
        image: config.image.or(container.image).unwrap_or_default(),
        status: state.status.map(|it| it.to_string()).unwrap_or_default(),
        is_running: is(state.running),
        is_paused: is(state.paused),
        out_of_memory: is(state.oom_killed),
        exit_code: state.exit_code.filter(|_| finished.is_some()),
        restarts: container.restart_count,
        created: container.created.and_then(|at| time(&at.to_string())),
        started: state.started_at.as_deref().and_then(time),
        finished,
        error: state.error.filter(|error| !error.is_empty()),
        nano_cpus: limit(host.nano_cpus),
        memory_bytes: limit(host.memory),
        pids: limit(host.pids_limit),
        oci_runtime: host.runtime.filter(|name| !name.is_empty()),
        networks: networks(network.networks.unwrap_or_default()),
        ports: ports(network.ports.unwrap_or_default()),
        labels: shown_labels(config.labels.unwrap_or_default()),
        environment: names_of(&config.env.unwrap_or_default()),
        health_checks: health
            .unwrap_or_default()
            .into_iter()
            .map(|check| HealthCheck {
                at: check.end.and_then(|at| time(&at.to_string())),
                exit_code: check.exit_code.unwrap_or_default(),
                output: check.output.unwrap_or_default(),
            })
            .collect(),
    }
}

fn networks(networks: HashMap<String, bollard::models::EndpointSettings>) -> Vec<(String, String)> {
    let mut list: Vec<_> = networks
        .into_iter()
        .map(|(name, settings)| (name, settings.ip_address.unwrap_or_default()))
        .collect();
    list.sort();
    list
}

fn ports(ports: HashMap<String, Option<Vec<PortBinding>>>) -> Vec<(String, Option<String>)> {
    let mut list = Vec::new();
    for (inside, bindings) in ports {
        let bindings = bindings.unwrap_or_default();
        if bindings.is_empty() {
            list.push((inside.clone(), None));
        }
        list.extend(bindings.into_iter().map(|binding| {
            let host = binding.host_ip.unwrap_or_default();
            let port = binding.host_port.unwrap_or_default();
            (inside.clone(), Some(format!("{host}:{port}")))
        }));
    }
    list.sort();
    list
}

/// Leaves out labels without a value, which only hide those of an image, and masks secret ones.
fn shown_labels(all: HashMap<String, String>) -> BTreeMap<String, String> {
    let shown = all.into_iter().filter(|(_, value)| !value.is_empty());
    let masked = shown.map(|(name, value)| {
        let secret = match labels::is_reserved(&name) {
            true => !labels::is_public(&name),
            false => names_secret(&name),
        };
        (name, if secret { MASK.to_owned() } else { value })
    });
    masked.collect()
}

fn names_of(environment: &[String]) -> Vec<String> {
    let name = |entry: &String| entry.split('=').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = environment.iter().map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[tokio::test]
    async fn a_log_begins_at_the_wanted_time_and_not_at_its_second() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c1", "Labels": labels}]).to_string())
            }
            // As an engine does with the second of the wanted time.
            _ if request.starts_with("GET /containers/c1/logs")
                && request.contains("since=1935568801") =>
            {
                let lines = "2031-05-03T10:00:01.2Z early\n2031-05-03T10:00:01.4Z late\n";
                let length = char::from(u8::try_from(lines.len()).unwrap());
                // A frame: stream 1, four bytes of length, the bytes.
                (200, format!("\u{1}\0\0\0\0\0\0{length}{lines}"))
            }
            _ => (404, json!({"message": "No such container"}).to_string()),
        })
        .await;
        let query = LogQuery {
            lines: 10,
            since: Some(WireTime::parse("2031-05-03T10:00:01.3Z").unwrap()),
            bytes: 1 << 10,
        };
        let runtime = engine.runtime();
        let log = Diagnostics::read_log(&runtime, &"a".into(), query).await;
        assert_eq!(log.unwrap().text, "2031-05-03T10:00:01.4Z late\n");
    }

    #[tokio::test]
    async fn an_inspection_has_no_secret() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c1", "Labels": labels}]).to_string())
            }
            _ if request.starts_with("GET /containers/c1/json") => {
                let container = json!({
                    "Id": "c1", "Name": "/brave_fox", "RestartCount": 2,
                    "Created": "2031-05-01T10:00:00Z",
                    "State": {
                        "Status": "exited", "OOMKilled": true, "ExitCode": 137,
                        "StartedAt": "2031-05-01T10:00:01Z",
                        "FinishedAt": "2031-05-01T10:00:02Z",
                    },
                    "Config": {
                        "Image": "debian:12",
                        "Env": ["PLAIN=v4lue", "DATABASE_URL=postgres://u:hunter2@h/d"],
                        "Labels": {
                            labels::ID: "a", labels::EXECD_TOKEN: "t0ken",
                            labels::SECURE_ACCESS: "s3cure",
                            labels::HELPER: "", "opensandbox.io/of-a-later-release": "s3cret",
                            "team": "core", "deploy-key": "k3y",
                        },
                    },
                    "HostConfig": {
                        "NanoCpus": 500_000_000, "Memory": 0, "Runtime": "runsc",
                    },
                    "NetworkSettings": {
                        "Networks": {"n": {"IPAddress": "172.20.0.2"}},
                        "Ports": {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40001"}]},
                    },
                });
                (200, container.to_string())
            }
            _ => (404, json!({"message": "No such container"}).to_string()),
        })
        .await;
        let runtime = engine.runtime();
        let seen = Diagnostics::inspect(&runtime, &"a".into()).await.unwrap();
        assert_eq!(
            (seen.name.as_str(), seen.exit_code),
            ("brave_fox", Some(137))
        );
        assert_eq!(
            (seen.nano_cpus, seen.memory_bytes),
            (Some(500_000_000), None)
        );
        let port = ("8080/tcp".to_owned(), Some("127.0.0.1:40001".to_owned()));
        assert_eq!(seen.ports, [port]);
        assert_eq!(seen.oci_runtime.as_deref(), Some("runsc"));
        assert_eq!(seen.environment, ["DATABASE_URL", "PLAIN"]);
        let label = |name: &str| seen.labels.get(name).map(String::as_str);
        assert_eq!(
            (label(labels::ID), label("team")),
            (Some("a"), Some("core"))
        );
        assert_eq!(label(labels::HELPER), None);
        let shown = format!("{seen:?}");
        for secret in ["v4lue", "hunter2", "t0ken", "s3cure", "s3cret", "k3y"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

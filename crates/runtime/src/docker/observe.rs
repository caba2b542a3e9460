//! Reading containers as sandboxes (contract: lifecycle §12).

use std::collections::HashMap;

use bollard::{
    models::{
        ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, EndpointSettings,
    },
    query_parameters::{InspectContainerOptions, LogsOptionsBuilder},
};
use futures::StreamExt;
use osb_protocol::{SandboxId, WireTime};

use super::{DockerRuntime, error, labels};
use crate::{Address, Observed, Phase, RuntimeError, Status};

/// Longest line of a log tail, in bytes.
const LOG_LINE: usize = 4096;

impl DockerRuntime {
    /// Reads the container of a sandbox.
    pub(super) async fn observe(&self, container: &str) -> Result<Observed, RuntimeError> {
        let inspected = self.inspect(container).await?;
        self.read_inspect(inspected)
            .ok_or_else(|| no_labels(container))
    }

    /// Reads a container with a sandbox's id that this process does not know; `None` when it is a
    /// copy.
    pub(super) async fn observe_unknown(
        &self,
        container: &str,
    ) -> Result<Option<Observed>, RuntimeError> {
        let inspected = self.inspect(container).await?;
        let image = inspected.image.clone();
        let observed = self
            .read_inspect(inspected)
            .ok_or_else(|| no_labels(container))?;
        let id = &observed.origin.id;
        if self.is_original(id, container, image.as_deref()).await? {
            return Ok(Some(observed));
        }
        self.originals.report_copy(id, container);
        Ok(None)
    }

    async fn inspect(&self, container: &str) -> Result<ContainerInspectResponse, RuntimeError> {
        self.docker()?
            .inspect_container(container, None::<InspectContainerOptions>)
            .await
            .map_err(|error| match error::is_missing(&error) {
                true => RuntimeError::NotFound(SandboxId::new(container)),
                false => error::other("inspect the sandbox", &error),
            })
    }

    /// Reads every sandbox of this installation, and those of the reference, which have no
    /// installation label.
    pub(super) async fn observe_all(&self) -> Result<Vec<Observed>, RuntimeError> {
        let list = self.list_originals().await?;
        let mut all = Vec::with_capacity(list.len());
        for container in list {
            let running = container.state == Some(ContainerSummaryStateEnum::RUNNING);
            match self.read_summary(&container) {
                // The list knows neither when a container ended nor the reference's command line.
                Some(observed) if running && !observed.origin.entrypoint.is_empty() => {
                    all.push(observed)
                }
                Some(observed) => {
                    let name = container
                        .id
                        .as_deref()
                        .unwrap_or(observed.origin.id.as_str());
                    match self.observe(name).await {
                        Ok(exact) => all.push(exact),
                        // It vanished between the list and the look.
                        Err(RuntimeError::NotFound(_)) => {}
                        // Leaving it out would mean that it is gone.
                        Err(error) => return Err(error),
                    }
                }
                None => {}
            }
        }
        Ok(all)
    }

    /// The sandbox that a container's labels name, unless another installation made it.
    pub(super) fn id_if_ours(&self, labels: &HashMap<String, String>) -> Option<SandboxId> {
        let read = labels::Read(labels);
        let server = read.server();
        let ours = server.is_none_or(|server| server == self.config.instance);
        read.id().filter(|_| ours)
    }

    fn read_summary(&self, container: &ContainerSummary) -> Option<Observed> {
        let labels = container.labels.as_ref()?;
        self.id_if_ours(labels)?;
        let read = labels::Read(labels);
        let made = WireTime::from_unix_us(container.created.unwrap_or_default() * 1_000_000)?;
        let phase = match container.state {
            Some(ContainerSummaryStateEnum::RUNNING) => Phase::Running,
            Some(ContainerSummaryStateEnum::PAUSED) => Phase::Paused,
            Some(ContainerSummaryStateEnum::CREATED) => Phase::Created,
            Some(ContainerSummaryStateEnum::RESTARTING) => Phase::Restarting,
            _ => Phase::Unknown,
        };
        let networks = container
            .network_settings
            .as_ref()
            .and_then(|all| all.networks.as_ref());
        let mode = container
            .host_config
            .as_ref()
            .and_then(|host| host.network_mode.as_deref());
        // The list shows the command joined and cut, and not whether memory ran out.
        let fallback = labels::Fallback {
            created_at: made,
            image: container.image.clone().unwrap_or_default(),
            command: Vec::new(),
        };
        Some(Observed {
            origin: read.origin(fallback)?,
            status: Status {
                address: address(&read, mode, networks),
                ..Status::new(phase, made)
            },
        })
    }

    fn read_inspect(&self, container: ContainerInspectResponse) -> Option<Observed> {
        let config = container.config?;
        let labels = config.labels?;
        self.id_if_ours(&labels)?;
        let read = labels::Read(&labels);
        let time = |text: Option<&str>| WireTime::parse(text?).ok().filter(|at| at.unix_us() > 0);
        let made = container
            .created
            .as_ref()
            .and_then(|at| time(Some(&at.to_string())))?;
        let state = container.state.unwrap_or_default();
        let (started, finished) = (
            time(state.started_at.as_deref()),
            time(state.finished_at.as_deref()),
        );
        let phase = if state.paused == Some(true) {
            Phase::Paused
        } else if state.restarting == Some(true) {
            Phase::Restarting
        } else if state.running == Some(true) {
            Phase::Running
        } else if finished.is_some() {
            Phase::Exited(state.exit_code.unwrap_or_default())
        } else if started.is_none() {
            Phase::Created
        } else {
            Phase::Unknown
        };
        let since = match phase {
            Phase::Exited(_) => finished,
            _ => started,
        };
        let networks = container
            .network_settings
            .as_ref()
            .and_then(|settings| settings.networks.as_ref());
        let mode = container
            .host_config
            .as_ref()
            .and_then(|host| host.network_mode.as_deref());
        let fallback = labels::Fallback {
            created_at: made,
            image: config.image.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
        };
        Some(Observed {
            origin: read.origin(fallback)?,
            status: Status {
                out_of_memory: state.oom_killed == Some(true),
                address: address(&read, mode, networks),
                ..Status::new(phase, since.unwrap_or(made))
            },
        })
    }

    pub(super) async fn read_log_tail(
        &self,
        id: &SandboxId,
        lines: usize,
    ) -> Result<Vec<String>, RuntimeError> {
        let container = match self.originals.of(id) {
            Some(known) => Some(known),
            None => self.find_original(id).await?,
        };
        let tail = match container {
            Some(container) => self.log_tail_of(&container, lines).await?,
            None => None,
        };
        tail.ok_or_else(|| RuntimeError::NotFound(id.clone()))
    }

    /// The last lines of a container's log; `None` without such a container.
    async fn log_tail_of(
        &self,
        container: &str,
        lines: usize,
    ) -> Result<Option<Vec<String>>, RuntimeError> {
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .tail(&lines.to_string())
            .build();
        let mut output = self.docker()?.logs(container, Some(options));
        let mut text = Vec::new();
        while let Some(chunk) = output.next().await {
            match chunk {
                Ok(chunk) => text.extend_from_slice(&chunk.into_bytes()),
                Err(error) if error::is_missing(&error) => return Ok(None),
                Err(error) => return Err(error::other("read the log", &error)),
            }
            // `tail` bounds lines, not bytes.
            if text.len() > lines.max(1) * LOG_LINE {
                text.drain(..text.len() - lines.max(1) * LOG_LINE);
            }
        }
        let all: Vec<String> = String::from_utf8_lossy(&text)
            .lines()
            .map(str::to_owned)
            .collect();
        Ok(Some(all[all.len().saturating_sub(lines)..].to_vec()))
    }
}

fn no_labels(container: &str) -> RuntimeError {
    RuntimeError::Other {
        runtime: super::KIND,
        op: "inspect the sandbox",
        reason: format!("{container} has no sandbox labels"),
    }
}

/// The address on the network the container was attached to; else the first one there is
/// (contract: lifecycle §6.3).
fn address(
    read: &labels::Read<'_>,
    mode: Option<&str>,
    networks: Option<&HashMap<String, EndpointSettings>>,
) -> Address {
    let ip_of = |endpoint: &EndpointSettings| {
        endpoint
            .ip_address
            .as_deref()
            .filter(|ip| !ip.is_empty())?
            .parse()
            .ok()
    };
    let named = mode.and_then(|mode| networks?.get(mode)).and_then(ip_of);
    let any = || networks?.values().find_map(ip_of);
    Address {
        host_network: mode == Some("host"),
        ip: named.or_else(any),
        ports: read.ports(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Runtime, docker::fake_engine::FakeEngine};

    #[tokio::test]
    async fn an_end_comes_with_its_time_and_whether_memory_ran_out() {
        let engine = FakeEngine::start(|_| {
            let container = json!({
                "Created": "2031-05-01T10:00:00Z",
                "Config": {"Labels": {labels::ID: "a", labels::SERVER: "us"}},
                "State": {
                    "Running": false, "OOMKilled": true, "ExitCode": 137,
                    "StartedAt": "2031-05-01T10:00:01Z", "FinishedAt": "2031-05-01T10:00:02Z",
                },
            });
            (200, container.to_string())
        })
        .await;
        let seen = engine.runtime().observe("sandbox-a").await.unwrap();
        assert_eq!(seen.status.phase, Phase::Exited(137));
        assert_eq!(seen.status.since.to_string(), "2031-05-01T10:00:02Z");
        assert!(seen.status.out_of_memory);
    }

    #[tokio::test]
    async fn the_log_of_an_unknown_container_is_found_by_its_label() {
        let engine = FakeEngine::start(|request| {
            if request.starts_with("GET /containers/json") {
                let renamed =
                    json!({"Id": "c1", "Labels": {labels::ID: "a", labels::SERVER: "us"}});
                return (200, json!([renamed]).to_string());
            }
            match request.starts_with("GET /containers/c1/logs") {
                // A frame: stream 1, four bytes of length, the bytes.
                true => (200, "\u{1}\0\0\0\0\0\0\u{8}one\ntwo\n".to_owned()),
                false => (404, json!({"message": "No such container"}).to_string()),
            }
        })
        .await;
        let tail = engine.runtime().log_tail(&"a".into(), 1).await.unwrap();
        assert_eq!(tail, ["two"]);
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => (200, "[]".to_owned()),
            _ => (404, json!({"message": "No such container"}).to_string()),
        })
        .await;
        let none = engine.runtime().log_tail(&"a".into(), 1).await;
        assert!(matches!(none, Err(RuntimeError::NotFound(_))), "{none:?}");
    }
}

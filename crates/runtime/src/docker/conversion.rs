//! Conversion of the engine's containers into observed sandboxes (contract: lifecycle §12).

use std::collections::HashMap;

use bollard::models::{
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, EndpointSettings,
};
use osb_protocol::WireTime;

use super::{DockerRuntime, labels};
use crate::{Address, Observed, Phase, Role, Status};

impl DockerRuntime {
    /// Converts a listed main container. Sidecars are part of its status.
    pub(super) fn read_summary(
        &self,
        container: &ContainerSummary,
        owner: Option<Owner>,
    ) -> Option<Observed> {
        let labels = container.labels.as_ref()?;
        self.place_if_ours(labels)
            .filter(|(_, role)| *role == Role::Main)?;
        let read = labels::Read(labels);
        let made = WireTime::from_unix_us(container.created.unwrap_or_default() * 1_000_000)?;
        let phase = match container.state {
            Some(ContainerSummaryStateEnum::RUNNING) => Phase::Running,
            Some(ContainerSummaryStateEnum::PAUSED) => self.paused(&read),
            Some(ContainerSummaryStateEnum::CREATED) => Phase::Created,
            Some(ContainerSummaryStateEnum::RESTARTING) => Phase::Restarting,
            _ => Phase::Unknown,
        };
        let own = Owner::of_summary(container);
        // The list has the command joined and truncated, and not whether memory ran out.
        let fallback = labels::Fallback {
            created_at: made,
            image: container.image.clone().unwrap_or_default(),
            command: Vec::new(),
        };
        Some(Observed {
            origin: read.origin(fallback)?,
            status: Status {
                // A list has no times. `observe_all` inspects what may be lost nevertheless.
                lost: lost(owner.as_ref(), None),
                address: address(&read, &owner.unwrap_or(own)),
                ..Status::new(phase, made)
            },
        })
    }

    /// Converts an inspected main container.
    pub(super) fn read_inspect(
        &self,
        mut container: ContainerInspectResponse,
        owner: Option<Owner>,
    ) -> Option<Observed> {
        let config = container.config.take()?;
        let labels = config.labels?;
        self.place_if_ours(&labels)
            .filter(|(_, role)| *role == Role::Main)?;
        let read = labels::Read(&labels);
        let made = container
            .created
            .as_ref()
            .and_then(|at| engine_time(Some(&at.to_string())))?;
        let state = container.state.clone().unwrap_or_default();
        let (started, finished) = (
            engine_time(state.started_at.as_deref()),
            engine_time(state.finished_at.as_deref()),
        );
        let phase = if state.paused == Some(true) {
            self.paused(&read)
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
        let fallback = labels::Fallback {
            created_at: made,
            image: config.image.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
        };
        Some(Observed {
            origin: read.origin(fallback)?,
            status: Status {
                out_of_memory: state.oom_killed == Some(true),
                lost: lost(owner.as_ref(), started),
                address: address(
                    &read,
                    &owner.unwrap_or_else(|| Owner::of_inspect(container)),
                ),
                ..Status::new(phase, since.unwrap_or(made))
            },
        })
    }
}

impl DockerRuntime {
    /// The phase of a frozen container. While the engine captures its file system, that does not count.
    fn paused(&self, labels: &labels::Read<'_>) -> Phase {
        match labels.id() {
            Some(id) if self.capturing.contains(&id) => Phase::Running,
            _ => Phase::Paused,
        }
    }
}

/// Reads a time of the engine, which has the year 1 for "never".
fn engine_time(text: Option<&str>) -> Option<WireTime> {
    WireTime::parse(text?).ok().filter(|at| at.unix_us() > 0)
}

/// The container that owns a network namespace.
#[derive(Debug, Default)]
pub(super) struct Owner {
    runs: bool,
    /// When it was started, which lists do not have.
    started: Option<WireTime>,
    mode: Option<String>,
    networks: HashMap<String, EndpointSettings>,
}

impl Owner {
    pub(super) fn of_summary(container: &ContainerSummary) -> Self {
        use ContainerSummaryStateEnum::{PAUSED, RUNNING};
        let networks = container.network_settings.as_ref();
        Self {
            runs: matches!(container.state, Some(RUNNING | PAUSED)),
            started: None,
            mode: network_mode(container).map(str::to_owned),
            networks: networks
                .and_then(|settings| settings.networks.clone())
                .unwrap_or_default(),
        }
    }

    pub(super) fn of_inspect(container: ContainerInspectResponse) -> Self {
        let state = container.state.unwrap_or_default();
        let settings = container.network_settings.unwrap_or_default();
        Self {
            runs: state.running == Some(true),
            started: engine_time(state.started_at.as_deref()),
            mode: container.host_config.and_then(|host| host.network_mode),
            networks: settings.networks.unwrap_or_default(),
        }
    }

    /// Whether it runs.
    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    /// Its attachment to its network, which is another one after each start. `None` if it has none.
    pub(super) fn attachment(&self) -> Option<String> {
        let endpoints = self.networks.values();
        let ids = endpoints.filter_map(|endpoint| endpoint.endpoint_id.as_deref());
        let mut ids: Vec<&str> = ids.filter(|id| !id.is_empty()).collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids.join(" "))
    }

    /// Whether it was started again since a container joined its network. That container then keeps
    /// the former network namespace, which has no interface any more.
    fn has_left(&self, joined: Option<WireTime>) -> bool {
        matches!((self.started, joined), (Some(own), Some(joined)) if own > joined)
    }
}

pub(super) fn network_mode(container: &ContainerSummary) -> Option<&str> {
    container.host_config.as_ref()?.network_mode.as_deref()
}

/// Returns the lost role of a sandbox that was started at a time, if its network belongs to another
/// container.
fn lost(owner: Option<&Owner>, started: Option<WireTime>) -> Option<Role> {
    let is_lost = |owner: &&Owner| !owner.runs || owner.has_left(started);
    owner.filter(is_lost).map(|_| Role::Egress)
}

/// Returns the address on the network that the owner was attached to, else on any other network
/// (contract: lifecycle §6.3).
fn address(read: &labels::Read<'_>, owner: &Owner) -> Address {
    let ip_of = |endpoint: &EndpointSettings| {
        endpoint
            .ip_address
            .as_deref()
            .filter(|ip| !ip.is_empty())?
            .parse()
            .ok()
    };
    let mode = owner.mode.as_deref();
    let named = mode.and_then(|mode| owner.networks.get(mode));
    let any = || owner.networks.values().find_map(ip_of);
    Address {
        host_network: mode == Some("host"),
        ip: named.and_then(ip_of).or_else(any),
        ports: read.ports(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    };

    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[tokio::test]
    async fn an_exit_has_its_time_and_whether_memory_ran_out() {
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
        let observed = engine.runtime().observe("sandbox-a").await.unwrap();
        assert_eq!(observed.status.phase, Phase::Exited(137));
        assert_eq!(observed.status.since.to_string(), "2031-05-01T10:00:02Z");
        assert!(observed.status.out_of_memory);
    }

    /// A main container behind a sidecar.
    fn joined() -> serde_json::Value {
        json!({
            "Id": "main", "Created": 1_935_396_000, "State": "running", "Image": "debian:12",
            "Labels": {labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: r#"["x"]"#},
            "HostConfig": {"NetworkMode": "container:side"},
        })
    }

    fn sidecar(state: &str) -> serde_json::Value {
        json!({
            "Id": "side", "Created": 1_935_396_000, "State": state, "Image": "egress",
            "Labels": {labels::ID: "a", labels::SERVER: "us", labels::ROLE: "egress"},
            "HostConfig": {"NetworkMode": "opensandbox"},
            "NetworkSettings": {"Networks": {"opensandbox": {"IPAddress": "172.20.0.9"}}},
        })
    }

    #[tokio::test]
    async fn a_group_is_one_sandbox_with_the_owners_address() {
        for (state, lost) in [("running", None), ("exited", Some(Role::Egress))] {
            let engine = FakeEngine::start(move |request| match request {
                _ if request.starts_with("GET /containers/json") => {
                    (200, json!([sidecar(state), joined()]).to_string())
                }
                _ => (200, json!({}).to_string()),
            })
            .await;
            let all = engine.runtime().observe_all().await.unwrap();
            let [sandbox] = all.as_slice() else {
                panic!("{all:?}");
            };
            assert_eq!(sandbox.origin.id.as_str(), "a");
            assert_eq!(sandbox.status.lost, lost);
            let ip = sandbox.status.address.ip.unwrap();
            assert_eq!(ip.to_string(), "172.20.0.9");
        }
    }

    #[tokio::test]
    async fn a_missing_sidecar_is_lost() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                (200, json!([joined()]).to_string())
            }
            _ => (200, json!({}).to_string()),
        })
        .await;
        let all = engine.runtime().observe_all().await.unwrap();
        assert_eq!(all[0].status.lost, Some(Role::Egress));
        assert_eq!(all[0].status.address.ip, None);
    }

    /// A main container and its sidecar, which may have been started again since. A list has the
    /// sidecar's attachment to the network, and no times.
    fn group(request: &str, is_restarted: bool) -> (u16, String) {
        let started = match is_restarted {
            true => "2031-05-01T11:00:00Z",
            false => "2031-05-01T10:00:01Z",
        };
        let mut side = sidecar("running");
        let attachment = match is_restarted {
            true => "second",
            false => "first",
        };
        side["NetworkSettings"]["Networks"]["opensandbox"]["EndpointID"] = attachment.into();
        let answer = match request {
            _ if request.starts_with("GET /containers/json") => json!([side, joined()]),
            "GET /containers/main/json" => json!({
                "Id": "main", "Created": "2031-05-01T10:00:00Z",
                "Config": {"Labels": joined()["Labels"]},
                "HostConfig": joined()["HostConfig"],
                "State": {"Running": true, "StartedAt": "2031-05-01T10:00:02Z"},
            }),
            "GET /containers/side/json" => json!({
                "Id": "side", "Created": "2031-05-01T10:00:00Z",
                "Config": {"Labels": side["Labels"]},
                "HostConfig": side["HostConfig"],
                "NetworkSettings": side["NetworkSettings"],
                "State": {"Running": true, "StartedAt": started},
            }),
            _ => json!({}),
        };
        (200, answer.to_string())
    }

    #[tokio::test]
    async fn a_sidecar_that_was_started_again_has_left_its_sandbox() {
        let is_restarted = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_restarted);
        let engine = FakeEngine::start(move |request| group(request, seen.load(Relaxed))).await;
        let runtime = engine.runtime();
        let lost = async || runtime.observe_all().await.unwrap()[0].status.lost;
        let inspections = || engine.requests("GET /containers/main/json").len();
        assert_eq!(lost().await, None);
        assert_eq!(inspections(), 1, "a list has no times");
        assert_eq!(lost().await, None);
        assert_eq!(inspections(), 1, "its attachment is known");
        is_restarted.store(true, Relaxed);
        assert_eq!(lost().await, Some(Role::Egress));
        assert_eq!(lost().await, Some(Role::Egress), "it does not come back");
        let observed = runtime.observe("main").await.unwrap();
        assert_eq!(observed.status.lost, Some(Role::Egress));
        assert_eq!(observed.status.phase, Phase::Running);
    }
}

//! Starts warm sidecars, and removes them when the server stops.

use std::{sync::Arc, time::Duration};

use bollard::{
    errors::Error,
    models::ContainerCreateBody,
    query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions},
};
use osb_protocol::SandboxId;
use osb_service::{ErrorChain, Supervisor};
use secrecy::SecretString;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    super::{
        DockerRuntime, EgressConfig, KIND, container, egress,
        engine::bounded,
        error, group, names, network,
        ports::Reserved,
        remove::{Force, remove_container},
    },
    Shape, Warm, WarmSidecar,
    claim::Claimable,
};
use crate::{Ports, Role, RuntimeError, new_id, new_token};

/// Pause before a sidecar is replaced. The engine serves creates first: the one that took it, which then
/// waits for its execd, and others. But not for ever.
const GIVE_WAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(3));
/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Longest removal of those that wait, when the server stops.
const REMOVAL: Duration = Duration::from_secs(10);

/// Operation, in errors.
const START: &str = "start a warm sidecar";

/// Keeps warm sidecars, and removes those that wait when the tasks stop.
pub(in super::super) fn start(runtime: Arc<DockerRuntime>, tasks: &Supervisor) {
    if runtime.warm.wanted == 0 {
        return;
    }
    let stop = tasks.stopping().clone();
    tasks.spawn("warm sidecars", async move {
        runtime.keep_warm(&stop).await;
        // What stays is removed after the next start.
        let removal = async {
            runtime.remove_waiting().await;
            // Those of an earlier process that crashed, if no sweep has come to them.
            if let Err(error) = runtime.sweep_sidecars().await {
                debug!(error = %ErrorChain(&error), "left-over sidecars stay");
            }
        };
        if timeout(REMOVAL, removal).await.is_err() {
            warn!("warm sidecars stay: the engine does not remove them in time");
        }
    });
}

fn unready(reason: String) -> RuntimeError {
    RuntimeError::Other {
        runtime: KIND,
        op: START,
        reason,
    }
}

/// Why there is no further sidecar.
enum Failure {
    /// The server stops.
    Stopped,
    /// The image is not on the host. The first create that needs it pulls it.
    NoImage,
    /// The engine's kernel has no IPv6.
    NoIpv6,
    /// The image's program knows no claims.
    NoClaims,
    Runtime(RuntimeError),
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

/// A sandbox to be whose sidecar is being started or removed, until dropped.
struct UnderWay<'a> {
    warm: &'a Warm,
    id: SandboxId,
}

impl<'a> UnderWay<'a> {
    fn new(warm: &'a Warm, id: &SandboxId) -> Self {
        warm.locked().under_way.insert(id.clone());
        let id = id.clone();
        Self { warm, id }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.warm.locked().under_way.remove(&self.id);
    }
}

impl DockerRuntime {
    async fn keep_warm(&self, stop: &CancellationToken) {
        let mut reported: Option<String> = None;
        while !stop.is_cancelled() {
            if self.warm.is_short() {
                match self.add_warm(stop).await {
                    Ok(()) => {
                        reported = None;
                        continue;
                    }
                    Err(Failure::Stopped) => return,
                    Err(Failure::NoIpv6) => continue,
                    Err(Failure::NoClaims) => {
                        warn!(
                            "the image of the egress sidecar knows no claims: there are no warm sidecars"
                        );
                        return;
                    }
                    Err(Failure::NoImage) => {
                        debug!("the image of the egress sidecar is not on the host yet");
                    }
                    Err(Failure::Runtime(error)) => {
                        let text = ErrorChain(&error).to_string();
                        // The watch reports an engine that is away.
                        if !error::is_disconnected(&error) && reported.as_ref() != Some(&text) {
                            warn!(error = text, "cannot start a warm sidecar");
                            reported = Some(text);
                        }
                        self.warm.note_trouble();
                        self.warm.wake();
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.warm.changed.notified() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.give_way() => {}
            }
        }
    }

    /// Waits before the next start: longer after trouble, and while creates are under way.
    async fn give_way(&self) {
        if let Some(trouble) = self.warm.trouble() {
            let longer = RETRY.0 * 2_u32.saturating_pow(trouble - 1);
            return sleep(longer.min(RETRY.1)).await;
        }
        let deadline = Instant::now() + GIVE_WAY.1;
        loop {
            sleep(GIVE_WAY.0).await;
            if self.creating.is_empty() || Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Starts another sidecar, and lets it wait once it enforces.
    async fn add_warm(&self, stop: &CancellationToken) -> Result<(), Failure> {
        let Some(egress) = &self.config.egress else {
            return Err(Failure::Stopped);
        };
        self.network.ensure(self.docker()?).await?;
        let id = new_id();
        // Before its container exists, so that the sweep never sees one that belongs to nothing.
        let _under_way = UnderWay::new(&self.warm, &id);
        let name = names::random();
        match self.start_warm(&id, &name, egress, stop).await {
            Ok(sidecar) => {
                self.warm.locked().waiting.push_back(sidecar);
                Ok(())
            }
            Err(failure) => {
                // By its name: the engine's answer to the create may be lost. The sweep tries again.
                let docker = self.docker()?;
                if let Err(error) = remove_container(docker, &name, Force::Yes).await {
                    debug!(name, reason = error::reason(&error), "a warm sidecar stays");
                }
                Err(failure)
            }
        }
    }

    async fn start_warm(
        &self,
        id: &SandboxId,
        name: &str,
        egress: &EgressConfig,
        stop: &CancellationToken,
    ) -> Result<WarmSidecar, Failure> {
        let token = new_token();
        // Reserved until the container runs.
        let (execd, http) = (self.ports.draw()?, self.ports.draw()?);
        let api = (!self.config.has_route).then(|| self.ports.draw());
        let api = api.transpose()?;
        let api_port = api.as_ref().map(Reserved::port);
        let ports = Ports {
            execd: Some(execd.port()),
            http: Some(http.port()),
        };
        let body = self.warm_body(id, &token, egress, ports, api_port).await?;
        let shape = Shape::of(&body);
        let container = self.create_warm(name, body).await?;
        self.start_created(&container).await?;
        let api = tokio::select! {
            () = stop.cancelled() => return Err(Failure::Stopped),
            api = self.await_rules(id, &container, egress, api_port) => api,
        };
        let api = api.map_err(|error| match error {
            // There is no sandbox of this id yet.
            RuntimeError::Start { reason, .. } => unready(reason.into()),
            error => error,
        })?;
        let sidecar = WarmSidecar {
            id: id.clone(),
            token,
            container,
            api,
            ports,
            shape,
            has_ended: false,
        };
        match sidecar.ask().await {
            Ok(Claimable::Yes) => Ok(sidecar),
            Ok(Claimable::Unknown) => Err(Failure::NoClaims),
            Err(reason) => Err(unready(reason).into()),
        }
    }

    /// The create request, which has the network of a sandbox to be.
    async fn warm_body(
        &self,
        id: &SandboxId,
        token: &SecretString,
        egress: &EgressConfig,
        ports: Ports,
        api: Option<u16>,
    ) -> Result<ContainerCreateBody, RuntimeError> {
        let log = self.log_config().await?;
        let member = self.unclaimed_member(id, token, egress, log.as_ref(), api);
        let mut main = container::attachment(&self.config, &self.network, ports);
        let mut body = member.body;
        group::move_network(&mut main, &mut body);
        Ok(body)
    }

    async fn create_warm(&self, name: &str, body: ContainerCreateBody) -> Result<String, Failure> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let docker = self.docker()?;
        let made = bounded(docker, docker.create_container(Some(options), body)).await;
        match made {
            Ok(made) => Ok(made.id),
            Err(error) if network::is_lacking(&error) => Err(self.without_network(&error).await),
            Err(error) if error::is_missing(&error) => Err(Failure::NoImage),
            Err(error) => Err(error::other("create a warm sidecar", &error).into()),
        }
    }

    async fn start_created(&self, container: &str) -> Result<(), Failure> {
        let docker = self.docker()?;
        let started = docker.start_container(container, None::<StartContainerOptions>);
        let Err(error) = bounded(docker, started).await else {
            return Ok(());
        };
        if egress::lacks_ipv6(&error) && self.lose_ipv6() {
            return Err(Failure::NoIpv6);
        }
        if network::is_lacking(&error) {
            return Err(self.without_network(&error).await);
        }
        Err(error::other(START, &error).into())
    }

    /// Creates the network of the sandboxes again, for the next attempt.
    async fn without_network(&self, error: &Error) -> Failure {
        let Ok(docker) = self.docker() else {
            return error::other(START, error).into();
        };
        match self.network.recreate(docker).await {
            Ok(()) => error::other(START, error).into(),
            Err(error) => error.into(),
        }
    }

    /// Removes those that wait.
    async fn remove_waiting(&self) {
        let Ok(docker) = self.docker() else {
            return;
        };
        let waiting = std::mem::take(&mut self.warm.locked().waiting);
        let count = waiting.len();
        for sidecar in waiting {
            let _under_way = UnderWay::new(&self.warm, &sidecar.id);
            if let Err(error) = remove_container(docker, &sidecar.container, Force::Yes).await {
                let reason = error::reason(&error);
                warn!(sandbox = %sidecar.id, role = %Role::Egress, reason, "a warm sidecar stays");
            }
        }
        if count > 0 {
            info!(count, "removed the warm sidecars");
        }
    }
}

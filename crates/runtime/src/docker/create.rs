//! Creation of sandboxes.
//!
//! Nothing is checked in advance: a missing image, a missing network and a taken port show as errors
//! of the create and start calls, which are then handled and retried.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bollard::{
    Docker,
    models::ContainerCreateBody,
    query_parameters::{
        CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    },
};
use osb_protocol::SandboxId;
use tracing::{debug, warn};

use super::{
    DockerRuntime, KIND, container,
    engine::bounded,
    error, group,
    group::Member,
    image, names, network, ports,
    ports::Reserved,
    pull::{self, PullRequest},
};
use crate::{CreateSpec, EXECD_PORT, Observed, Ports, Progress, Role, RuntimeError, Stage};

/// Most attempts to start a sandbox when another process takes its port or removes execd's volume.
const ATTEMPTS: usize = 3;
/// Words of an engine without a driver for the requested devices.
const NO_DEVICE_DRIVER: &str = "could not select device driver";

impl DockerRuntime {
    pub(super) async fn create_sandbox(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        let _under_way = self.creating.enter(&spec.origin.id);
        self.network.ensure(self.docker()?).await?;
        if spec.isolation {
            warn!(
                sandbox = %spec.origin.id,
                "created for isolated sessions: the container gets SYS_ADMIN, but no AppArmor, seccomp or \
                 masked paths"
            );
        }
        let image = image::reference(&spec.origin.source)?;
        let staged = Staged {
            image,
            progress,
            image_reported: Arc::default(),
        };
        let mut attempt = 1;
        loop {
            let execd = self.execd.generation().await;
            let failure = match self.create_once(&spec, &staged).await {
                Ok(observed) => return Ok(observed),
                Err(failure) => failure,
            };
            // A failed attempt must leave nothing behind.
            if let Err(left) = self.remove_sandbox(&spec.origin.id).await {
                warn!(sandbox = %spec.origin.id, error = %left, "a container of a failed create stays until the sweep");
            }
            match failure {
                Failure::PortTaken(reason) if attempt < ATTEMPTS => {
                    debug!(sandbox = %spec.origin.id, reason, "the port is taken, trying others");
                }
                Failure::NoExecd(reason) if attempt < ATTEMPTS => {
                    debug!(sandbox = %spec.origin.id, reason, "execd is missing, refilling its volume");
                    let docker = self.docker()?;
                    self.execd.refill(docker, staged.image, execd).await?;
                }
                failure => return Err(failure.into_error(&spec)),
            }
            attempt += 1;
        }
    }

    async fn create_once(
        &self,
        spec: &CreateSpec,
        staged: &Staged<'_>,
    ) -> Result<Observed, Failure> {
        if !self.execd.is_ready() {
            self.provide_execd(spec, staged).await?;
        }
        let (ports, reserved) = self.reserve_ports(spec).await?;
        let bind = self.execd.bind();
        let log = self.log_config().await?;
        let main = container::body(
            spec,
            staged.image,
            &self.config,
            &self.network,
            bind,
            log.clone(),
            ports,
        );
        let members = group::plan(spec.id(), main, &self.config, log.as_ref());
        let mut made: Vec<String> = Vec::with_capacity(members.len());
        for Member { role, mut body } in members {
            if let Some(owner) = made.first() {
                group::join_network(&mut body, owner);
            }
            let container = self.create_container(spec, role, body, staged).await?;
            self.originals.record_created(spec.id(), role, &container);
            made.push(container);
        }
        staged.progress.reached(Stage::Created);
        for container in &made {
            self.start_container(container).await?;
        }
        // The plan ends with the main container.
        let main = made.last().map_or("", String::as_str);
        let observed = self.observe(main).await?;
        if self.network.is_host() {
            self.host_port.hold(main, reserved);
        }
        staged.progress.reached(Stage::Network);
        Ok(observed)
    }

    /// Fills execd's volume before the first sandbox of this process. That takes any image on the
    /// host, such as the sandbox's.
    async fn provide_execd(
        &self,
        spec: &CreateSpec,
        staged: &Staged<'_>,
    ) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        match bounded(docker, docker.inspect_image(staged.image)).await {
            Ok(_) => {}
            Err(error) if error::is_missing(&error) => self.pull(spec, staged).await?,
            Err(error) => return Err(error::other("inspect the image", &error)),
        }
        self.execd.ensure(docker, staged.image).await
    }

    async fn pull(&self, spec: &CreateSpec, staged: &Staged<'_>) -> Result<(), RuntimeError> {
        let platform = spec.origin.platform.as_ref();
        let request = PullRequest {
            image: staged.image,
            platform: platform.map(pull::platform_name),
            auth: spec.auth.as_ref(),
        };
        self.pull_image(request, staged).await
    }

    /// Pulls the image of a sidecar, without the request's credentials and platform.
    async fn pull_sidecar(
        &self,
        body: &ContainerCreateBody,
        staged: &Staged<'_>,
    ) -> Result<(), RuntimeError> {
        let request = PullRequest {
            image: body.image.as_deref().unwrap_or_default(),
            platform: None,
            auth: None,
        };
        self.pull_image(request, staged).await
    }

    async fn pull_image(
        &self,
        request: PullRequest<'_>,
        staged: &Staged<'_>,
    ) -> Result<(), RuntimeError> {
        let (docker, patience) = (self.docker()?, self.config.api_timeout);
        self.pulls
            .pull(docker, request, staged.progress, patience)
            .await
    }

    /// Reserves the ports that a sandbox takes on the host, until its container runs.
    async fn reserve_ports(
        &self,
        spec: &CreateSpec,
    ) -> Result<(Ports, Vec<Reserved>), RuntimeError> {
        if self.network.is_host() {
            let claimed = self.claim_host_port(spec.id()).await?;
            return Ok((Ports::default(), vec![claimed]));
        }
        // With secure access, only the server's proxy may lead to a port.
        if spec.origin.secure_access.is_some() {
            return Ok((Ports::default(), Vec::new()));
        }
        let (execd, http) = (self.ports.draw()?, self.ports.draw()?);
        let ports = Ports {
            execd: Some(execd.port()),
            http: Some(http.port()),
        };
        Ok((ports, vec![execd, http]))
    }

    /// Claims execd's port of the host. Without it execd could not listen, and another program would
    /// answer in its place.
    async fn claim_host_port(&self, id: &SandboxId) -> Result<Reserved, RuntimeError> {
        if let Some(holder) = self.host_port.holder() {
            // Its execd may not listen yet, so the port may look free.
            let is_running = match self.inspect(&holder).await {
                Ok(inspected) => inspected.state.and_then(|state| state.running) == Some(true),
                Err(RuntimeError::NotFound(_)) => false,
                Err(error) => return Err(error),
            };
            if !is_running {
                self.host_port.release(&holder);
            }
        }
        let claimed = self.ports.claim(EXECD_PORT);
        claimed.ok_or_else(|| RuntimeError::Start {
            id: id.clone(),
            reason: format!(
                "port {EXECD_PORT} of the host is taken: with docker.network_mode = \"host\" only \
                 one sandbox can run"
            ),
        })
    }

    /// Creates a container and returns its id. Pulls the image if the engine reports that it is
    /// missing.
    async fn create_container(
        &self,
        spec: &CreateSpec,
        role: Role,
        body: ContainerCreateBody,
        staged: &Staged<'_>,
    ) -> Result<String, Failure> {
        let name = names::random();
        let mut options = CreateContainerOptionsBuilder::default().name(&name);
        let platform = spec.origin.platform.as_ref().filter(|_| role == Role::Main);
        let wanted = platform.map(|platform| format!("{}/{}", platform.os, platform.arch));
        if let Some(wanted) = &wanted {
            options = options.platform(wanted);
        }
        let options = options.build();
        let docker = self.docker()?;
        let create = || {
            let made = docker.create_container(Some(options.clone()), body.clone());
            bounded(docker, made)
        };
        match create().await {
            Ok(made) if platform.is_none() && is_foreign(&made.warnings) => {
                remove_made(docker, &made.id).await?;
                self.pull_for_host(spec, role, &body, staged).await?;
            }
            Ok(made) => {
                staged.report_image(role);
                return Ok(made.id);
            }
            Err(error) if lacks_network(&error) => {
                self.network.recreate(self.docker()?).await?;
            }
            Err(error) if error::is_missing(&error) => match role {
                Role::Main => self.pull(spec, staged).await?,
                Role::Egress => self.pull_sidecar(&body, staged).await?,
            },
            Err(error) => return Err(Failure::from_create(error)),
        }
        staged.report_image(role);
        let made = create().await.map_err(Failure::from_create)?;
        Ok(made.id)
    }

    /// Replaces an image for another platform by the host's (contract: lifecycle §17.3). Does nothing
    /// if the engine does not report its platform; the image may still run, by emulation.
    async fn pull_for_host(
        &self,
        spec: &CreateSpec,
        role: Role,
        body: &ContainerCreateBody,
        staged: &Staged<'_>,
    ) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        let version = bounded(docker, docker.version()).await;
        let version = version.map_err(|error| error::other("read the platform", &error))?;
        let (Some(os), Some(arch)) = (version.os, version.arch) else {
            return Ok(());
        };
        let request = PullRequest {
            image: body.image.as_deref().unwrap_or_default(),
            platform: Some(format!("{os}/{arch}")),
            auth: spec.auth.as_ref().filter(|_| role == Role::Main),
        };
        self.pull_image(request, staged).await
    }

    async fn start_container(&self, container: &str) -> Result<(), Failure> {
        let docker = self.docker()?;
        let start = || {
            let started = docker.start_container(container, None::<StartContainerOptions>);
            bounded(docker, started)
        };
        let Err(error) = start().await else {
            return Ok(());
        };
        if lacks_network(&error) {
            self.network.recreate(self.docker()?).await?;
            return start().await.map_err(Failure::from_start);
        }
        Err(Failure::from_start(error))
    }
}

/// Whether the engine warns that the image is for another platform than its own.
fn is_foreign(warnings: &[String]) -> bool {
    let mut warnings = warnings.iter();
    warnings.any(|text| text.contains("platform") && text.contains("does not match"))
}

/// Removes a container that was created just now and is not recorded yet.
async fn remove_made(docker: &Docker, container: &str) -> Result<(), RuntimeError> {
    let options = RemoveContainerOptionsBuilder::default().v(true).build();
    let removed = docker.remove_container(container, Some(options));
    bounded(docker, removed)
        .await
        .map_err(|error| error::other("remove a container of another platform", &error))
}

/// Whether the engine cannot resolve the network: there is none, or several.
fn lacks_network(error: &bollard::errors::Error) -> bool {
    let reason = error::reason(error);
    let is_missing =
        error::is_missing(error) && reason.contains("network") && reason.contains("not found");
    is_missing || network::is_ambiguous(error)
}

/// Sandboxes whose creates are in progress.
#[derive(Debug, Default)]
pub(super) struct Creating(Mutex<HashSet<SandboxId>>);

/// A create in progress, until dropped.
struct CreateGuard<'a> {
    all: &'a Creating,
    id: SandboxId,
}

impl Creating {
    fn enter(&self, id: &SandboxId) -> CreateGuard<'_> {
        self.locked().insert(id.clone());
        CreateGuard {
            all: self,
            id: id.clone(),
        }
    }

    pub(super) fn contains(&self, id: &SandboxId) -> bool {
        self.locked().contains(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locked().is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, HashSet<SandboxId>> {
        // The set is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CreateGuard<'_> {
    fn drop(&mut self) {
        self.all.locked().remove(&self.id);
    }
}

/// execd's port of the host, and the main container that has it on the host's network.
#[derive(Debug, Default)]
pub(super) struct HostPort(Mutex<Option<(String, Vec<Reserved>)>>);

impl HostPort {
    fn holder(&self) -> Option<String> {
        let holder = self.locked();
        holder.as_ref().map(|(container, _)| container.clone())
    }

    /// Keeps the port reserved for a container.
    fn hold(&self, container: &str, reserved: Vec<Reserved>) {
        *self.locked() = Some((container.to_owned(), reserved));
    }

    /// Frees the port, unless another container has it by now.
    fn release(&self, container: &str) {
        let mut holder = self.locked();
        if holder.as_ref().is_some_and(|(has, _)| has == container) {
            *holder = None;
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<(String, Vec<Reserved>)>> {
        // The value is replaced as a whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports each stage once, even if a create is retried.
struct Staged<'a> {
    /// Image to start.
    image: &'a str,
    progress: &'a dyn Progress,
    image_reported: Arc<AtomicBool>,
}

impl Staged<'_> {
    fn report_image(&self, role: Role) {
        if role == Role::Main && !self.image_reported.swap(true, Ordering::Relaxed) {
            self.progress.reached(Stage::Image);
        }
    }
}

/// Why an attempt failed.
enum Failure {
    /// Another process has taken the port.
    PortTaken(String),
    /// The execd volume is empty or gone.
    NoExecd(String),
    /// The engine has no driver for the devices that the request asks for.
    NoGpu(String),
    /// The engine cannot start the container.
    Start(String),
    /// The engine refuses the request.
    Refused(String),
    /// An error of another operation.
    Runtime(RuntimeError),
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl Failure {
    fn from_create(error: bollard::errors::Error) -> Self {
        let reason = error::reason(&error);
        match (error::unavailable(&error), error::status(&error)) {
            (Some(unavailable), _) => Self::Runtime(unavailable),
            (None, Some(400)) => Self::Refused(reason),
            _ => Self::Start(reason),
        }
    }

    fn from_start(error: bollard::errors::Error) -> Self {
        let reason = error::reason(&error);
        match error::unavailable(&error) {
            Some(unavailable) => Self::Runtime(unavailable),
            None if ports::is_conflict(&reason) => Self::PortTaken(reason),
            None if reason.contains(super::execd_volume::EXECD) => Self::NoExecd(reason),
            None if reason.contains(NO_DEVICE_DRIVER) => Self::NoGpu(reason),
            None => Self::Start(reason),
        }
    }

    fn into_error(self, spec: &CreateSpec) -> RuntimeError {
        match self {
            Self::PortTaken(reason) | Self::NoExecd(reason) | Self::Start(reason) => {
                RuntimeError::Start {
                    id: spec.origin.id.clone(),
                    reason,
                }
            }
            Self::NoGpu(reason) => RuntimeError::Start {
                id: spec.origin.id.clone(),
                reason: format!("resourceLimits.gpu: the engine has no GPU runtime: {reason}"),
            },
            Self::Refused(reason) => RuntimeError::Refused {
                runtime: KIND,
                reason,
            },
            Self::Runtime(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;

    use super::*;
    use crate::{
        Phase, Runtime,
        docker::{execd_volume::EXECD, fake_engine::FakeEngine, labels},
    };

    #[derive(Debug)]
    struct Silent;

    impl Progress for Silent {
        fn reached(&self, _stage: Stage) {}
        fn note(&self, _text: &str) {}
    }

    #[tokio::test]
    async fn on_the_hosts_network_a_second_sandbox_is_refused_while_the_first_runs() {
        let is_running = Arc::new(AtomicBool::new(true));
        let shared = Arc::clone(&is_running);
        let engine = FakeEngine::start(move |request| {
            if request.starts_with("GET /containers/c/json") {
                let running = shared.load(Ordering::Relaxed);
                let container = json!({
                    "Created": "2031-05-01T10:00:00Z",
                    "Config": {"Labels": {labels::ID: "a", labels::SERVER: "us"}},
                    "State": {"Running": running, "StartedAt": "2031-05-01T10:00:01Z"},
                });
                return (200, container.to_string());
            }
            FakeEngine::with_volumes(request)
        })
        .await;
        let runtime = engine.runtime();
        runtime
            .create(labels::tests::spec(), &Silent)
            .await
            .unwrap();
        // Its execd does not listen yet: the port of the host is free.
        let second = runtime.create(labels::tests::spec(), &Silent).await;
        let error = second.unwrap_err().to_string();
        assert!(error.contains("port 44772 of the host is taken"), "{error}");
        is_running.store(false, Ordering::Relaxed);
        runtime
            .create(labels::tests::spec(), &Silent)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn execd_may_be_missing_more_than_once() {
        let starts = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |request| {
            if request.ends_with("/start") {
                let reason = format!("exec: \"{EXECD}\": no such file or directory");
                return match starts.fetch_add(1, Ordering::Relaxed) {
                    0 | 1 => (400, json!({"message": reason}).to_string()),
                    _ => (204, String::new()),
                };
            }
            if request.starts_with("GET /containers/c/json") {
                let container = json!({
                    "Created": "2031-05-01T10:00:00Z",
                    "Config": {"Labels": {labels::ID: "a", labels::SERVER: "us"}},
                    "State": {"Running": true, "StartedAt": "2031-05-01T10:00:01Z"},
                });
                return (200, container.to_string());
            }
            FakeEngine::with_volumes(request)
        })
        .await;
        let spec = labels::tests::spec();
        let made = engine.runtime().create(spec, &Silent).await.unwrap();
        assert_eq!(made.status.phase, Phase::Running);
        assert_eq!(engine.requests("DELETE /volumes").len(), 2);
    }
}

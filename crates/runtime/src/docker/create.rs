//! Creation of sandboxes.
//!
//! Nothing is checked in advance: a missing image, a missing network and a taken port show as errors
//! of the create and start calls, which are then handled and retried.

pub(super) mod coverage;
mod failure;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bollard::{
    Docker,
    models::ContainerCreateBody,
    query_parameters::{
        CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    },
};
use tracing::{debug, warn};

use self::failure::{Failure, NotStarted};
use super::{
    DockerRuntime, container,
    egress::EgressPlan,
    engine::bounded,
    error, execd_volume, group,
    group::Member,
    image, labels, names, network,
    ports::Reserved,
    pull::PullRequest,
    volumes::Provided,
    warm::{Outcome, WarmSidecar},
};
use crate::{CreateSpec, Observed, Ports, Progress, Role, RuntimeError, Stage};

/// Most attempts to start a sandbox when another process takes its port or removes execd's volume.
const ATTEMPTS: usize = 3;

impl DockerRuntime {
    pub(super) async fn create_sandbox(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        let _under_way = self.creating.enter(&spec.origin.id);
        if spec.network_policy.is_some() && spec.prepared.is_none() {
            self.warm.note(Outcome::Miss);
        }
        let made = Box::pin(self.create_with_retries(&spec, progress)).await;
        if spec.network_policy.is_some() {
            // The engine has the image now, and time for another warm sidecar.
            self.warm.wake();
        }
        made
    }

    async fn create_with_retries(
        &self,
        spec: &CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        self.network.ensure(self.docker()?).await?;
        if spec.isolation {
            warn!(
                sandbox = %spec.origin.id,
                "created for isolated sessions: the container gets SYS_ADMIN, but no AppArmor, seccomp or \
                 masked paths"
            );
        }
        let image = image::reference(&spec.origin.source, &self.config.instance)?;
        let volumes = self.provide_volumes(spec).await?;
        let staged = Staged {
            image: &image,
            volumes: &volumes,
            progress,
            image_reported: Arc::default(),
        };
        let (mut attempt, mut has_ipv6) = (1, true);
        loop {
            let execd = self.execd.generation().await;
            let failure = match Box::pin(self.create_once(spec, &staged, has_ipv6)).await {
                Ok(observed) => return Ok(observed),
                Err(failure) => failure,
            };
            // A failed attempt must leave nothing behind.
            if let Err(left) = self.remove_group(&spec.origin.id).await {
                warn!(sandbox = %spec.origin.id, error = %left, "a container of a failed create stays until the sweep");
                // Another attempt would put containers with the same id beside it.
                return Err(failure.into_error(spec));
            }
            match failure {
                Failure::PortTaken(message) if attempt < ATTEMPTS => {
                    let reason = message.text();
                    debug!(sandbox = %spec.origin.id, reason, "the port is taken, trying others");
                }
                Failure::MainStart(message) if attempt < ATTEMPTS => {
                    let docker = self.docker()?;
                    let is_blamed = message.mentions(execd_volume::EXECD);
                    let is_lost = self.execd.is_lost(docker, staged.image, execd, is_blamed);
                    if !is_lost.await {
                        return Err(Failure::MainStart(message).into_error(spec));
                    }
                    let reason = message.text();
                    debug!(sandbox = %spec.origin.id, reason, "execd is missing, refilling its volume");
                    self.execd.refill(docker, staged.image, execd).await?;
                }
                Failure::NoIpv6(message) if attempt < ATTEMPTS && has_ipv6 => {
                    let reason = message.text();
                    debug!(sandbox = %spec.origin.id, reason, "the engine's kernel has no IPv6");
                    has_ipv6 = false;
                }
                Failure::WarmSidecar(reason) if attempt < ATTEMPTS => {
                    warn!(sandbox = %spec.origin.id, reason, "the warm sidecar is of no use, starting another");
                    self.warm.note(Outcome::Failure);
                }
                failure => return Err(failure.into_error(spec)),
            }
            attempt += 1;
        }
    }

    async fn create_once(
        &self,
        spec: &CreateSpec,
        staged: &Staged<'_>,
        has_ipv6: bool,
    ) -> Result<Observed, Failure> {
        if !self.execd.is_ready() {
            self.provide_execd(spec, staged).await?;
        }
        let warm = self.warm.hand_over(spec.id());
        let (ports, reserved) = match &warm {
            Some(warm) => (warm.ports(), Vec::new()),
            None => self.reserve_ports(spec).await?,
        };
        let mut sidecar = self.sidecar_of(spec)?;
        if let Some(sidecar) = &mut sidecar
            && !has_ipv6
        {
            sidecar.without_ipv6_settings();
        }
        let bind = self.execd.bind();
        let log = self.log_config().await?;
        let mut main = container::body(
            spec,
            staged.image,
            &self.config,
            &self.network,
            bind,
            log.clone(),
            ports,
        );
        staged.volumes.attach(spec.id(), &mut main);
        let egress = sidecar.as_ref();
        let egress = egress.map(|sidecar| self.sidecar_member(spec, sidecar, log.as_ref()));
        if warm.is_some()
            && let Some(policy) = &spec.network_policy
        {
            labels::put_network_policy(&mut main, &policy.rules);
        }
        let mut members = group::plan(spec.id(), main, egress, &self.config, log.as_ref());
        let guard = match (warm, sidecar.as_ref()) {
            (Some(warm), _) => Guard::Warm(Box::new(checked(warm, &mut members)?)),
            (None, Some(sidecar)) => Guard::Cold(sidecar),
            (None, None) => Guard::None,
        };
        let is_warm = matches!(guard, Guard::Warm(_));
        let main = self.make_group(spec, members, guard, staged).await?;
        if is_warm {
            self.warm.note(Outcome::Hit);
        }
        // The engine has its port now.
        drop(sidecar);
        let observed = self.observe(&main).await?;
        if self.network.is_host() {
            self.host_port.hold(&main, reserved);
        }
        staged.progress.reached(Stage::Network);
        Ok(observed)
    }

    /// Creates and starts all containers, and returns the main one, the last of the plan. The engine
    /// creates the others while the sidecar of a policy applies its rules; they start after that.
    async fn make_group(
        &self,
        spec: &CreateSpec,
        members: Vec<Member>,
        guard: Guard<'_>,
        staged: &Staged<'_>,
    ) -> Result<String, Failure> {
        let mut members = members.into_iter();
        let owner = match &guard {
            Guard::None => None,
            Guard::Warm(warm) => {
                let container = warm.container().to_owned();
                self.originals.claim(spec.id(), Role::Egress, &container);
                Some(container)
            }
            Guard::Cold(_) => match members.next() {
                Some(member) => Some(self.make(spec, member, None, staged).await?),
                None => None,
            },
        };
        let enforcing = async {
            match (&guard, &owner) {
                (Guard::Warm(warm), _) => {
                    let policy = spec.network_policy.as_ref();
                    let rules = policy.map_or("", |policy| policy.rules.as_str());
                    warm.claim(rules).await.map_err(Failure::WarmSidecar)
                }
                (Guard::Cold(sidecar), Some(container)) => {
                    let started = self.start_container(container).await;
                    started.map_err(|refused| refused.of_sidecar(spec))?;
                    let (egress, port) = (sidecar.egress(), sidecar.port());
                    self.await_rules(spec.id(), container, egress, port).await?;
                    Ok(())
                }
                (Guard::Cold(_) | Guard::None, _) => Ok(()),
            }
        };
        let creating = async {
            let mut made: Vec<String> = Vec::with_capacity(members.len());
            for member in members {
                let owner = owner.as_ref().or_else(|| made.first()).cloned();
                made.push(self.make(spec, member, owner.as_deref(), staged).await?);
            }
            staged.progress.reached(Stage::Created);
            Ok::<_, Failure>(made)
        };
        // Both end before a failure of one is handled: a container that the engine is still creating
        // would outlive the removal of what a failed attempt has made.
        let (enforced, made) = tokio::join!(enforcing, creating);
        enforced?;
        let mut made = made?;
        let Some(main) = made.pop() else {
            return Ok(String::new());
        };
        for container in &made {
            let started = self.start_container(container).await;
            started.map_err(|refused| refused.of_member(spec))?;
        }
        self.start_main(spec, &main, staged).await?;
        Ok(main)
    }

    /// Starts the main container, if its volumes are what was found and cover nothing of the platform.
    async fn start_main(
        &self,
        spec: &CreateSpec,
        container: &str,
        staged: &Staged<'_>,
    ) -> Result<(), Failure> {
        let checked = self.check_coverage(container, spec).await;
        checked.map_err(|refused| refused.of_member(spec))?;
        self.volumes_at_start(spec.id(), staged.volumes).await?;
        let started = self.start_container(container).await;
        started.map_err(|refused| match refused.of_member(spec) {
            Failure::Start(message) => {
                match staged.volumes.blamed(message.own_words(), message.text()) {
                    Some(error) => Failure::Runtime(error),
                    None => Failure::MainStart(message),
                }
            }
            failure => failure,
        })
    }

    /// Creates a member of a group, in the network of the container that owns it.
    async fn make(
        &self,
        spec: &CreateSpec,
        member: Member,
        owner: Option<&str>,
        staged: &Staged<'_>,
    ) -> Result<String, Failure> {
        let Member { role, mut body } = member;
        if let Some(owner) = owner {
            group::join_network(&mut body, owner);
        }
        let container = self.create_container(spec, role, body, staged).await?;
        self.originals.record_created(spec.id(), role, &container);
        Ok(container)
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
            Err(error) if error::is_missing(&error) => {
                self.pull_missing(spec, staged, &error).await?;
            }
            Err(error) => return Err(error::other("inspect the image", &error)),
        }
        self.execd.ensure(docker, staged.image).await
    }

    /// Pulls the image of a sandbox, which the engine reports as missing.
    async fn pull_missing(
        &self,
        spec: &CreateSpec,
        staged: &Staged<'_>,
        missing: &bollard::errors::Error,
    ) -> Result<(), RuntimeError> {
        if let Some(error) = image::not_startable(&spec.origin.source, missing) {
            return Err(error);
        }
        let platform = spec.origin.platform.as_ref();
        let request = PullRequest {
            image: staged.image,
            platform: platform.map(image::platform_name),
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
            Ok(made)
                if platform.is_none()
                    && !(role == Role::Main && spec.origin.source.is_kept_here())
                    && is_foreign(&made.warnings) =>
            {
                remove_made(docker, &made.id).await?;
                self.pull_for_host(spec, role, &body, staged).await?;
            }
            Ok(made) => {
                staged.report_image(role);
                return Ok(made.id);
            }
            Err(error) if network::is_lacking(&error) => {
                self.network.recreate(self.docker()?).await?;
            }
            Err(error) if error::is_missing(&error) => match role {
                Role::Main => self.pull_missing(spec, staged, &error).await?,
                Role::Egress => self.pull_sidecar(&body, staged).await?,
            },
            Err(error) => return Err(Failure::of_create(&error, spec)),
        }
        staged.report_image(role);
        let made = create().await;
        let made = made.map_err(|error| Failure::of_create(&error, spec))?;
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

    async fn start_container(&self, container: &str) -> Result<(), NotStarted> {
        let docker = self.docker()?;
        let start = || {
            let started = docker.start_container(container, None::<StartContainerOptions>);
            bounded(docker, started)
        };
        let Err(error) = start().await else {
            return Ok(());
        };
        if network::is_lacking(&error) {
            self.network.recreate(self.docker()?).await?;
            return start().await.map_err(NotStarted::Engine);
        }
        Err(NotStarted::Engine(error))
    }
}

/// Whether the engine warns that the image is for another platform than its own.
fn is_foreign(warnings: &[String]) -> bool {
    let mut warnings = warnings.iter();
    warnings.any(|text| {
        text.starts_with("The requested image's platform (") && text.contains("does not match")
    })
}

/// Removes a container that was created just now and is not recorded yet.
async fn remove_made(docker: &Docker, container: &str) -> Result<(), RuntimeError> {
    let options = RemoveContainerOptionsBuilder::default().v(true).build();
    let removed = docker.remove_container(container, Some(options));
    bounded(docker, removed)
        .await
        .map_err(|error| error::other("remove a container of another platform", &error))
}

/// What makes a sandbox keep to its network policy.
enum Guard<'a> {
    /// It has none.
    None,
    /// A sidecar that is to be started, the first of the plan.
    Cold(&'a EgressPlan<'a>),
    /// One that runs, and is not in the plan.
    Warm(Box<WarmSidecar>),
}

/// Takes the sidecar out of a plan for a warm one in its place.
///
/// # Errors
/// The warm one differs from it.
fn checked(warm: WarmSidecar, members: &mut Vec<Member>) -> Result<WarmSidecar, Failure> {
    let fits = members.first().is_some_and(|cold| warm.fits(&cold.body));
    if !fits {
        let reason = "it was made with other settings than a sidecar has now".to_owned();
        return Err(Failure::WarmSidecar(reason));
    }
    members.remove(0);
    Ok(warm)
}

/// Reports each stage once, even if a create is retried.
struct Staged<'a> {
    /// Image to start.
    image: &'a str,
    volumes: &'a Provided,
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
    async fn execd_may_be_missing_more_than_once() {
        let starts = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |request| {
            if request.starts_with("GET /volumes/") {
                // The engine made it for the container.
                let volume = json!({
                    "Name": "v", "Driver": "local", "Mountpoint": "/v", "Scope": "local",
                    "Labels": null, "Options": null,
                });
                return (200, volume.to_string());
            }
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

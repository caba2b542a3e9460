//! Sandboxes as containers of one Docker engine (contract: lifecycle §17).
//!
//! ```text
//! create:  ports ─▶ container (image pulled when absent) ─▶ start ─▶ inspect address
//! watch:   events, window after window ─▶ list everything (Synced), again each minute
//!          ─▶ events … ─▶ lost, or stalled ─▶ again from the start
//! ```
//!
//! execd is not copied into each sandbox: one volume per execd build, named by its hash, is filled
//! once and mounted read-only ([`execd_volume`]). Sandboxes share one bridge network on which
//! containers cannot reach each other ([`network`]). What else is mounted is in [`volumes`].

mod adoption;
mod capacity;
#[cfg(test)]
mod causes;
mod config;
mod container;
mod conversion;
mod copying;
mod create;
#[cfg(test)]
mod create_faults;
mod description;
mod diagnostics;
mod egress;
mod engine;
mod engine_message;
mod error;
mod event_windows;
mod exchange;
mod execd_binary;
mod execd_volume;
#[cfg(test)]
mod fake_engine;
mod group;
mod helper;
mod host_port;
mod image;
mod labels;
mod layers;
mod local_images;
mod log_driver;
mod log_follow;
mod log_tail;
mod names;
mod network;
mod observe;
mod originals;
mod pause;
mod pools;
mod ports;
mod pull;
mod remove;
mod secure;
mod snapshot_config;
mod snapshot_image;
mod snapshots;
mod sweep;
mod templates;
mod translation;
mod turns;
mod under_way;
mod usage;
mod volumes;
mod warm;
mod watch;

pub use config::{DockerConfig, EgressConfig, LogLimit, NetworkMode, SidecarConfig, StorageConfig};
pub use description::describe_engine;
pub use secure::SecureCheck;

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool};

use async_trait::async_trait;
use bollard::Docker;
use osb_protocol::{Feature, FeatureSet, SandboxId, WireTime};
use osb_service::Supervisor;
use tokio::sync::mpsc;

use crate::{
    Address, Capacity, Copying, CreateSpec, Diagnostics, Foreign, Images, Metering, NoRoute,
    Observed, Pausing, Pools, Progress, Reach, Runtime, RuntimeError, RuntimeEvent, SecureRuntime,
    Snapshots, Templates, Viewpoint, WarmSidecars,
};

/// Name of this back end.
const KIND: &str = "docker";

/// One Docker engine.
#[derive(Debug)]
pub struct DockerRuntime {
    engine: engine::Engine,
    config: DockerConfig,
    ports: ports::PortPool,
    network: network::SandboxNetwork,
    execd: execd_volume::ExecdVolume,
    creating: under_way::UnderWay,
    /// Sandboxes whose file systems are being stored: the engine freezes them meanwhile.
    capturing: under_way::UnderWay,
    host_port: host_port::HostPort,
    originals: originals::Originals,
    adoptions: adoption::Adoptions,
    unreadable: observe::Unreadable,
    joined: observe::Joined,
    log_driver: log_driver::LogDriver,
    timing: event_windows::WindowTiming,
    clock: Mutex<event_windows::EngineClock>,
    turns: turns::Turns<SandboxId>,
    volumes: volumes::Volumes,
    image_links: create::coverage::ImageLinks,
    pulls: pull::Pulls,
    meter: Arc<usage::Meter>,
    warm: Arc<warm::Warm>,
    /// Whether the engine's kernel has IPv6, as far as is known.
    has_ipv6: AtomicBool,
}

impl DockerRuntime {
    /// Creates a back end for the engine named by `DOCKER_HOST`, or the local one. Sends nothing yet:
    /// the watch reports an engine that is down, and waits for it.
    ///
    /// # Errors
    /// When execd's binary cannot be read.
    pub fn new(config: DockerConfig) -> Result<Self, RuntimeError> {
        Self::over(config, Docker::connect_with_defaults)
    }

    /// Creates a back end with another way to connect.
    ///
    /// # Errors
    /// When execd's binary cannot be read.
    pub fn over(
        config: DockerConfig,
        connect: impl Fn() -> Result<Docker, bollard::errors::Error> + Send + Sync + 'static,
    ) -> Result<Self, RuntimeError> {
        let timeout = config.api_timeout;
        let connect = move || Ok(connect()?.with_timeout(timeout));
        let execd = execd_volume::ExecdVolume::load(&config.execd, &config.instance)?;
        let meter = usage::Meter::of_host(config.network != NetworkMode::Host);
        Ok(Self {
            engine: engine::Engine::new(Box::new(connect)),
            ports: ports::PortPool::new(config.publish_host, config.port_min, config.port_max),
            network: network::SandboxNetwork::new(config.network.clone()),
            warm: Arc::new(warm::Warm::new(&config)),
            volumes: volumes::Volumes::new(&config),
            image_links: create::coverage::ImageLinks::default(),
            config,
            execd,
            creating: under_way::UnderWay::default(),
            capturing: under_way::UnderWay::default(),
            host_port: host_port::HostPort::default(),
            originals: originals::Originals::default(),
            adoptions: adoption::Adoptions::default(),
            unreadable: observe::Unreadable::default(),
            joined: observe::Joined::default(),
            log_driver: log_driver::LogDriver::default(),
            timing: event_windows::WindowTiming::default(),
            clock: Mutex::default(),
            turns: turns::Turns::default(),
            pulls: pull::Pulls::default(),
            meter: Arc::new(meter),
            has_ipv6: AtomicBool::new(true),
        })
    }

    /// Returns the client of the engine.
    fn docker(&self) -> Result<&Docker, RuntimeError> {
        self.engine.client()
    }

    /// Returns the current time by the engine's clock, as far as it is known.
    fn engine_time(&self) -> WireTime {
        // A clock is replaced as a whole, so a panic elsewhere does not spoil it.
        let clock = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        WireTime::new(clock.now())
    }

    fn set_clock(&self, clock: event_windows::EngineClock) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = clock;
    }
}

#[async_trait]
impl Runtime for DockerRuntime {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn secure_runtime(&self) -> Option<SecureRuntime> {
        self.config.secure_runtime.clone()
    }

    fn settings_digest(&self) -> String {
        self.config.digest()
    }

    /// execd runs lifecycle hooks. A network policy takes a sidecar with a network of its own, whose
    /// packet filter the kernel applies: not the host's network, and not under a secure runtime, which
    /// takes packets past that filter. Secure access takes ports that only this server reaches: none of
    /// the host's, and none that have to be published for this server.
    fn create_features(&self) -> FeatureSet {
        let is_exclusive = !self.network.is_host() && self.config.has_route;
        let secure = is_exclusive.then_some(Feature::SecureAccess);
        let policy = (self.config.has_filter() && self.config.egress.is_some())
            .then_some(Feature::NetworkPolicy);
        secure
            .into_iter()
            .chain(policy)
            .chain([Feature::LifecycleHooks, Feature::Volumes])
            .collect()
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn pools(&self) -> Option<&dyn Pools> {
        Some(self)
    }

    fn templates(&self) -> Option<&dyn Templates> {
        Some(self)
    }

    fn diagnostics(&self) -> Option<&dyn Diagnostics> {
        Some(self)
    }

    fn metering(&self) -> Option<&dyn Metering> {
        Some(self)
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        Some(self)
    }

    fn copying(&self) -> Option<&dyn Copying> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }

    fn reach(&self, address: &Address, port: u16, from: Viewpoint) -> Result<Reach, NoRoute> {
        Reach::of_container(address, port, from, self.config.has_route)
    }

    fn warm_sidecars(&self) -> Option<WarmSidecars> {
        self.warm.read()
    }

    fn prepare(&self, spec: &mut CreateSpec) {
        self.take_warm(spec);
    }

    async fn create(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        let id = spec.id().clone();
        let made = Box::pin(self.create_sandbox(spec, progress)).await;
        if made.is_err() {
            self.release_volumes(&id, self.belongings(&id)).await;
        }
        made
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.remove_sandbox(id).await
    }

    async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, RuntimeError> {
        self.read_log_tail(id, lines).await
    }

    fn watch(self: Arc<Self>, tasks: &Supervisor) -> mpsc::Receiver<RuntimeEvent> {
        warm::start(Arc::clone(&self), tasks);
        watch::start(self, tasks)
    }

    async fn sweep(&self) -> Result<(), RuntimeError> {
        self.sweep_leftovers().await
    }

    async fn foreign(&self) -> Result<Vec<Foreign>, RuntimeError> {
        self.observe_foreign().await
    }
}

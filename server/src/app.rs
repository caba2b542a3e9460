//! The parts, put together.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use osb_forward::Forwarder;
use osb_runtime::{
    Runtime,
    docker::{DockerRuntime, SecureCheck},
    sim::SimRuntime,
};
use osb_service::{ErrorChain, Supervisor};
use osb_store::Store;
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::{
    access_queue,
    config::{
        Config, ENV_EXECD, EgressMode, LogSection, RuntimeType, ServerSection, TenantsSection,
    },
    descriptors::Room,
    hosts,
    http::{
        self, AccessLog, AllowedHosts, AppParts, AppState, Capacities, EdgeRules, Previews,
        Throttle, TrustedProxies,
        console::{self, ConsoleParts, Installation},
        measure::{Meter, Observer},
        serve::{self, Bounds, Serving},
        tls::{Tls, TlsFiles},
    },
    identity::{Accounts, Authenticator, Tenants},
    own_addresses,
    preview_origin::PreviewOrigins,
    sandbox::{ForeignFiles, Limits, RenewalLimits, Service},
    webhooks::{Clock, SystemClock, Webhooks},
};

/// Connections to the listener for metrics.
const METRICS_CONNECTIONS: usize = 64;

/// A server that is ready to serve.
#[derive(Debug)]
pub struct App {
    /// Answers every request.
    pub router: axum::Router,
    /// Its routes, without what is around them: what a list of them is made from.
    pub routes: axum::Router,
    /// Its domain.
    pub service: Service,
    tasks: Supervisor,
    bounds: Bounds,
    tls: Option<Tls>,
    meter: Meter,
    /// The listener for metrics alone, until it is served.
    metrics: Mutex<Option<(TcpListener, axum::Router)>>,
    metrics_address: Option<SocketAddr>,
    /// The listener for previews, until it is served.
    previews: Mutex<Option<(TcpListener, axum::Router)>>,
    preview_address: Option<SocketAddr>,
    store: Arc<dyn Store>,
}

/// What the routes are built over.
struct Parts {
    store: Arc<dyn Store>,
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    installation: Option<Arc<dyn Installation>>,
}

impl App {
    /// Connects the runtime and builds the routes.
    ///
    /// # Errors
    /// When the store cannot be read or execd is not to be found.
    pub async fn build(
        config: &Config,
        store: Arc<dyn Store>,
        tasks: &Supervisor,
        installation: Arc<dyn Installation>,
    ) -> anyhow::Result<Self> {
        let runtime = runtime(config, &*store).await?;
        let parts = Parts {
            store,
            runtime,
            clock: Arc::new(SystemClock),
            installation: Some(installation),
        };
        Self::put_together(config, parts, tasks).await
    }

    /// Builds the routes over a store, a runtime and a clock by which events are sent.
    ///
    /// # Errors
    /// When the store cannot be read, or the address of Redis.
    pub async fn assemble_with_clock(
        config: &Config,
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        tasks: &Supervisor,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let parts = Parts {
            store,
            runtime,
            clock,
            installation: None,
        };
        Self::put_together(config, parts, tasks).await
    }

    async fn put_together(
        config: &Config,
        parts: Parts,
        tasks: &Supervisor,
    ) -> anyhow::Result<Self> {
        let Parts {
            store,
            runtime,
            clock,
            installation,
        } = parts;
        let server = &config.server;
        let tls = tls(server, tasks).await?;
        let limits = Limits {
            max_timeout_seconds: server.max_sandbox_timeout_seconds,
            execd_auth: config.runtime.execd_auth,
            execd_isolation: config.runtime.execd_isolation,
            default_policy: default_policy(config)?,
            storage: config.storage.rules(hosts::storage_view(config)),
            enforces_addresses: config.egress.mode == EgressMode::DnsNft,
            renewal: config.renew_intent.enabled.then(|| RenewalLimits {
                min_interval: Duration::from_secs(config.renew_intent.min_interval_seconds),
                concurrency: config.renew_intent.redis.consumer_concurrency,
            }),
            quotas: config.quotas.quotas(),
            pools: config.pools.limits(),
            templates: config.templates.limits(),
            max_snapshots: config.snapshots.max_snapshots,
            image_gc: config.image_gc.limits(config.egress.image.clone()),
            metrics: config.history.metrics,
            commands: config.history.commands,
            history_seconds: config.history.seconds(),
            audit: config.audit.limits(),
            ..Limits::default()
        };
        let service = Service::start(
            runtime,
            Arc::clone(&store),
            tasks.clone(),
            limits,
            hosts::find(config),
            foreign_files(config),
        )
        .await?;
        if let Some(queue) = config.renew_intent.queue() {
            access_queue::start(queue, &service, tasks)?;
        }
        let webhooks = config.webhooks_delivery.options(&config.webhooks);
        let webhooks =
            Webhooks::start(webhooks, &service, Arc::clone(&store), tasks, clock).await?;
        let has_tenants = config.tenants.is_some();
        let accounts = Accounts::open_with(Arc::clone(&store), has_tenants).await?;
        accounts.start(tasks);
        let tenants = config.tenants.as_ref().map(TenantsSection::provider);
        let tenants = tenants.map(|it| Tenants::start(it, tasks)).transpose()?;
        let key = server.usable_key().cloned();
        let keys = Arc::new(Authenticator::new(key, accounts, tenants));
        let descriptors = Room::of_process();
        let meter = Meter::default();
        let limits = http::Limits {
            concurrency: server.limit_concurrency,
            keyless_per_client: server.limit_keyless_per_client,
            per_sandbox: config.proxy.limit_per_sandbox,
        };
        let room = Capacities::new(limits, &descriptors, tasks);
        let throttle = Arc::<Throttle>::default();
        let preview_listener = match &config.console.preview_address {
            Some(address) => Some(bind_previews(address).await?),
            None => None,
        };
        let preview_address = preview_listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok());
        let previews = preview_address.map(|address| preview_origins(config, address.port()));
        let previews = previews.transpose()?.map(Previews::new);
        let console = console::router(ConsoleParts {
            previews: previews.clone(),
            service: service.clone(),
            store: Arc::clone(&store),
            keys: Arc::clone(&keys),
            webhooks: webhooks.clone(),
            installation,
            tasks: tasks.clone(),
            room: room.clone(),
            throttle: Arc::clone(&throttle),
            https: server.is_https(),
        })?;
        let eip = server
            .eip
            .as_deref()
            .map(|eip| eip.trim().trim_end_matches('/').to_owned());
        let forwarding = osb_forward::Limits {
            idle: config.proxy.idle(),
            tunnel_idle: config.proxy.tunnel_idle(),
            ..http::proxy_limits()
        };
        let state = AppParts {
            unscoped: service.clone(),
            keys,
            store: Arc::clone(&store),
            instance_id: store.instance_id().await?,
            forwarder: Forwarder::new(forwarding, tasks),
            eip: eip.filter(|eip| !eip.is_empty()),
            keyless_from_sandboxes: config.proxy.keyless_from_sandboxes,
            room,
            meter: meter.clone(),
            metrics_are_open: !config.metrics.authentication,
            tasks: tasks.clone(),
            throttle,
            webhooks,
        };
        let state = AppState::from(state);
        let metrics = match &config.metrics.address {
            Some(address) => Some((
                bind_metrics(address).await?,
                http::metrics_router(state.clone()),
            )),
            None => None,
        };
        let preview_router = previews.map(|previews| {
            // Its hosts are those of previews, and nothing else is served there.
            let edge = EdgeRules {
                proxies: TrustedProxies::new(server.trusted_networks()),
                hosts: AllowedHosts::any(),
                access_log: None,
            };
            http::router(&state, http::preview_router(state.clone(), previews), edge)
        });
        let edge = EdgeRules {
            proxies: TrustedProxies::new(server.trusted_networks()),
            hosts: hosts_of(server, &state.keys),
            access_log: access_log(&config.log, tasks)?,
        };
        let routes = http::routes(state.clone(), console);
        let router = http::router(&state, routes.clone(), edge);
        let bounds = Bounds {
            keep_alive: Duration::from_secs(server.timeout_keep_alive),
            graceful: Duration::from_secs(server.timeout_graceful_shutdown),
            connections: descriptors.connections,
        };
        Ok(Self {
            router,
            routes,
            service,
            tasks: tasks.clone(),
            bounds,
            tls,
            meter,
            metrics_address: metrics
                .as_ref()
                .and_then(|(listener, _)| listener.local_addr().ok()),
            metrics: metrics.into(),
            preview_address,
            previews: preview_listener.zip(preview_router).into(),
            store,
        })
    }

    /// Serves until the supervisor stops.
    pub async fn serve(&self, listener: TcpListener) {
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = { metrics }.take();
        let tasks = &self.tasks;
        if let Some((listener, router)) = metrics {
            let bounds = Bounds {
                connections: METRICS_CONNECTIONS.min(self.bounds.connections),
                ..self.bounds
            };
            let serving = Serving {
                router,
                bounds,
                tls: None,
                meter: Meter::default(),
            };
            let served = serve::serve(listener, serving, tasks.clone());
            tasks.spawn("metrics listener", served);
        }
        let previews = self.previews.lock().unwrap_or_else(PoisonError::into_inner);
        let previews = { previews }.take();
        if let Some((listener, router)) = previews {
            let serving = Serving {
                router,
                bounds: self.bounds,
                tls: self.tls.clone(),
                meter: Meter::default(),
            };
            let served = serve::serve(listener, serving, tasks.clone());
            tasks.spawn("preview listener", served);
        }
        let serving = Serving {
            router: self.router.clone(),
            bounds: self.bounds,
            tls: self.tls.clone(),
            meter: self.meter.clone(),
        };
        serve::serve(listener, serving, tasks.clone()).await;
    }

    /// Passes on every measurement, too.
    pub fn observe_with(&self, observer: Box<dyn Observer>) {
        self.meter.observe_with(observer);
    }

    /// Where metrics alone are served, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Where previews have origins of their own, if they have.
    #[must_use]
    pub fn preview_address(&self) -> Option<SocketAddr> {
        self.preview_address
    }

    /// How long requests under way get at shutdown.
    #[must_use]
    pub fn graceful(&self) -> Duration {
        self.bounds.graceful
    }

    /// Closes what outlives the tasks.
    pub async fn close(&self) {
        // What this server did not get to answer is not what a crash left.
        if let Err(error) = self.service.set_creates_answered().await {
            warn!(error = %ErrorChain(&error), "unanswered creates will be removed at the next start");
        }
        // May take a while, and loses less than what is above.
        self.service.audit_trail().finish().await;
        self.store.close().await;
    }
}

/// The log of accesses, if it is wanted.
fn access_log(log: &LogSection, tasks: &Supervisor) -> anyhow::Result<Option<AccessLog>> {
    let Some(options) = log.access_file() else {
        return Ok(None);
    };
    let path = options.path.display().to_string();
    let failed = || format!("cannot write the log of accesses to {path} (log.access_file_path)");
    let log = AccessLog::start(options, tasks).with_context(failed)?;
    Ok(Some(log))
}

/// Takes the port for metrics.
async fn bind_metrics(address: &str) -> anyhow::Result<TcpListener> {
    let failed = || format!("cannot listen on {address} (metrics.address)");
    let listener = TcpListener::bind(address).await.with_context(failed)?;
    info!(%address, "metrics are served without a key");
    Ok(listener)
}

/// Takes the port for previews.
async fn bind_previews(address: &str) -> anyhow::Result<TcpListener> {
    let failed = || format!("cannot listen on {address} (console.preview_address)");
    TcpListener::bind(address).await.with_context(failed)
}

/// Where browsers find previews that are served on this port.
fn preview_origins(config: &Config, port: u16) -> anyhow::Result<PreviewOrigins> {
    let has_tls = config.server.tls.files().is_some();
    match &config.console.preview_origin {
        Some(origin) => PreviewOrigins::parse(origin)
            .map_err(|why| anyhow::anyhow!("console.preview_origin: {why}")),
        None => Ok(PreviewOrigins::local(has_tls, port)),
    }
}

/// What another server kept in files.
fn foreign_files(config: &Config) -> ForeignFiles {
    let folder = config.store.import_path.clone().unwrap_or_default();
    match folder.as_os_str().is_empty() {
        true => ForeignFiles::default(),
        false => ForeignFiles::in_folder(folder),
    }
}

/// Certificate and key of the listener, which follow their files.
async fn tls(server: &ServerSection, tasks: &Supervisor) -> anyhow::Result<Option<Tls>> {
    let Some((certificate, key)) = server.tls.files() else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let tls = Tls::load(files).await.context("server.tls")?;
    tls.follow(tasks).context("cannot handle SIGHUP")?;
    Ok(Some(tls))
}

/// Only API keys keep a page under a foreign name from using the server.
fn hosts_of(server: &ServerSection, keys: &Authenticator) -> AllowedHosts {
    match keys.is_required() {
        true => AllowedHosts::any(),
        false => AllowedHosts::own([server.eip.as_deref().unwrap_or_default(), &server.host]),
    }
}

async fn runtime(config: &Config, store: &dyn Store) -> anyhow::Result<Arc<dyn Runtime>> {
    match config.runtime.kind {
        RuntimeType::Sim => Ok(Arc::new(SimRuntime::new())),
        RuntimeType::Docker => docker(config, store).await,
        RuntimeType::Kubernetes => anyhow::bail!("runtime.type kubernetes is not available yet"),
    }
}

async fn docker(config: &Config, store: &dyn Store) -> anyhow::Result<Arc<dyn Runtime>> {
    let execd = execd_path()?;
    let instance = store.instance_id().await?;
    let settings = config.docker.runtime_config(
        instance,
        execd,
        config.proxy.resolve_internal,
        &config.secure_runtime,
        &config.egress,
        config.storage.runtime_config(hosts::storage_view(config)),
    );
    let settings = settings.context("docker.seccomp_profile")?;
    let runtime = DockerRuntime::new(settings)?;
    require_secure_runtime(runtime.check_secure_runtime().await)?;
    Ok(Arc::new(runtime))
}

/// Stops the start when the engine lacks the configured secure runtime: no create could succeed
/// (contract: lifecycle §18). An engine that is away may have it.
fn require_secure_runtime(check: SecureCheck) -> anyhow::Result<()> {
    match check {
        SecureCheck::Present => Ok(()),
        SecureCheck::Absent { wanted, has } => anyhow::bail!(
            "secure_runtime.docker_runtime: the engine has no runtime {:?} for {}, only {}; install it \
             and register it with the engine (\"runtimes\" in /etc/docker/daemon.json), or name \
             another one",
            wanted.name,
            wanted.kind,
            has.join(", ")
        ),
        SecureCheck::Unknown { reason } => {
            warn!(
                reason,
                "cannot check that the engine has the runtime of [secure_runtime]; without it, \
                 creates fail"
            );
            Ok(())
        }
    }
}

/// The network policy of sandboxes whose request has none.
fn default_policy(config: &Config) -> anyhow::Result<Option<Arc<str>>> {
    let is_docker = config.runtime.kind == RuntimeType::Docker;
    // The addresses of a server that does not reach sandboxes at theirs may not be their host's.
    let own = match is_docker && config.proxy.resolve_internal {
        true => own_addresses::list(),
        false => Vec::new(),
    };
    let policy = config.egress.default_policy(&own);
    policy.context("egress.default_allow")
}

/// execd lies beside the server, unless the environment says otherwise.
fn execd_path() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(ENV_EXECD) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    Ok(own.with_file_name("execd"))
}

#[cfg(test)]
mod tests {
    use osb_runtime::{SecureKind, SecureRuntime};

    use super::*;

    #[test]
    fn a_secure_runtime_that_the_engine_lacks_stops_the_start() {
        let absent = SecureCheck::Absent {
            wanted: SecureRuntime::usual(SecureKind::Gvisor),
            has: vec!["kata".to_owned(), "runc".to_owned()],
        };
        let text = require_secure_runtime(absent).unwrap_err().to_string();
        for part in [
            "secure_runtime.docker_runtime: ",
            "\"runsc\" for gVisor, only kata, runc;",
            "daemon.json",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let away = SecureCheck::Unknown {
            reason: "the engine is away".to_owned(),
        };
        assert!(require_secure_runtime(away).is_ok());
        assert!(require_secure_runtime(SecureCheck::Present).is_ok());
    }
}

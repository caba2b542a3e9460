//! The parts, put together.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use osb_forward::Forwarder;
use osb_runtime::{Runtime, docker::DockerRuntime, sim::SimRuntime};
use osb_service::{ErrorChain, Supervisor};
use osb_store::Store;
use tokio::net::TcpListener;
use tracing::warn;

use crate::{
    access_queue,
    config::{Config, ENV_EXECD, RuntimeType, ServerSection},
    descriptors::Room,
    hosts,
    http::{
        self, AllowedHosts, AppParts, Capacities, EdgeRules, Throttle, TrustedProxies,
        auth::ApiKeys,
        console::{self, ConsoleParts},
        serve::{self, Bounds},
    },
    sandbox::{Limits, RenewalLimits, Service},
};

/// A server that is ready to serve.
#[derive(Debug)]
pub struct App {
    /// Its routes.
    pub router: axum::Router,
    /// Its domain.
    pub service: Service,
    tasks: Supervisor,
    bounds: Bounds,
    store: Arc<dyn Store>,
}

impl App {
    /// Opens the store, connects the runtime and builds the routes.
    ///
    /// # Errors
    /// When the store cannot be opened or execd is not to be found.
    pub async fn build(config: &Config, tasks: &Supervisor) -> anyhow::Result<Self> {
        let store = osb_store::open(&config.store.location()).await?;
        let runtime = runtime(config, &*store).await?;
        Self::assemble(config, store, runtime, tasks).await
    }

    /// Builds the routes over a store and a runtime.
    ///
    /// # Errors
    /// When the store cannot be read, or the address of Redis.
    pub async fn assemble(
        config: &Config,
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        tasks: &Supervisor,
    ) -> anyhow::Result<Self> {
        let server = &config.server;
        let limits = Limits {
            max_timeout_seconds: server.max_sandbox_timeout_seconds,
            execd_auth: config.runtime.execd_auth,
            execd_isolation: config.runtime.execd_isolation,
            renewal: config.renew_intent.enabled.then(|| RenewalLimits {
                min_interval: Duration::from_secs(config.renew_intent.min_interval_seconds),
                concurrency: config.renew_intent.redis.consumer_concurrency,
            }),
            ..Limits::default()
        };
        let service = Service::start(
            runtime,
            Arc::clone(&store),
            tasks.clone(),
            limits,
            hosts::find(config),
        )
        .await?;
        if let Some(queue) = config.renew_intent.queue() {
            access_queue::start(queue, &service, tasks)?;
        }
        let keys = Arc::new(ApiKeys::new(server.usable_key().cloned()));
        let descriptors = Room::of_process();
        let limits = http::Limits {
            concurrency: server.limit_concurrency,
            keyless_per_client: server.limit_keyless_per_client,
            per_sandbox: config.proxy.limit_per_sandbox,
        };
        let room = Capacities::new(limits, &descriptors, tasks);
        let throttle = Arc::<Throttle>::default();
        let console = console::router(ConsoleParts {
            service: service.clone(),
            store: Arc::clone(&store),
            keys: Arc::clone(&keys) as Arc<dyn console::Keys>,
            tasks: tasks.clone(),
            room: room.clone(),
            throttle: Arc::clone(&throttle),
            https: server.is_https(),
        })?;
        let eip = server
            .eip
            .as_deref()
            .map(|eip| eip.trim().trim_end_matches('/').to_owned());
        let state = AppParts {
            service: service.clone(),
            keys,
            forwarder: Forwarder::new(http::proxy_limits(config.proxy.tunnel_idle()), tasks),
            eip: eip.filter(|eip| !eip.is_empty()),
            keyless_from_sandboxes: config.proxy.keyless_from_sandboxes,
            room,
            tasks: tasks.clone(),
            throttle,
        };
        let edge = EdgeRules {
            proxies: TrustedProxies::new(server.trusted_networks()),
            hosts: hosts_of(server),
        };
        let router = http::router(state.into(), console, edge);
        let bounds = Bounds {
            keep_alive: Duration::from_secs(server.timeout_keep_alive),
            graceful: Duration::from_secs(server.timeout_graceful_shutdown),
            connections: descriptors.connections,
        };
        Ok(Self {
            router,
            service,
            tasks: tasks.clone(),
            bounds,
            store,
        })
    }

    /// Serves until the supervisor stops.
    pub async fn serve(&self, listener: TcpListener) {
        serve::serve(
            listener,
            self.router.clone(),
            self.bounds,
            self.tasks.clone(),
        )
        .await;
    }

    /// How long requests under way get at shutdown.
    #[must_use]
    pub fn graceful(&self) -> Duration {
        self.bounds.graceful
    }

    /// Closes what outlives the tasks.
    pub async fn close(&self) {
        // What this server did not get to answer is not what a crash left.
        if let Err(error) = self.store.set_all_answered().await {
            warn!(error = %ErrorChain(&error), "unanswered creates will be removed at the next start");
        }
        self.store.close().await;
    }
}

/// Only the API key keeps a page under a foreign name from using the server.
fn hosts_of(server: &ServerSection) -> AllowedHosts {
    match server.usable_key() {
        Some(_) => AllowedHosts::any(),
        None => AllowedHosts::own([server.eip.as_deref().unwrap_or_default(), &server.host]),
    }
}

async fn runtime(config: &Config, store: &dyn Store) -> anyhow::Result<Arc<dyn Runtime>> {
    if config.runtime.kind == RuntimeType::Sim {
        return Ok(Arc::new(SimRuntime::new()));
    }
    let execd = execd_path()?;
    let instance = store.instance_id().await?;
    let settings = config.docker.runtime_config(
        instance,
        execd,
        config.proxy.resolve_internal,
        &config.secure_runtime,
    );
    Ok(Arc::new(DockerRuntime::new(settings)?))
}

/// execd lies beside the server, unless the environment says otherwise.
fn execd_path() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(ENV_EXECD) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    Ok(own.with_file_name("execd"))
}

//! The real server in the test's process.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context;
use osb_client::LifecycleClient;
use osb_runtime::{
    Observed, Runtime,
    sim::{Options, SimRuntime},
};
use osb_server::{
    app::App,
    config::Config,
    http::{measure::Observer, serve},
    sandbox::{RuntimeHealth, Service},
    webhooks::{Clock, SystemClock},
};
use osb_service::Supervisor;
use osb_store::Store;
use reqwest::RequestBuilder;
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{MountedRoute, mounted_routes, patience, store_in};

/// API key of every test server.
pub const API_KEY: &str = "test-key";

/// A server on a free port, with its own store.
#[derive(Debug)]
pub struct TestServer {
    /// Address it listens on.
    pub address: SocketAddr,
    /// The domain behind its API.
    pub service: Service,
    app: Arc<App>,
    tasks: Supervisor,
    serving: Supervisor,
    http: reqwest::Client,
    _folder: Option<TempDir>,
}

impl TestServer {
    /// Starts a server over the simulated runtime.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn sim() -> anyhow::Result<(Self, Arc<SimRuntime>)> {
        Self::sim_with(Options::default()).await
    }

    /// Starts a server over a simulated runtime with these options.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn sim_with(options: Options) -> anyhow::Result<(Self, Arc<SimRuntime>)> {
        let sim = Arc::new(SimRuntime::with_options(options));
        let folder = tempfile::tempdir()?;
        let mut server = Self::over(Arc::clone(&sim) as _, folder.path(), "").await?;
        server._folder = Some(folder);
        Ok((server, sim))
    }

    /// Starts a server over a runtime with these sandboxes, with further lines of configuration.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn around(
        sandboxes: impl IntoIterator<Item = Observed>,
        more: &str,
    ) -> anyhow::Result<Self> {
        Self::with_key(API_KEY, sandboxes, more).await
    }

    /// The same without an API key.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn keyless(
        sandboxes: impl IntoIterator<Item = Observed>,
        more: &str,
    ) -> anyhow::Result<Self> {
        Self::with_key("", sandboxes, more).await
    }

    /// Starts a server whose API keys are those of a file of tenants. The file is `tenants.toml` in
    /// `folder`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn with_tenants(
        sandboxes: impl IntoIterator<Item = Observed>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::with_tenants_over(Arc::new(SimRuntime::with(sandboxes)), folder).await
    }

    /// The same over a runtime.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn with_tenants_over(
        runtime: Arc<dyn Runtime>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::with_tenants_and(runtime, folder, "").await
    }

    /// The same with further lines of configuration.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn with_tenants_and(
        runtime: Arc<dyn Runtime>,
        folder: &Path,
        more: &str,
    ) -> anyhow::Result<Self> {
        let mut config = config("", &format!("{more}\n[tenants]"))?;
        let tenants = config.tenants.as_mut().context("no [tenants]")?;
        tenants.file = folder.join("tenants.toml");
        let store = osb_store::open(&store_in(folder).await?).await?;
        let server = Self::put_together(runtime, store, &config).await?;
        server.wait_until_up().await?;
        Ok(server)
    }

    /// Waits until it knows its sandboxes.
    ///
    /// # Errors
    /// When it has stopped.
    pub async fn wait_until_up(&self) -> anyhow::Result<()> {
        let mut health = self.service.registry().watch_health();
        health
            .wait_for(|health| *health == RuntimeHealth::Up)
            .await?;
        Ok(())
    }

    async fn with_key(
        key: &str,
        sandboxes: impl IntoIterator<Item = Observed>,
        more: &str,
    ) -> anyhow::Result<Self> {
        let sim = Arc::new(SimRuntime::with(sandboxes));
        let folder = tempfile::tempdir()?;
        let mut server = Self::start(sim, folder.path(), key, more).await?;
        server.wait_until_up().await?;
        server._folder = Some(folder);
        Ok(server)
    }

    /// Starts a server over a runtime, with its store in `folder` and further lines of configuration.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn over(
        runtime: Arc<dyn Runtime>,
        folder: &Path,
        more: &str,
    ) -> anyhow::Result<Self> {
        Self::start(runtime, folder, API_KEY, more).await
    }

    async fn start(
        runtime: Arc<dyn Runtime>,
        folder: &Path,
        key: &str,
        more: &str,
    ) -> anyhow::Result<Self> {
        let store = osb_store::open(&store_in(folder).await?).await?;
        Self::put_together(runtime, store, &config(key, more)?).await
    }

    /// Starts a server over a runtime and a store, with further lines of configuration.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn assemble(
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Store>,
        more: &str,
    ) -> anyhow::Result<Self> {
        Self::put_together(runtime, store, &config(API_KEY, more)?).await
    }

    /// Starts a server over a runtime and a clock by which webhooks are sent, with its store in
    /// `folder` and further lines of configuration. Returns once it knows its sandboxes.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn with_clock(
        runtime: Arc<dyn Runtime>,
        folder: &Path,
        more: &str,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let store = osb_store::open(&store_in(folder).await?).await?;
        let config = config(API_KEY, more)?;
        let server = Self::put_together_at(runtime, store, &config, clock).await?;
        server.wait_until_up().await?;
        Ok(server)
    }

    async fn put_together(
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Store>,
        config: &Config,
    ) -> anyhow::Result<Self> {
        Self::put_together_at(runtime, store, config, Arc::new(SystemClock)).await
    }

    async fn put_together_at(
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Store>,
        config: &Config,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let tasks = Supervisor::new();
        let app = App::assemble_with_clock(config, store, runtime, &tasks, clock).await?;
        let app = Arc::new(app);
        let listener = serve::bind("127.0.0.1", 0, 128).await?;
        let address = listener.local_addr()?;
        let service = app.service.clone();
        let serving = Supervisor::new();
        let served = Arc::clone(&app);
        serving.spawn("test server", async move { served.serve(listener).await });
        let http = osb_client::plain_http()?;
        Ok(Self {
            address,
            service,
            app,
            tasks,
            serving,
            http,
            _folder: None,
        })
    }

    /// Passes on every measurement of the server.
    pub fn observe_with(&self, observer: Box<dyn Observer>) {
        self.app.observe_with(observer);
    }

    /// Lists every route that the server has.
    #[must_use]
    pub fn routes(&self) -> Vec<MountedRoute> {
        mounted_routes(&self.app.routes)
    }

    /// Returns the address of the listener for metrics, if there is one.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.app.metrics_address()
    }

    /// Returns the address of the listener for previews, if there is one.
    #[must_use]
    pub fn preview_address(&self) -> Option<SocketAddr> {
        self.app.preview_address()
    }

    /// Creates a typed client with the key.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn client(&self) -> anyhow::Result<LifecycleClient> {
        let key = Some(SecretString::from(API_KEY));
        let address = format!("http://{}", self.address);
        Ok(LifecycleClient::with_http(
            self.http.clone(),
            &address,
            key,
        )?)
    }

    /// Builds an untyped request with the key; `path` begins with a slash.
    pub fn request(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        self.bare(method, path)
            .header(osb_protocol::headers::API_KEY, API_KEY)
    }

    /// Builds an untyped request with another API key.
    pub fn request_as(&self, key: &str, method: reqwest::Method, path: &str) -> RequestBuilder {
        self.bare(method, path)
            .header(osb_protocol::headers::API_KEY, key)
    }

    /// Builds an untyped request without the key.
    pub fn bare(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    /// Returns the body of a valid create request.
    #[must_use]
    pub fn good_create() -> Value {
        json!({
            "image": {"uri": "debian:12"},
            "entrypoint": ["sleep", "infinity"],
            "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
            "timeout": 600,
        })
    }

    /// Shuts the server down gracefully and waits for its tasks.
    pub async fn stop(&self) {
        self.tasks.drain(patience()).await;
        self.serving.drain(patience()).await;
        self.app.close().await;
    }
}

fn config(key: &str, more: &str) -> anyhow::Result<Config> {
    let text = format!(
        "[server]\nhost = '127.0.0.1'\nport = 1\napi_key = '{key}'\n\
         max_sandbox_timeout_seconds = 86400\n{more}\n[runtime]\ntype = 'sim'\n"
    );
    toml::from_str(&text).context("test configuration")
}

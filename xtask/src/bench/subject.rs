//! The measured server, and sandboxes on it.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{execd::Execd, http::Connection, load::Target};
use crate::{
    repo::Repo,
    step::notice,
    up::{BASE_IMAGE, Server, Settings, free_port, random_key, render, write_private},
};

/// Header of the API key.
const API_KEY: &str = "OPEN-SANDBOX-API-KEY";
/// Longest time a sandbox may take to answer.
const READY: Duration = Duration::from_secs(60);
/// Pause between two requests to a starting sandbox.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A release build of the server on a free port; stopped when dropped.
pub(super) struct Subject {
    server: Server,
    settings: Settings,
}

/// One sandbox.
pub(super) struct Sandbox {
    /// Sandbox id.
    pub(super) id: String,
    /// Endpoint of its execd.
    pub(super) execd: Execd,
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

impl Subject {
    /// Starts a server with an empty store and the given runtime.
    pub(super) fn start(repo: &Repo, name: &str, runtime: &str) -> Result<Self> {
        let dir: PathBuf = repo.reports().join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        let config = dir.join("config.toml");
        let text = render(free_port()?, &random_key()?, &dir.join("store.db"))
            .replace("type = \"docker\"", &format!("type = \"{runtime}\""));
        write_private(&config, &text)?;
        let settings = Settings::load(&config)?;
        let program = repo.dist().join("opensandbox-server");
        let server = Server::start(&program, &config, &settings, &dir)?;
        Ok(Self { server, settings })
    }

    /// Stops the server.
    pub(super) fn stop(mut self) -> Result<()> {
        self.server.end()
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// `host:port`.
    pub(super) fn address(&self) -> &str {
        &self.settings.address
    }

    /// Opens a persistent connection that sends the key.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let connection = Connection::tcp(self.address()).await?;
        Ok(connection.with_header(API_KEY, self.key()))
    }

    /// Returns the load target for a path.
    pub(super) fn target(&self, path: &str) -> Target {
        Target {
            url: format!("http://{}{path}", self.address()),
            headers: vec![(API_KEY.to_owned(), self.key().to_owned())],
        }
    }

    fn key(&self) -> &str {
        self.settings.api_key.as_deref().unwrap_or_default()
    }

    /// Body of a create request.
    pub(super) fn create_body() -> Value {
        json!({
            "image": { "uri": BASE_IMAGE },
            "entrypoint": ["tail", "-f", "/dev/null"],
            "timeout": 3600,
            "resourceLimits": { "cpu": "1", "memory": "512Mi" },
        })
    }

    /// Creates a sandbox without waiting for its execd.
    pub(super) async fn create(&self, connection: &mut Connection) -> Result<String> {
        let body = Self::create_body();
        let created: Created = connection
            .call("POST", "/v1/sandboxes", Some(&body))
            .await?
            .json()?;
        Ok(created.id)
    }

    /// Creates a sandbox and waits until its execd answers, as SDKs do but with a shorter interval.
    pub(super) async fn create_ready(&self, connection: &mut Connection) -> Result<Sandbox> {
        let id = self.create(connection).await?;
        let path = format!("/v1/sandboxes/{id}/endpoints/44772");
        let execd: Execd = connection.call("GET", &path, None).await?.json()?;
        let sandbox = Sandbox { id, execd };
        let deadline = Instant::now() + READY;
        while !sandbox.execd.answers().await {
            if Instant::now() > deadline {
                bail!("execd of {} did not answer in {READY:?}", sandbox.id);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(sandbox)
    }

    /// Deletes a sandbox without waiting for its removal.
    pub(super) async fn delete(&self, connection: &mut Connection, id: &str) -> Result<()> {
        connection
            .call("DELETE", &format!("/v1/sandboxes/{id}"), None)
            .await?;
        Ok(())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Also after a failure, no server stays behind.
        if let Err(error) = self.server.end() {
            notice(&format!("a server may still run: {error:#}"));
        }
    }
}

impl Sandbox {
    /// Path of an execd route through the server's proxy.
    pub(super) fn proxied(&self, route: &str) -> String {
        format!("/v1/sandboxes/{}/proxy/44772{route}", self.id)
    }
}

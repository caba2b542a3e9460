//! The measured server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::json;

use super::client::Client;
use crate::{
    host::{Installer, postgres::Postgres},
    process::query,
    repo::Repo,
    step::notice,
    up::{Server, Settings, free_port, random_key, render, write_private},
};

/// Tenant of the measured requests where the server has tenants.
const TENANT: &str = "bench";
/// Users where the server has some.
const USERS: usize = 3;
/// Variable with the path of the file of tenants.
const TENANTS_FILE: &str = "SANDBOX_TENANTS_CONFIG_PATH";

/// A release build of the server on a free port; stopped when dropped.
pub(super) struct Subject {
    server: Server,
    client: Client,
    /// Its database, unless that is a file.
    _postgres: Option<Postgres>,
}

impl Subject {
    /// Starts a server with an empty store and the given runtime.
    pub(super) fn start(repo: &Repo, name: &str, runtime: &str) -> Result<Self> {
        let dir = empty_folder(repo, name)?;
        let key = random_key()?;
        let text = configuration(&key, &dir, runtime)?;
        Self::run(repo, &dir, &text, &key, None)
    }

    /// Starts a server with everything on that a request passes: a store in PostgreSQL, tenants with
    /// quotas, users, and an API key of the store for the requests. The audit is on by default.
    pub(super) async fn start_complete(
        repo: &Repo,
        installer: &Installer,
        name: &str,
        runtime: &str,
    ) -> Result<Self> {
        let postgres = Postgres::start_durable(installer)?;
        let dir = empty_folder(repo, name)?;
        let mut text = configuration("", &dir, runtime)?;
        text.truncate(text.find("[store]").context("there is no [store]")?);
        text += &format!(
            "[store]\ntype = \"postgresql\"\n[store.postgresql]\ndsn = \"{}\"\n\
             [tenants]\nprovider = \"file\"\n\
             [quotas]\nsandboxes = 100000\ncpu = \"100000\"\nmemory = \"100000Gi\"\n",
            postgres.url()
        );
        let tenants = format!(
            "[[tenants]]\nname = \"{TENANT}\"\nnamespace = \"{TENANT}\"\napi_keys = [\"{}\"]\n",
            random_key()?
        );
        write_private(&dir.join("tenants.toml"), &tenants)?;
        let config = dir.join("config.toml");
        write_private(&config, &text)?;
        let new_key = |arguments: &[&str]| {
            let mut command = Command::new(repo.dist().join("opensandbox-server"));
            command.arg("--config").arg(&config).args(["key", "add"]);
            query(command.args(arguments))
        };
        let admin = new_key(&["admin", "--role", "service_admin"])?;
        let key = new_key(&["bench", "--tenant", TENANT, "--role", "operator"])?;
        let subject = Self::run(repo, &dir, &text, &key, Some(postgres))?;
        let mut connection = Client::new(subject.client.address(), &admin)
            .connect()
            .await?;
        for number in 0..USERS {
            let user = json!({
                "name": format!("user-{number}"), "password": random_key()?,
                "role": "operator", "tenant": TENANT,
            });
            connection.call("POST", "/v1/users", Some(&user)).await?;
        }
        Ok(subject)
    }

    fn run(
        repo: &Repo,
        dir: &Path,
        text: &str,
        key: &str,
        postgres: Option<Postgres>,
    ) -> Result<Self> {
        let config = dir.join("config.toml");
        write_private(&config, text)?;
        let settings = Settings::load(&config)?;
        let program = repo.dist().join("opensandbox-server");
        let environment = [(TENANTS_FILE, dir.join("tenants.toml"))];
        let server = Server::start(&program, &config, &settings, dir, &environment)?;
        Ok(Self {
            server,
            client: Client::new(&settings.address, key),
            _postgres: postgres,
        })
    }

    /// Stops the server.
    pub(super) fn stop(mut self) -> Result<()> {
        self.server.end()
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its client, with a key that may create sandboxes.
    pub(super) fn client(&self) -> &Client {
        &self.client
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

/// An empty folder for a server's files.
/// An empty folder for the files of a server.
pub(super) fn empty_folder(repo: &Repo, name: &str) -> Result<PathBuf> {
    let dir = repo.reports().join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn configuration(key: &str, dir: &Path, runtime: &str) -> Result<String> {
    let text = render(free_port()?, key, &dir.join("store.db"));
    Ok(text.replace("type = \"docker\"", &format!("type = \"{runtime}\"")))
}

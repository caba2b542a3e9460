//! A dedicated server for the suites that need one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};

use super::Context;
use crate::{
    load,
    step::notice,
    up::{Server, Settings, free_port, random_key, render, write_private},
};

/// A dev build of the server on a free port with its own store; stopped when dropped.
pub(super) struct TestServer {
    server: Server,
    settings: Settings,
    dir: PathBuf,
    program: PathBuf,
    /// Factor by which its tests extend their deadlines.
    patience: f64,
}

/// Locked while a server starts, because a free port is taken only when a server listens there.
static STARTING: Mutex<()> = Mutex::new(());

impl TestServer {
    /// Starts the server with its configuration, store and log in a folder of its own below
    /// `target/reports`, whose name ends with `name`.
    pub(super) fn start(context: &Context<'_>, name: &str) -> Result<Self> {
        Self::start_on(context, name, None)
    }

    /// Starts the server with its store in the PostgreSQL database of this URL, if there is one.
    pub(super) fn start_on(
        context: &Context<'_>,
        name: &str,
        database: Option<&str>,
    ) -> Result<Self> {
        let dir = context.folder_of_server(name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let _held = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let config = dir.join("config.toml");
        let text = render(free_port()?, &random_key()?, &dir.join("store.db"));
        let text = with_builds(&with_volumes(&text, &volumes_in(&dir)));
        let text = alone(&text);
        let text = match database {
            None => text,
            Some(url) => in_database(&text, url),
        };
        write_private(&config, &text)?;
        let settings = Settings::load(&config)?;
        let program = context.repo.dist_for_tests().join("opensandbox-server");
        let server = Server::start(&program, &config, &settings, &dir, &[])?;
        Ok(Self {
            server,
            settings,
            dir,
            program,
            patience: load::patience(name),
        })
    }

    /// Base URL.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.settings.address)
    }

    /// API key.
    pub(super) fn api_key(&self) -> &str {
        self.settings.api_key.as_deref().unwrap_or_default()
    }

    /// Passes the server's address, key and program to a suite, which could test any other server
    /// in the same way, and how patient it is.
    pub(super) fn describe_to(&self, command: &mut Command) {
        command
            .env("OPENSANDBOX_TEST_URL", self.url())
            .env("OPENSANDBOX_TEST_API_KEY", self.api_key())
            .env("OPENSANDBOX_TEST_IMAGE", crate::up::BASE_IMAGE)
            .env("OPENSANDBOX_TEST_HOST_VOLUMES", volumes_in(&self.dir))
            .env("OPENSANDBOX_TEST_SERVER_BINARY", &self.program)
            .env("OPENSANDBOX_TEST_SERVER_CONFIG", &self.settings.file)
            .env(load::PATIENCE, self.patience.to_string());
    }

    /// Factor by which its tests extend their deadlines.
    pub(super) fn patience(&self) -> f64 {
        self.patience
    }

    /// Path of its program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Folder of its log.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops the server.
    pub(super) fn stop(mut self) -> Result<()> {
        self.server.end()
    }
}

/// Directory that sandboxes of a test server may get.
fn volumes_in(dir: &Path) -> PathBuf {
    dir.join("volumes")
}

/// Lets sandboxes get a directory of this machine.
fn with_volumes(config: &str, allowed: &Path) -> String {
    let allowed = toml::Value::String(allowed.to_string_lossy().into_owned());
    // Tests share a volume and mount a directory of it, on engines of any release.
    // This machine may be a container itself, in which the engine runs as well.
    format!(
        "{config}\n[storage]\nallowed_host_paths = [{allowed}]\nhost_is_local = true\n\
         allow_racy_paths = true\n"
    )
}

/// Lets clients have images of templates built.
fn with_builds(config: &str) -> String {
    format!("{config}\n[templates]\nallow_builds = true\n")
}

/// Keeps the server from taking over sandboxes of the servers that run beside it.
fn alone(config: &str) -> String {
    config.replace("[docker]\n", "[docker]\ntake_over = false\n")
}

/// Moves the store of a configuration into a PostgreSQL database.
fn in_database(config: &str, url: &str) -> String {
    let config = config.replace("type = \"sqlite\"", "type = \"postgresql\"");
    let url = toml::Value::String(url.to_owned());
    format!("{config}\n[store.postgresql]\ndsn = {url}\n")
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Also after a failure, no server stays behind.
        if let Err(error) = self.server.end() {
            notice(&format!("a server may still run: {error:#}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_moved_into_a_database() {
        let url = "postgresql://postgres@127.0.0.1:1/postgres";
        let text = with_volumes(&render(1, "key", Path::new("/s.db")), Path::new("/v"));
        let text = in_database(&alone(&with_builds(&text)), url);
        let config: toml::Table = text.parse().unwrap();
        let store = &config["store"];
        assert_eq!(store["type"].as_str(), Some("postgresql"));
        assert_eq!(store["postgresql"]["dsn"].as_str(), Some(url));
        assert_eq!(config["docker"]["take_over"].as_bool(), Some(false));
        assert_eq!(config["runtime"]["type"].as_str(), Some("docker"));
        let image = config["egress"]["image"].as_str();
        assert_eq!(image, Some("opensandbox/egress:latest"));
        let allowed = config["storage"]["allowed_host_paths"].as_array().unwrap();
        assert_eq!(allowed[0].as_str(), Some("/v"));
        let builds = config["templates"]["allow_builds"].as_bool();
        assert_eq!(builds, Some(true));
        let racy = config["storage"]["allow_racy_paths"].as_bool();
        assert_eq!(racy, Some(true));
    }
}

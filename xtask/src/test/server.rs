//! A server of our own for the suites that talk to one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::Context;
use crate::{
    step::notice,
    up::{Server, Settings, free_port, random_key, render, write_private},
};

/// A dev-built server on a free port with a store of its own; stopped when dropped.
pub(super) struct TestServer {
    server: Server,
    settings: Settings,
    dir: PathBuf,
    program: PathBuf,
}

impl TestServer {
    /// Starts it. Its configuration, store and log lie in `target/reports/<name>`.
    pub(super) fn start(context: &Context<'_>, name: &str) -> Result<Self> {
        let dir = context.repo.reports().join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let config = dir.join("config.toml");
        write_private(
            &config,
            &render(free_port()?, &random_key()?, &dir.join("store.db")),
        )?;
        let settings = Settings::load(&config)?;
        let program = context.repo.dist_for_tests().join("opensandbox-server");
        let server = Server::start(&program, &config, &settings, &dir)?;
        Ok(Self {
            server,
            settings,
            dir,
            program,
        })
    }

    /// Address with its scheme.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.settings.address)
    }

    /// Its key.
    pub(super) fn api_key(&self) -> &str {
        self.settings.api_key.as_deref().unwrap_or_default()
    }

    /// Tells a suite in Python where the server is, so that it could as well be any other.
    pub(super) fn describe_to(&self, command: &mut Command) {
        command
            .env("OPENSANDBOX_TEST_URL", self.url())
            .env("OPENSANDBOX_TEST_API_KEY", self.api_key())
            .env("OPENSANDBOX_TEST_IMAGE", crate::up::BASE_IMAGE)
            .env("OPENSANDBOX_TEST_SERVER_BINARY", &self.program)
            .env("OPENSANDBOX_TEST_SERVER_CONFIG", &self.settings.file);
    }

    /// Where its log is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops it, and says whether that worked.
    pub(super) fn stop(mut self) -> Result<()> {
        self.server.end()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Whatever went wrong before, no server stays behind.
        if let Err(error) = self.server.end() {
            notice(&format!("a server may still run: {error:#}"));
        }
    }
}

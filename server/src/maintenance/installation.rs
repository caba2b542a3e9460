//! The installation of the running server, for the console.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use osb_app::view::{ConfigView, SettingView, StoreView};
use osb_protocol::WireTime;
use osb_service::ErrorChain;
use osb_store::{Location, tools};

use super::bundle::Bundle;
use crate::{config::LoadedConfig, http::console::Installation};

/// [`Installation`] over a configuration. Clones share it.
#[derive(Clone)]
pub struct RunningInstallation {
    loaded: Arc<LoadedConfig>,
    build: String,
}

impl RunningInstallation {
    /// With the configuration that the server was started with, and its version.
    #[must_use]
    pub fn new(loaded: Arc<LoadedConfig>, build: String) -> Self {
        Self { loaded, build }
    }
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Size of a database in bytes, with what is not in its main file yet.
fn size(database: &Path) -> Option<u64> {
    let of = |path: &Path| std::fs::metadata(path).ok().map(|it| it.len());
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    Some(of(database)? + of(Path::new(&log)).unwrap_or(0))
}

#[async_trait]
impl Installation for RunningInstallation {
    fn config(&self) -> ConfigView {
        let shown = self.loaded.show(&env);
        let settings = shown.settings.iter().map(|setting| SettingView {
            key: setting.key.to_owned(),
            value: setting.text(),
            origin: setting.origin.to_string(),
            is_set: setting.is_set(),
        });
        let config = &self.loaded.config;
        let metrics = match (&config.metrics.address, config.metrics.authentication) {
            (Some(address), _) => format!("http://{address}/metrics, without a key"),
            (None, true) => "GET /metrics, with an API key".to_owned(),
            (None, false) => "GET /metrics, without a key".to_owned(),
        };
        ConfigView {
            build: self.build.clone(),
            file: shown.file.display().to_string(),
            store: match config.store.location() {
                Location::Sqlite(path) => format!("SQLite, {}", path.display()),
                Location::Postgres(_) => "PostgreSQL".to_owned(),
            },
            settings: settings.collect(),
            notes: shown.unknown.into_iter().chain(shown.notes).collect(),
            environment: shown.environment.iter().map(ToString::to_string).collect(),
            metrics,
        }
    }

    async fn check_store(&self) -> Result<StoreView, String> {
        let location = self.loaded.config.store.location();
        let found = tools::inspect(&location).await;
        let found = found.map_err(|error| ErrorChain(&error).to_string())?;
        let bytes = match &location {
            Location::Sqlite(path) => size(path),
            Location::Postgres(_) => None,
        };
        Ok(StoreView {
            database: found.database.to_owned(),
            schema: (found.schema, found.newest_schema),
            tables: found.tables.into_iter().collect(),
            bytes,
            problems: found.problems,
            notes: found.notes,
        })
    }

    async fn support_bundle(&self) -> Result<(String, Vec<u8>), String> {
        let shown = self.loaded.show(&env);
        let bundle = Bundle::collect_with(&self.loaded, &self.build, &shown).await;
        let time = WireTime::new(jiff::Timestamp::now()).to_string();
        let name = format!("opensandbox-support-{}", time.replace([':', '.'], "-"));
        let mut archive = Vec::new();
        let written = bundle.write(&name, &mut archive);
        written.map_err(|error| error.to_string())?;
        Ok((format!("{name}.tar.gz"), archive))
    }
}

//! Limits of container logs.
//!
//! The engine writes the output of an entry point into files of the host, by default without a limit.
//! Only some logging drivers keep files and support limits. The engine's default driver is read once
//! per connection.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bollard::models::{HostConfigLogConfig, SystemInfo};

use super::{DockerRuntime, LogLimit, engine::bounded, error};
use crate::RuntimeError;

/// Logging drivers that keep files and support limits.
const LIMITED: [&str; 2] = ["json-file", "local"];

/// The engine's default logging driver, once known.
#[derive(Debug, Default)]
pub(super) struct LogDriver(Mutex<Option<String>>);

impl LogDriver {
    /// Records the engine's default driver.
    pub(super) fn record(&self, info: &SystemInfo) {
        let driver = info.logging_driver.clone().unwrap_or_default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(driver);
    }

    fn known(&self) -> Option<String> {
        let driver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        driver.clone()
    }
}

impl DockerRuntime {
    /// Returns the log settings of a new sandbox. `None` leaves them to the engine.
    pub(super) async fn log_config(&self) -> Result<Option<HostConfigLogConfig>, RuntimeError> {
        let Some(limit) = &self.config.log_limit else {
            return Ok(None);
        };
        if self.log_driver.known().is_none() {
            let docker = self.docker()?;
            let info = bounded(docker, docker.info()).await;
            let info = info.map_err(|error| error::other("read the logging driver", &error))?;
            self.log_driver.record(&info);
        }
        let driver = self.log_driver.known().unwrap_or_default();
        Ok(LIMITED
            .contains(&driver.as_str())
            .then(|| limited(driver, limit)))
    }
}

fn limited(driver: String, limit: &LogLimit) -> HostConfigLogConfig {
    let mut options = HashMap::from([
        ("max-size".to_owned(), limit.max_size.clone()),
        ("max-file".to_owned(), limit.max_files.to_string()),
    ]);
    if limit.max_files == 1 {
        // Only rotated files can be compressed; the engine rejects compression without any.
        options.insert("compress".to_owned(), "false".to_owned());
    }
    HostConfigLogConfig {
        typ: Some(driver),
        config: Some(options),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[tokio::test]
    async fn logs_are_limited_if_the_driver_keeps_files() {
        for (driver, limited) in [("json-file", true), ("local", true), ("journald", false)] {
            let info = json!({"LoggingDriver": driver}).to_string();
            let engine = FakeEngine::start(move |_| (200, info.clone())).await;
            let mut runtime = engine.runtime();
            let first = runtime.log_config().await.unwrap();
            assert_eq!(runtime.log_config().await.unwrap(), first);
            assert_eq!(engine.requests("GET /info").len(), 1, "requested once");
            let sent = serde_json::to_value(first).unwrap();
            let want = json!({"Type": driver, "Config": {"max-size": "10m", "max-file": "2"}});
            assert_eq!(sent, if limited { want } else { json!(null) });
            runtime.config.log_limit = None;
            assert_eq!(runtime.log_config().await.unwrap(), None);
        }
    }

    #[test]
    fn a_single_file_is_not_compressed() {
        let limit = LogLimit {
            max_size: "1m".to_owned(),
            max_files: 1,
        };
        let options = limited("local".to_owned(), &limit).config.unwrap();
        assert_eq!(options["compress"], "false");
    }
}

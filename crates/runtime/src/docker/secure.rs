//! The secure runtime of sandboxes on the engine (contract: lifecycle §18).

use std::time::Duration;

use super::{DockerRuntime, engine::bounded, error};
use crate::{SecureKind, SecureRuntime};

/// Longest wait for an engine that may not be up yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Prefix of names that engines take without having registered them: each is a program beside the
/// engine's own.
const SHIM: &str = "io.containerd.";
/// Start of the names that gVisor is registered under, whatever the configuration says.
const GVISOR_NAMES: [&str; 2] = ["runsc", "io.containerd.runsc."];

/// Whether the engine has the configured secure runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecureCheck {
    /// It has, or none is configured.
    Present,
    /// The engine has others only.
    Absent {
        /// The one that is configured.
        wanted: SecureRuntime,
        /// Names of those that the engine has, sorted.
        has: Vec<String>,
    },
    /// This cannot be said now. Creates say it.
    Unknown {
        /// Why not.
        reason: String,
    },
}

impl DockerRuntime {
    /// Asks the engine whether it has the configured secure runtime. Waits no longer than 10 s: the
    /// engine may be started after this server.
    pub async fn check_secure_runtime(&self) -> SecureCheck {
        let Some(wanted) = &self.config.secure_runtime else {
            return SecureCheck::Present;
        };
        let unknown = |reason: String| SecureCheck::Unknown { reason };
        if wanted.name.starts_with(SHIM) {
            return unknown(format!("engines do not list names with {SHIM}"));
        }
        let docker = match self.docker() {
            Ok(docker) => docker,
            Err(error) => return unknown(error.to_string()),
        };
        let asked = bounded(docker, docker.info());
        let info = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(info)) => info,
            Ok(Err(error)) => return unknown(error::reason(&error)),
            Err(_) => return unknown("the engine did not answer in time".to_owned()),
        };
        let Some(runtimes) = info.runtimes else {
            return unknown("the engine does not list its runtimes".to_owned());
        };
        if runtimes.contains_key(&wanted.name) {
            return SecureCheck::Present;
        }
        let mut has: Vec<String> = runtimes.into_keys().collect();
        has.sort();
        SecureCheck::Absent {
            wanted: wanted.clone(),
            has,
        }
    }

    /// The secure runtime that a container was created with, by the name that the engine reports. The
    /// configuration may have changed since.
    pub(super) fn secure_runtime_named(&self, name: &str) -> Option<SecureKind> {
        let configured = self.config.secure_runtime.as_ref();
        match configured.filter(|configured| configured.name == name) {
            Some(configured) => Some(configured.kind),
            None if is_gvisor(name) => Some(SecureKind::Gvisor),
            None if name.contains("kata") => Some(SecureKind::Kata),
            None => None,
        }
    }
}

/// Whether a name is one of gVisor's: `runsc` or `runsc-…`, also as a program beside the engine's.
fn is_gvisor(name: &str) -> bool {
    let mut starts = GVISOR_NAMES.iter();
    starts.any(|start| match name.strip_prefix(start) {
        Some(rest) => rest.is_empty() || rest.starts_with('-') || start.ends_with('.'),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use bollard::Docker;
    use serde_json::json;

    use super::*;
    use crate::docker::{
        DockerConfig,
        fake_engine::{self, FakeEngine},
    };

    fn config(secure: SecureRuntime) -> DockerConfig {
        DockerConfig {
            secure_runtime: Some(secure),
            ..fake_engine::config()
        }
    }

    async fn engine() -> FakeEngine {
        FakeEngine::start(|_| {
            let runtimes = json!({"runc": {"path": "runc"}, "runsc": {"path": "/usr/bin/runsc"}});
            (200, json!({"Runtimes": runtimes}).to_string())
        })
        .await
    }

    #[tokio::test]
    async fn the_engine_must_have_the_configured_runtime() {
        let engine = engine().await;
        let check = async |kind| {
            let runtime = engine.runtime_with(config(SecureRuntime::usual(kind)));
            runtime.check_secure_runtime().await
        };
        assert_eq!(check(SecureKind::Gvisor).await, SecureCheck::Present);
        let absent = SecureCheck::Absent {
            wanted: SecureRuntime::usual(SecureKind::Kata),
            has: vec!["runc".to_owned(), "runsc".to_owned()],
        };
        assert_eq!(check(SecureKind::Kata).await, absent);
        assert_eq!(engine.requests("GET /info").len(), 2);
        let plain = engine.runtime();
        assert_eq!(plain.check_secure_runtime().await, SecureCheck::Present);
        assert_eq!(engine.requests("GET /info").len(), 2, "nothing to ask");
    }

    #[tokio::test]
    async fn what_the_engine_cannot_say_is_unknown() {
        let is_unknown = async |runtime: &DockerRuntime| {
            let check = runtime.check_secure_runtime().await;
            matches!(check, SecureCheck::Unknown { .. })
        };
        let engine = engine().await;
        let shim = SecureRuntime {
            kind: SecureKind::Gvisor,
            name: "io.containerd.runsc.v1".to_owned(),
        };
        assert!(is_unknown(&engine.runtime_with(config(shim))).await);
        assert!(engine.requests("GET /info").is_empty());
        let gvisor = || config(SecureRuntime::usual(SecureKind::Gvisor));
        let silent = FakeEngine::start(|_| (200, json!({}).to_string())).await;
        assert!(is_unknown(&silent.runtime_with(gvisor())).await);
        let down = DockerRuntime::over(gvisor(), || {
            Docker::connect_with_unix("/nonexistent/engine.sock", 1, bollard::API_DEFAULT_VERSION)
        });
        assert!(is_unknown(&down.unwrap()).await);
    }

    #[test]
    fn a_container_may_have_been_created_with_another_runtime() {
        let ours = SecureRuntime {
            kind: SecureKind::Gvisor,
            name: "sandboxed".to_owned(),
        };
        let runtime = DockerRuntime::over(config(ours), Docker::connect_with_defaults).unwrap();
        for (name, kind) in [
            ("sandboxed", Some(SecureKind::Gvisor)),
            ("runsc", Some(SecureKind::Gvisor)),
            ("runsc-kvm", Some(SecureKind::Gvisor)),
            ("io.containerd.runsc.v1", Some(SecureKind::Gvisor)),
            ("kata-runtime", Some(SecureKind::Kata)),
            ("io.containerd.kata.v2", Some(SecureKind::Kata)),
            ("runc", None),
            ("runscape", None),
            ("", None),
        ] {
            assert_eq!(runtime.secure_runtime_named(name), kind, "{name}");
        }
    }
}

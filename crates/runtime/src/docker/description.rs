//! What an operator wants to know about the engine.

use std::{collections::BTreeMap, time::Duration};

use bollard::Docker;

use super::{engine::bounded, error};
use crate::RuntimeError;

/// Describes the engine that `DOCKER_HOST` names, or the local one. Proxies, registries and labels of
/// the engine are left out: they may contain passwords.
///
/// # Errors
/// When it does not answer within the limit.
pub async fn describe_engine(
    limit: Duration,
) -> Result<BTreeMap<&'static str, String>, RuntimeError> {
    const OP: &str = "describe the engine";
    let docker = Docker::connect_with_defaults().map_err(|error| error::other(OP, &error))?;
    describe(&docker.with_timeout(limit)).await
}

async fn describe(docker: &Docker) -> Result<BTreeMap<&'static str, String>, RuntimeError> {
    const OP: &str = "describe the engine";
    let version = bounded(docker, docker.version()).await;
    let version = version.map_err(|error| error::other(OP, &error))?;
    let info = bounded(docker, docker.info()).await;
    let info = info.map_err(|error| error::other(OP, &error))?;
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let runtimes = info.runtimes.map(|runtimes| {
        let mut names: Vec<String> = runtimes.into_keys().collect();
        names.sort();
        names.join(", ")
    });
    let all = [
        ("api version", version.api_version),
        ("architecture", info.architecture),
        ("cgroup driver", info.cgroup_driver.map(|it| it.to_string())),
        (
            "cgroup version",
            info.cgroup_version.map(|it| it.to_string()),
        ),
        ("containers", number(info.containers)),
        ("containers paused", number(info.containers_paused)),
        ("containers running", number(info.containers_running)),
        ("containers stopped", number(info.containers_stopped)),
        ("default runtime", info.default_runtime),
        ("images", number(info.images)),
        ("kernel", info.kernel_version),
        ("logging driver", info.logging_driver),
        ("memory in bytes", number(info.mem_total)),
        ("operating system", info.operating_system),
        ("processors", number(info.ncpu)),
        ("runtimes", runtimes),
        ("security", info.security_options.map(|it| it.join(", "))),
        ("storage driver", info.driver),
        ("time", info.system_time.map(|it| it.to_string())),
        ("version", info.server_version),
        ("warnings", info.warnings.map(|it| it.join("; "))),
    ];
    let known = all.into_iter();
    Ok(known
        .filter_map(|(name, value)| Some((name, value?)))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[tokio::test]
    async fn an_engine_is_described_without_its_secrets() {
        let engine = FakeEngine::start(|request| match request {
            "GET /version" => (200, json!({"ApiVersion": "1.50"}).to_string()),
            _ => {
                let info = json!({
                    "ServerVersion": "28.1", "Driver": "overlay2", "NCPU": 4,
                    "HttpProxy": "http://me:hunter2@proxy", "Labels": ["k=hunter2"],
                    "Runtimes": {"runsc": {"path": "x"}, "runc": {"path": "y"}},
                });
                (200, info.to_string())
            }
        })
        .await;
        let found = describe(engine.runtime().docker().unwrap()).await.unwrap();
        assert_eq!(found["runtimes"], "runc, runsc");
        assert_eq!(
            (found["version"].as_str(), found["processors"].as_str()),
            ("28.1", "4")
        );
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }
}

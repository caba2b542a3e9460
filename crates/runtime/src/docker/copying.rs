//! The environment that a container was created with.

use std::collections::BTreeMap;

use async_trait::async_trait;
use osb_protocol::{SandboxId, execd::HOOKS_ENV};
use secrecy::SecretString;

use super::{DockerRuntime, egress::RULES, engine::bounded, error, group, labels};
use crate::{Copying, RequestEnvironment, RuntimeError, SERVER_VARIABLES};

#[async_trait]
impl Copying for DockerRuntime {
    async fn read_environment(&self, id: &SandboxId) -> Result<RequestEnvironment, RuntimeError> {
        let container = self.main_container(id).await?;
        let inspected = self.inspect(&container).await;
        let inspected = inspected.map_err(|error| match error {
            RuntimeError::NotFound(_) => RuntimeError::NotFound(id.clone()),
            other => other,
        })?;
        let host = inspected.host_config.as_ref();
        let mode = host.and_then(|host| host.network_mode.as_deref());
        let config = inspected.config.unwrap_or_default();
        let labels = config.labels.unwrap_or_default();
        let labelled = labels::Read(&labels).network_policy().map(str::to_owned);
        let network_policy = match (labelled, group::network_owner(mode)) {
            (None, Some(owner)) => self.policy_of_sidecar(owner).await?,
            (labelled, _) => labelled,
        };
        let env = config.env;
        let of_image = match inspected.image {
            Some(image) => self.environment_of_image(&image).await?,
            None => Vec::new(),
        };
        let environment = of_request(
            variables(&env.unwrap_or_default()),
            &variables(&of_image),
            &self.config.sandbox_env,
        );
        Ok(RequestEnvironment {
            network_policy,
            ..environment
        })
    }
}

impl DockerRuntime {
    /// The network policy that a sidecar was created with. `None` if it is one for something else, or
    /// gone.
    async fn policy_of_sidecar(&self, container: &str) -> Result<Option<String>, RuntimeError> {
        let inspected = match self.inspect(container).await {
            Ok(inspected) => inspected,
            Err(RuntimeError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let env = inspected.config.and_then(|config| config.env);
        Ok(variables(&env.unwrap_or_default()).remove(RULES))
    }

    /// The environment of an image; empty if the image was deleted.
    async fn environment_of_image(&self, image: &str) -> Result<Vec<String>, RuntimeError> {
        let docker = self.docker()?;
        match bounded(docker, docker.inspect_image(image)).await {
            Ok(image) => {
                let env = image.config.and_then(|config| config.env);
                Ok(env.unwrap_or_default())
            }
            Err(error) if error::is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(error::other("inspect the image", &error)),
        }
    }
}

/// Splits `NAME=value` entries.
fn variables(env: &[String]) -> BTreeMap<String, String> {
    let split = env.iter().filter_map(|entry| entry.split_once('='));
    split
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Leaves out what the engine takes from the image, and what this back end adds.
fn of_request(
    env: BTreeMap<String, String>,
    of_image: &BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
) -> RequestEnvironment {
    let removed = defaults.keys().filter(|name| !env.contains_key(*name));
    let removed: Vec<_> = removed.map(|name| (name.clone(), None)).collect();
    let mut hooks = None;
    let mut variables = BTreeMap::new();
    for (name, value) in env {
        let is_known = |known: &BTreeMap<String, String>| known.get(&name) == Some(&value);
        if name == HOOKS_ENV {
            hooks = Some(SecretString::from(value));
        } else if !SERVER_VARIABLES.contains(&name.as_str())
            && !is_known(of_image)
            && !is_known(defaults)
        {
            variables.insert(name, Some(SecretString::from(value)));
        }
    }
    variables.extend(removed);
    RequestEnvironment {
        variables,
        hooks,
        network_policy: None,
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::*;
    use crate::docker::{fake_engine::FakeEngine, labels};

    #[tokio::test]
    async fn only_what_the_request_set_is_read() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c1", "Labels": labels}]).to_string())
            }
            _ if request.starts_with("GET /containers/c1/json") => {
                let env = [
                    "PATH=/bin",
                    "LANG=de",
                    "KEY=a=b",
                    "EMPTY=",
                    "EXECD_ACCESS_TOKEN=t",
                    "OPENSANDBOX_ID=a",
                    "EXECD_RUNTIME_INIT=false",
                    "OPENSANDBOX_LIFECYCLE={}",
                ];
                let config = json!({"Env": env});
                (
                    200,
                    json!({"Image": "sha256:1", "Config": config}).to_string(),
                )
            }
            "GET /images/sha256:1/json" => {
                let config = json!({"Env": ["PATH=/bin", "LANG=en"]});
                (200, json!({"Id": "sha256:1", "Config": config}).to_string())
            }
            _ => (404, json!({"message": "nothing of that name"}).to_string()),
        })
        .await;
        let read = engine
            .runtime()
            .read_environment(&"a".into())
            .await
            .unwrap();
        let seen: Vec<_> = read
            .variables
            .iter()
            .map(|(name, value)| {
                (
                    &**name,
                    value.as_ref().map(|it| it.expose_secret().to_owned()),
                )
            })
            .collect();
        let value = |text: &str| Some(text.to_owned());
        assert_eq!(
            seen,
            [
                ("EMPTY", value("")),
                ("KEY", value("a=b")),
                ("LANG", value("de"))
            ]
        );
        assert_eq!(read.hooks.unwrap().expose_secret(), "{}");
        assert_eq!(read.network_policy, None);
        let gone = engine.runtime().read_environment(&"b".into()).await;
        assert!(matches!(gone, Err(RuntimeError::NotFound(_))), "{gone:?}");
    }

    /// An engine with a sandbox that has the network of a sidecar, and whether the sidecar exists.
    async fn with_sidecar(exists: bool) -> FakeEngine {
        FakeEngine::start(move |request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c1", "Labels": labels}]).to_string())
            }
            _ if request.starts_with("GET /containers/c1/json") => {
                let host = json!({"NetworkMode": "container:c2"});
                (200, json!({"HostConfig": host}).to_string())
            }
            _ if exists && request.starts_with("GET /containers/c2/json") => {
                let env = [
                    "OPENSANDBOX_EGRESS_TOKEN=t",
                    r#"OPENSANDBOX_EGRESS_RULES={"egress":[]}"#,
                ];
                (200, json!({"Config": {"Env": env}}).to_string())
            }
            _ => (404, json!({"message": "nothing of that name"}).to_string()),
        })
        .await
    }

    #[tokio::test]
    async fn the_network_policy_is_read_from_the_sidecar() {
        for (exists, policy) in [(true, Some(r#"{"egress":[]}"#)), (false, None)] {
            let engine = with_sidecar(exists).await;
            let read = engine.runtime().read_environment(&"a".into()).await;
            let read = read.unwrap();
            assert_eq!(read.network_policy.as_deref(), policy);
            assert!(read.variables.is_empty(), "{read:?}");
        }
    }

    #[test]
    fn configured_defaults_count_as_such_and_stay_removed() {
        let map = |all: &[(&str, &str)]| {
            let all = all.iter();
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let env = map(&[("A", "1"), ("B", "2")]);
        let defaults = map(&[("A", "1"), ("B", "0"), ("C", "3")]);
        let read = of_request(env, &BTreeMap::new(), &defaults);
        let seen: Vec<_> = read
            .variables
            .iter()
            .map(|(name, value)| (&**name, value.is_some()))
            .collect();
        assert_eq!(seen, [("B", true), ("C", false)]);
        let debug = format!("{read:?}");
        assert!(!debug.contains('2'), "{debug}");
    }
}

//! A server of the lifecycle API, ours or another one, and sandboxes on it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{execd::Execd, http::Connection, load::Target};
use crate::up::BASE_IMAGE;

/// URL of another server of the same API, measured in turns with ours, and the key for it.
const REFERENCE: [&str; 2] = ["REFERENCE_URL", "REFERENCE_API_KEY"];
/// Header of the API key.
const API_KEY: &str = "OPEN-SANDBOX-API-KEY";
/// Longest time a sandbox may take to answer.
const READY: Duration = Duration::from_secs(60);
/// Pause between two requests to a starting sandbox.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Address and credentials of a server.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// `host:port`.
    address: String,
    key: String,
    /// Network policy of the sandboxes that it creates.
    policy: Option<Value>,
    /// Pool of the sandboxes that it creates.
    pool: Option<String>,
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

impl Client {
    /// The client of the server at `address`, a `host:port`.
    pub(super) fn new(address: &str, key: &str) -> Self {
        Self {
            address: address.to_owned(),
            key: key.to_owned(),
            policy: None,
            pool: None,
        }
    }

    /// The same client, whose sandboxes have a network policy.
    pub(super) fn with_policy(&self, policy: Value) -> Self {
        Self {
            policy: Some(policy),
            ..self.clone()
        }
    }

    /// The same client, whose sandboxes come from a pool.
    pub(super) fn with_pool(&self, name: &str) -> Self {
        Self {
            pool: Some(name.to_owned()),
            ..self.clone()
        }
    }

    /// The server that `REFERENCE_URL` names, if it is set.
    ///
    /// # Errors
    /// When it is no `http://host:port`.
    pub(super) fn reference() -> Result<Option<Self>> {
        let [url, key] = REFERENCE.map(|name| std::env::var(name).unwrap_or_default());
        Self::of_url(&url, &key).with_context(|| format!("{} = {url:?}", REFERENCE[0]))
    }

    fn of_url(url: &str, key: &str) -> Result<Option<Self>> {
        if url.is_empty() {
            return Ok(None);
        }
        let address = url
            .strip_prefix("http://")
            .map(|rest| rest.trim_end_matches('/'))
            .filter(|address| !address.is_empty() && !address.contains('/'));
        let address = address.context("expected http://host:port")?;
        Ok(Some(Self::new(address, key)))
    }

    /// `host:port`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Its key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Opens a persistent connection that sends the key.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let connection = Connection::tcp(&self.address).await?;
        Ok(connection.with_header(API_KEY, &self.key))
    }

    /// Returns the load target for a path.
    pub(super) fn target(&self, path: &str) -> Target {
        Target {
            url: format!("http://{}{path}", self.address),
            headers: vec![(API_KEY.to_owned(), self.key.clone())],
        }
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
        let mut body = Self::create_body();
        if let Some(policy) = &self.policy {
            body["networkPolicy"] = policy.clone();
        }
        if let Some(pool) = &self.pool {
            body["extensions"] = json!({ "poolRef": pool });
        }
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

impl Sandbox {
    /// Path of an execd route through the server's proxy.
    pub(super) fn proxied(&self, route: &str) -> String {
        format!("/v1/sandboxes/{}/proxy/44772{route}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_named_by_its_origin() {
        assert!(Client::of_url("", "k").unwrap().is_none());
        let client = Client::of_url("http://127.0.0.1:8090/", "k")
            .unwrap()
            .unwrap();
        assert_eq!(client.address(), "127.0.0.1:8090");
        for wrong in ["127.0.0.1:8090", "https://a", "http://", "http://a/v1"] {
            assert!(Client::of_url(wrong, "k").is_err(), "{wrong}");
        }
    }
}

//! The baseline: the same container created directly over the Engine API.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::http::Connection;
use crate::up::free_port;

const SOCKET: &str = "/var/run/docker.sock";

/// The engine's API.
pub(super) struct Engine {
    socket: PathBuf,
}

/// A create request for a container like that of a sandbox.
#[derive(Clone)]
pub(super) struct Template(Value);

/// A create request with ports of its own.
pub(super) struct Request(Value);

impl Engine {
    /// The engine of this machine.
    pub(super) fn local() -> Self {
        let socket = std::env::var("DOCKER_HOST")
            .ok()
            .and_then(|host| host.strip_prefix("unix://").map(PathBuf::from))
            .unwrap_or_else(|| Path::new(SOCKET).to_owned());
        Self { socket }
    }

    /// Opens a persistent connection.
    pub(super) async fn connect(&self) -> Result<Connection> {
        Connection::unix(&self.socket).await
    }

    /// Builds a request with the host configuration and environment of a sandbox's container. It has
    /// no labels, so that no server adopts the container, and no execd in front of the entry point.
    pub(super) async fn template(&self, sandbox: &str) -> Result<Template> {
        let known = self.inspect(sandbox).await?;
        Ok(Template(json!({
            "Image": known["Config"]["Image"],
            "Env": known["Config"]["Env"],
            "ExposedPorts": known["Config"]["ExposedPorts"],
            "Entrypoint": [],
            "Cmd": ["tail", "-f", "/dev/null"],
            "HostConfig": known["HostConfig"],
        })))
    }

    /// Finds the id of a sandbox's container.
    pub(super) async fn container_of(&self, sandbox: &str) -> Result<String> {
        // {"label":["opensandbox.io/id=…"]}
        let filters = format!("%7B%22label%22:%5B%22opensandbox.io/id={sandbox}%22%5D%7D");
        let path = format!("/containers/json?all=1&filters={filters}");
        let list: Value = self
            .connect()
            .await?
            .call("GET", &path, None)
            .await?
            .json()?;
        let id = list[0]["Id"].as_str();
        Ok(id.context("the sandbox has no container")?.to_owned())
    }

    /// Inspects the container of a sandbox.
    pub(super) async fn inspect(&self, sandbox: &str) -> Result<Value> {
        let path = format!("/containers/{}/json", self.container_of(sandbox).await?);
        self.connect().await?.call("GET", &path, None).await?.json()
    }

    /// Waits until a container is removed.
    pub(super) async fn removed(&self, name: &str) -> Result<()> {
        let path = format!("/containers/{name}/wait?condition=removed");
        let reply = self.connect().await?.send("POST", &path, None).await?;
        // 404: the container was removed before the request.
        anyhow::ensure!(
            reply.status == 200 || reply.status == 404,
            "wait: {}",
            reply.status
        );
        Ok(())
    }
}

impl Template {
    /// Creates and starts a container; returns its id.
    pub(super) async fn start(&self, engine: &mut Connection) -> Result<String> {
        let [body] = self.with_fresh_ports()?;
        body.start(engine).await
    }

    /// Returns requests whose ports are free and differ from each other's.
    pub(super) fn with_fresh_ports<const N: usize>(&self) -> Result<[Request; N]> {
        let mut taken = HashSet::new();
        let mut requests = Vec::new();
        for _ in 0..N {
            let mut body = self.0.clone();
            let ports = body["HostConfig"]["PortBindings"].as_object_mut();
            let bindings = ports.into_iter().flat_map(|ports| ports.values_mut());
            for binding in bindings.filter_map(Value::as_array_mut).flatten() {
                let port = loop {
                    let port = free_port()?;
                    if taken.insert(port) {
                        break port;
                    }
                };
                binding["HostPort"] = Value::from(port.to_string());
            }
            requests.push(Request(body));
        }
        requests
            .try_into()
            .map_err(|_| anyhow::anyhow!("there are as many requests as asked for"))
    }
}

impl Request {
    /// Creates and starts the container; returns its id.
    pub(super) async fn start(&self, engine: &mut Connection) -> Result<String> {
        let created: Value = engine
            .call("POST", "/containers/create", Some(&self.0))
            .await?
            .json()?;
        let id = created["Id"]
            .as_str()
            .context("the engine gave no id")?
            .to_owned();
        engine
            .call("POST", &format!("/containers/{id}/start"), None)
            .await?;
        Ok(id)
    }
}

/// Removes a container by force.
pub(super) async fn remove(engine: &mut Connection, id: &str) -> Result<()> {
    engine
        .call("DELETE", &format!("/containers/{id}?force=true"), None)
        .await?;
    Ok(())
}

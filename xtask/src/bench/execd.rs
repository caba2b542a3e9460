//! An execd at an endpoint: in a sandbox, or standalone on loopback.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{http::Connection, load::Target};
use crate::{
    repo::Repo,
    up::{free_port, get_status, random_key},
};

/// Longest time execd may take to answer.
const START: Duration = Duration::from_secs(10);
/// Header of execd's token.
const TOKEN: &str = "X-EXECD-ACCESS-TOKEN";

/// Endpoint of an execd, as the server's API returns it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Execd {
    endpoint: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Execd {
    /// The endpoint of a running execd without a token, at `http://host:port` or a path below it.
    pub(super) fn at(url: &str) -> Result<Self> {
        let endpoint = url
            .strip_prefix("http://")
            .map(|rest| rest.trim_end_matches('/'));
        let endpoint = endpoint.filter(|rest| !rest.is_empty());
        Ok(Self {
            endpoint: endpoint.context("expected http://host:port")?.to_owned(),
            headers: BTreeMap::new(),
        })
    }

    /// Headers that requests to it need.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// `host:port`.
    pub(super) fn address(&self) -> &str {
        self.endpoint.split('/').next().unwrap_or_default()
    }

    /// Opens a persistent connection.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let connection = Connection::tcp(self.address()).await?;
        let headers = self.headers.iter();
        Ok(headers.fold(connection, |connection, (name, value)| {
            connection.with_header(name, value)
        }))
    }

    /// Path of one of its routes.
    pub(super) fn path(&self, route: &str) -> String {
        match self.endpoint.split_once('/') {
            Some((_, prefix)) => format!("/{prefix}{route}"),
            None => route.to_owned(),
        }
    }

    /// Returns the load target for a route, at `address`: execd's own or that of a proxy.
    pub(super) fn target(&self, address: &str, route: &str) -> Target {
        let headers = self.headers.iter();
        Target {
            url: format!("http://{address}{}", self.path(route)),
            headers: headers
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        }
    }

    /// Whether it answers `/ping` now.
    pub(super) async fn answers(&self) -> bool {
        let Ok(mut execd) = self.connect().await else {
            return false;
        };
        let reply = execd.send("GET", &self.path("/ping"), None).await;
        reply.is_ok_and(|reply| reply.status == 200)
    }
}

/// An execd on this machine outside a sandbox; killed when dropped.
pub(super) struct StandaloneExecd {
    child: Child,
    /// Its endpoint.
    pub(super) execd: Execd,
}

impl StandaloneExecd {
    /// Starts the release build on a free port.
    pub(super) fn start(repo: &Repo) -> Result<Self> {
        Self::start_timed(repo).map(|(alone, _)| alone)
    }

    /// Starts the release build and measures the time until its first answer.
    pub(super) fn start_timed(repo: &Repo) -> Result<(Self, Duration)> {
        let dir = repo.reports().join("bench-execd");
        fs::create_dir_all(&dir)?;
        let (port, token) = (free_port()?, random_key()?);
        let log = fs::File::create(dir.join("execd.log"))?;
        let start = Instant::now();
        let child = Command::new(repo.dist().join("execd"))
            .args(["--port", &port.to_string()])
            .env("EXECD_ACCESS_TOKEN", &token)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start execd")?;
        let alone = Self {
            child,
            execd: Execd {
                endpoint: format!("127.0.0.1:{port}"),
                headers: BTreeMap::from([(TOKEN.to_owned(), token)]),
            },
        };
        loop {
            // A refused connection costs less than a request.
            let address = alone.execd.address();
            if TcpStream::connect(address).is_ok() && get_status(address, "/ping") == Some(200) {
                let answered = start.elapsed();
                return Ok((alone, answered));
            }
            if start.elapsed() > START {
                bail!("execd does not answer; see {}", dir.display())
            }
            std::thread::yield_now();
        }
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for StandaloneExecd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

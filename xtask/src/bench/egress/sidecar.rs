//! The measured sidecar: a process in the sandbox's network namespace.

use std::{
    fs::File,
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    Bound,
    internet::RESOLVER,
    queries::{self, Flow, Names},
    world::World,
};
use crate::{
    bench::{footprint, http::Connection},
    up::{get_status, random_key},
    wait::until,
};

/// Longest time until the rules are in force.
const START: Duration = Duration::from_secs(30);
/// Address of the API in the sandbox's namespace.
const API: &str = "127.0.0.1:18080";
/// Header of its token.
const TOKEN: &str = "OPENSANDBOX-EGRESS-AUTH";

/// A sidecar; killed when dropped.
pub(super) struct Sidecar {
    child: Child,
    token: String,
}

impl Sidecar {
    /// Starts a sidecar that refuses everything, and waits until it enforces that.
    pub(super) fn start(program: &Path, world: &World, mode: &str, log: &Path) -> Result<Self> {
        let token = random_key()?;
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        // The kernel kills it when the thread that started it ends: the bench's main thread.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("OPENSANDBOX_EGRESS_MODE", mode)
            .env("OPENSANDBOX_EGRESS_TOKEN", &token)
            .env("OPENSANDBOX_EGRESS_DNS_UPSTREAM", RESOLVER.to_string())
            .env("OPENSANDBOX_EGRESS_MAX_RULES", "0")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let start = || command.spawn().context("cannot run setpriv");
        let child = world.sandbox.inside(start)?;
        let mut sidecar = Self { child, token };
        let mut ended = None;
        let is_ready = until(START, || {
            ended = sidecar.child.try_wait().ok().flatten();
            let status = world.sandbox.inside(|| Ok(get_status(API, "/healthz")));
            ended.is_some() || matches!(status, Ok(Some(200)))
        });
        let (program, log) = (program.display(), log.display());
        if let Some(status) = ended {
            anyhow::bail!("{program} ended with {status}; see {log}");
        }
        ensure!(is_ready, "{program} does not enforce; see {log}");
        Ok(sidecar)
    }

    /// Opens a connection to its API.
    pub(super) async fn connect(&self, world: &World) -> Result<Connection> {
        let connect = || TcpStream::connect(API).context("cannot connect to the sidecar's API");
        let stream = world.sandbox.inside(connect)?;
        stream.set_nonblocking(true)?;
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let connection = Connection::of(stream, API).await?;
        Ok(connection.with_header(TOKEN, &self.token))
    }

    /// Keeps queries of the sandbox under way, as [`queries::flow`] does.
    pub(super) fn flow(&self, world: &World, names: &mut Names, bound: Bound) -> Result<Flow> {
        let before = footprint::processor_time(self.child.id())?;
        let mut flow = queries::flow(&world.sandbox, names, bound)?;
        let spent = footprint::processor_time(self.child.id())?.saturating_sub(before);
        let answered = flow.load.latency.samples + flow.failed;
        flow.cost = Some(spent / u32::try_from(answered.max(1))?);
        Ok(flow)
    }

    /// Its resident memory in bytes.
    pub(super) fn resident(&self) -> Result<u64> {
        footprint::resident(self.child.id())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

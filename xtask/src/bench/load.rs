//! Load: one connection of our own for latency; sixteen connections of wrk for throughput, because
//! wrk leaves more processor time to the server.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{
    http::Connection,
    stats::{Samples, Summary},
};
use crate::{process::query, repo::Repo};

/// Connections of the throughput measurements.
pub(super) const CONNECTIONS: usize = 16;

/// Result of a load.
pub(super) struct Load {
    /// Latency of its requests.
    pub(super) latency: Summary,
    /// Requests per second over all connections.
    pub(super) rate: f64,
}

impl Load {
    /// The load whose requests took this long, each and together.
    pub(super) fn of(samples: &Samples, time: Duration) -> Self {
        let latency = samples.summary();
        let rate = rate(latency.samples, time);
        Self { latency, rate }
    }
}

/// A URL and the headers its requests carry.
pub(super) struct Target {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
}

/// Repeats a GET on one connection until the time is up.
pub(super) async fn alone(mut connection: Connection, path: &str, time: Duration) -> Result<Load> {
    let mut samples = Samples::default();
    let start = Instant::now();
    while start.elapsed() < time {
        let sent = Instant::now();
        let reply = connection.send("GET", path, None).await?;
        samples.add(sent.elapsed());
        ensure!(reply.status == 200, "GET {path} answered {}", reply.status);
    }
    Ok(Load::of(&samples, start.elapsed()))
}

#[derive(Deserialize)]
struct Counted {
    requests: usize,
    duration_us: u64,
    min_us: u64,
    median_us: u64,
    p99_us: u64,
    failed: u64,
}

/// Repeats a GET on [`CONNECTIONS`] connections until the time is up.
pub(super) fn crowded(repo: &Repo, target: &Target, time: Duration) -> Result<Load> {
    by_wrk(repo, target, CONNECTIONS, time)
}

/// Repeats a GET with wrk until the time is up. wrk adds less to a latency than our own client.
pub(super) fn by_wrk(
    repo: &Repo,
    target: &Target,
    connections: usize,
    time: Duration,
) -> Result<Load> {
    let script = repo.reports().join("wrk.lua");
    fs::write(&script, include_str!("wrk.lua"))?;
    let mut wrk = Command::new("wrk");
    wrk.args(["--threads", "1", "--connections", &connections.to_string()])
        .args(["--duration", &format!("{}s", time.as_secs().max(1))])
        .arg("--script")
        .arg(&script);
    for (name, value) in &target.headers {
        wrk.args(["--header", &format!("{name}: {value}")]);
    }
    let output = query(wrk.arg(&target.url))?;
    let line = output.lines().last().unwrap_or_default();
    let counted: Counted = serde_json::from_str(line)
        .with_context(|| format!("unexpected output of wrk: {output}"))?;
    ensure!(
        counted.failed == 0,
        "{} requests to {} failed",
        counted.failed,
        target.url
    );
    Ok(Load {
        latency: Summary {
            samples: counted.requests,
            min: Duration::from_micros(counted.min_us),
            median: Duration::from_micros(counted.median_us),
            p99: Duration::from_micros(counted.p99_us),
        },
        rate: rate(counted.requests, Duration::from_micros(counted.duration_us)),
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of requests is far below 2^52"
)]
fn rate(requests: usize, time: Duration) -> f64 {
    requests as f64 / time.as_secs_f64().max(1e-9)
}

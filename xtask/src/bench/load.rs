//! A load generator: as many requests as kept connections carry.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::{http::Connection, stats::Samples};

/// Connections of the throughput measurements.
pub(super) const CONNECTIONS: usize = 16;

/// What a load gave.
pub(super) struct Load {
    /// Latency of each request.
    pub(super) latencies: Samples,
    /// Requests per second over all connections.
    pub(super) rate: f64,
}

/// Repeats a GET on every connection until the time is up.
pub(super) async fn get(connections: Vec<Connection>, path: &str, time: Duration) -> Result<Load> {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for mut connection in connections {
        let path = path.to_owned();
        tasks.spawn(async move {
            let mut latencies = Samples::default();
            while start.elapsed() < time {
                let sent = Instant::now();
                let reply = connection.send("GET", &path, None).await?;
                latencies.add(sent.elapsed());
                ensure!(reply.status == 200, "GET {path} answered {}", reply.status);
            }
            Ok(latencies)
        });
    }
    let mut latencies = Samples::default();
    while let Some(ended) = tasks.join_next().await {
        latencies.extend(ended??);
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a count of requests is far below 2^52"
    )]
    let rate = latencies.len() as f64 / start.elapsed().as_secs_f64();
    Ok(Load { latencies, rate })
}

//! Latency of commands through execd, compared with a plain fork.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Options, execd::Execd, plain::Plain, report::Report, stats::Samples};

/// Sequential commands per turn.
const PER_TURN: usize = 10;
/// Concurrent commands.
const AT_ONCE: usize = 50;
/// Rounds of concurrent commands.
const ROUNDS: usize = 10;

/// Measures the round trip of `true`, sequentially and concurrently. `prefix` is the prefix of the
/// row names.
pub(super) async fn measure(
    execd: &Execd,
    prefix: &str,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let (body, path) = (json!({ "command": "true" }), execd.path("/command"));
    let mut connection = Plain::post(execd, "/command", &body)?;
    let (mut ours, mut fork) = (Samples::default(), Samples::default());
    for _ in 0..options.turns * PER_TURN {
        let start = Instant::now();
        let reply = connection.send()?;
        ours.add(start.elapsed());
        let complete = b"\"execution_complete\"";
        ensure!(
            reply.windows(complete.len()).any(|bytes| bytes == complete),
            "the command did not complete"
        );
        fork.add(forked()?);
    }
    report.compare(
        &format!("{prefix}command `true`, whole stream"),
        ours.summary(),
        "bash -c true by a fork here",
        fork.summary(),
    );

    let mut connections = Vec::new();
    for _ in 0..AT_ONCE {
        connections.push(execd.connect().await?);
    }
    let mut all = Samples::default();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let runs = connections
            .iter_mut()
            .map(|execd| execd.call("POST", &path, Some(&body)));
        futures::future::try_join_all(runs).await?;
        all.add(start.elapsed());
    }
    let mut forks = Samples::default();
    for _ in 0..ROUNDS {
        forks.add(forked_at_once()?);
    }
    report.compare(
        &format!("{prefix}{AT_ONCE} commands at once, all ended"),
        all.summary(),
        &format!("{AT_ONCE} forks here, all ended"),
        forks.summary(),
    );
    Ok(())
}

fn bash() -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-c", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    bash
}

fn forked() -> Result<Duration> {
    let start = Instant::now();
    let status = bash().status()?;
    ensure!(status.success(), "bash failed");
    Ok(start.elapsed())
}

fn forked_at_once() -> Result<Duration> {
    let start = Instant::now();
    let mut children = Vec::with_capacity(AT_ONCE);
    for _ in 0..AT_ONCE {
        children.push(bash().spawn()?);
    }
    for mut child in children {
        ensure!(child.wait()?.success(), "bash failed");
    }
    Ok(start.elapsed())
}

//! Commands through execd against a plain fork.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Options, report::Report, stats::Samples, subject::Subject};

/// Commands in a row for one turn of a create.
const PER_TURN: usize = 10;
/// Commands at once.
const AT_ONCE: usize = 50;

/// Measures the round trip of `true`.
pub(super) async fn measure(
    subject: &Subject,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut server = subject.connect().await?;
    let sandbox = subject.create_ready(&mut server).await?;
    let (body, path) = (json!({ "command": "true" }), sandbox.path("/command"));
    let mut execd = sandbox.execd().await?;
    let (mut ours, mut fork) = (Samples::default(), Samples::default());
    for _ in 0..options.turns * PER_TURN {
        let start = Instant::now();
        let reply = execd.call("POST", &path, Some(&body)).await?;
        ours.add(start.elapsed());
        let complete = b"\"execution_complete\"";
        ensure!(
            reply
                .body
                .windows(complete.len())
                .any(|bytes| bytes == complete),
            "the command did not complete"
        );
        fork.add(forked()?);
    }
    report.compare(
        "command `true`, whole stream",
        &ours,
        "bash -c true by a fork here",
        &fork,
    );

    let mut connections = Vec::new();
    for _ in 0..AT_ONCE {
        connections.push(sandbox.execd().await?);
    }
    let mut all = Samples::default();
    let start = Instant::now();
    let runs = connections
        .iter_mut()
        .map(|execd| execd.call("POST", &path, Some(&body)));
    futures::future::try_join_all(runs).await?;
    all.add(start.elapsed());
    report.durations(&format!("{AT_ONCE} commands at once, all ended"), &all);
    subject.delete(&mut server, &sandbox.id).await
}

fn forked() -> Result<std::time::Duration> {
    let start = Instant::now();
    let status = Command::new("bash")
        .args(["-c", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.success(), "bash failed");
    Ok(start.elapsed())
}

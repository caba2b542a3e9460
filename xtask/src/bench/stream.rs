//! Output of commands: bytes and lines per second.

use std::{fs, time::Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use serde_json::json;

use super::{
    execd::Execd,
    footprint::{grown, resident},
    report::Report,
    stats::{Rates, megabytes},
};
use crate::repo::Repo;

/// Length of a long line, including its newline.
const LINE: usize = 64 << 10;
/// Number of long lines.
const LINES: usize = 1600;
/// Number of short lines.
const NUMBERS: u32 = 300_000;
/// Rounds with each length.
const ROUNDS: usize = 5;

/// Measures the output of long lines, then of short ones.
pub(super) async fn measure(
    repo: &Repo,
    execd: &Execd,
    prefix: &str,
    pid: Option<u32>,
    report: &mut Report,
) -> Result<()> {
    let dir = repo.reports().join("bench-execd");
    fs::create_dir_all(&dir)?;
    let file = dir.join("lines");
    let mut line = vec![b'x'; LINE - 1];
    line.push(b'\n');
    fs::write(&file, line.repeat(LINES))?;
    let before = pid.map(resident).transpose()?;

    let mut long = Rates::new("MB/s");
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let bytes = stream(execd, &format!("cat {}", file.display())).await?;
        ensure!(bytes >= LINE * LINES, "output is missing");
        long.add(megabytes(LINE * LINES), start.elapsed());
    }
    report.rates(&format!("{prefix}output in lines of 64 KiB"), &long);
    let mut short = Rates::new("lines/s");
    for _ in 0..ROUNDS {
        let start = Instant::now();
        stream(execd, &format!("seq 1 {NUMBERS}")).await?;
        short.add(f64::from(NUMBERS), start.elapsed());
    }
    report.rates(&format!("{prefix}output of seq"), &short);
    grown(pid, before, "RSS grown by output", report)
}

/// Runs a command and counts the bytes of its stream.
async fn stream(execd: &Execd, command: &str) -> Result<usize> {
    let body = serde_json::to_vec(&json!({ "command": command }))?;
    let mut connection = execd.connect().await?;
    let reply = connection
        .open(
            "POST",
            &execd.path("/command"),
            Some("application/json"),
            Full::from(body).boxed(),
        )
        .await?;
    ensure!(
        reply.status() == 200,
        "POST /command answered {}",
        reply.status()
    );
    let mut body = reply.into_body();
    let (mut bytes, mut last) = (0, bytes::Bytes::new());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.context("the stream broke")?.into_data() {
            bytes += data.len();
            last = data;
        }
    }
    let complete = b"\"execution_complete\"";
    let whole = last.windows(complete.len()).any(|bytes| bytes == complete);
    ensure!(whole, "the command did not complete");
    Ok(bytes)
}

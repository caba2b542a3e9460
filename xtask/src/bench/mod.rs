//! `bench`: what OpenSandbox costs, beside what the same work costs without it.
//!
//! Absolute figures move with the machine, so each measurement that has a floor (raw Docker, a
//! plain fork) takes turns with it in the same run, and the ratio is what counts.

mod command;
mod engine;
mod execd;
mod footprint;
mod http;
mod lifecycle;
mod load;
mod nginx;
mod reads;
mod report;
mod stats;
mod subject;

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use self::{execd::Alone, report::Report, subject::Subject};
use crate::{
    build::{self, Profile},
    host::{Installer, engine as docker},
    repo::Repo,
    step::step,
    up::ensure_base_image,
};

/// What is measured.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Bench {
    /// Create, ready, delete, reads, proxied requests, commands, footprint
    Lifecycle(Options),
}

/// How it is measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Turns of each create and delete
    #[arg(long, default_value_t = 30)]
    turns: usize,
    /// Seconds of each load
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// Runs a bench against release builds on the real engine.
pub(crate) fn bench(repo: &Repo, bench: &Bench) -> Result<ExitCode> {
    let Bench::Lifecycle(options) = bench;
    let installer = Installer::new(true);
    step("the Docker engine answers", || docker::ensure(&installer))?;
    installer.program("wrk", &["wrk"])?;
    build::all(repo, &installer, Profile::Release, &repo.dist())?;
    step("the base image is there", || {
        ensure_base_image(repo, &installer)
    })?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut report = Report::new(repo);
    let subject = Subject::start(repo, "bench-docker", "docker")?;
    let measured = runtime.block_on(async {
        footprint::at_rest(&subject, &mut report)?;
        lifecycle::measure(&subject, options, &mut report).await?;
        reads::measure(repo, &subject, options, &mut report).await?;
        in_sandbox(&subject, options, &mut report).await
    });
    let crowd = subject
        .stop()
        .and(measured)
        .and_then(|()| Subject::start(repo, "bench-sim", "sim"))?;
    let measured = runtime.block_on(reads::crowd(repo, &crowd, options, &mut report));
    crowd.stop().and(measured)?;
    runtime.block_on(alone(repo, options, &mut report))?;
    footprint::start_up(repo, &mut report)?;

    report.print();
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_vec_pretty(&report.to_json())?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Commands and memory in a sandbox.
async fn in_sandbox(subject: &Subject, options: &Options, report: &mut Report) -> Result<()> {
    let mut server = subject.connect().await?;
    let sandbox = subject.create_ready(&mut server).await?;
    footprint::of_execd(subject, &sandbox, report).await?;
    command::measure(&sandbox.execd, "in a sandbox", options, report).await?;
    subject.delete(&mut server, &sandbox.id).await
}

/// execd without Docker's network and file system around it: what of a round trip is its own.
async fn alone(repo: &Repo, options: &Options, report: &mut Report) -> Result<()> {
    let alone = Alone::start(repo)?;
    report.bytes("execd RSS at rest", footprint::resident(alone.pid())?);
    let time = Duration::from_secs(options.seconds);
    let execd = &alone.execd;
    let ping = load::alone(execd.connect().await?, "/ping", time).await?;
    report.load("execd /ping", &ping);
    command::measure(execd, "without a sandbox", options, report).await
}

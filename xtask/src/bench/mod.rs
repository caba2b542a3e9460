//! `bench`: what OpenSandbox costs, beside what the same work costs without it.
//!
//! Absolute figures move with the machine, so each measurement that has a floor (raw Docker, a
//! plain fork) takes turns with it in the same run, and the ratio is what counts.

mod command;
mod engine;
mod footprint;
mod http;
mod lifecycle;
mod load;
mod reads;
mod report;
mod stats;
mod subject;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use self::{report::Report, subject::Subject};
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
        reads::measure(&subject, options, &mut report).await?;
        command::measure(&subject, options, &mut report).await?;
        footprint::of_execd(&subject, &mut report).await
    });
    let crowd = subject
        .stop()
        .and(measured)
        .and_then(|()| Subject::start(repo, "bench-sim", "sim"))?;
    let measured = runtime.block_on(reads::crowd(&crowd, options, &mut report));
    crowd.stop().and(measured)?;
    footprint::start_up(repo, &mut report)?;

    report.print();
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_vec_pretty(&report.to_json())?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `bench`: the cost of OpenSandbox, compared with the same work without it.
//!
//! Absolute figures depend on the machine. Each measurement that has a baseline (raw Docker, a plain
//! fork) therefore alternates with it in the same run, and the ratio is what counts.

mod client;
mod command;
mod complete;
mod console;
mod daemon;
mod egress;
mod engine;
mod execd;
mod footprint;
mod http;
mod ladder;
mod lifecycle;
mod load;
mod nginx;
mod overload;
mod plain;
mod pool;
mod reads;
mod report;
mod stats;
mod stream;
mod subject;
mod terminal;
mod transfer;

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::{client::Client, lifecycle::Contender, report::Report, subject::Subject};
use crate::{
    build::{self, Profile},
    host::{Installer, engine as docker},
    repo::Repo,
    step::{notice, step},
    up::{ensure_base_image, ensure_egress_image},
};

/// Prefix of the rows of sandboxes with a network policy.
const RESTRICTED: &str = "with a network policy: ";
/// Prefix of the rows of a server with PostgreSQL, tenants, quotas, users, keys and audit.
const COMPLETE: &str = "everything on: ";

/// Benchmarks.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Bench {
    /// Create, ready, delete, reads, proxied requests, commands, footprint; the same with everything
    /// on and, if `REFERENCE_URL` names one, for another server of the API
    Lifecycle(Options),
    /// Pools: claims one by one and fifty at once, and how fast a pool fills up
    Pool(Options),
    /// Requests at a rising rate, until the server no longer keeps up
    Ladder(Options),
    /// A keyed request while clients without a key hold connections
    Overload(Options),
    /// The console: pages, tabs, live updates and terminals, also in a browser
    Console(Options),
    /// The daemon outside a sandbox: commands, streams, files, terminals, footprint
    Execd(Options),
    /// The egress sidecar: queries, changes of the policy, connections, footprint; the same, if
    /// `REFERENCE_EGRESS` names its program, for another sidecar
    Egress(Options),
}

/// Options of a benchmark.
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
    /// Measure the programs in this folder, such as another commit's `target/dist`, instead of
    /// building this checkout
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

impl Bench {
    fn options(&self) -> &Options {
        match self {
            Self::Lifecycle(options)
            | Self::Pool(options)
            | Self::Ladder(options)
            | Self::Overload(options)
            | Self::Console(options)
            | Self::Execd(options)
            | Self::Egress(options) => options,
        }
    }
}

/// Runs a benchmark against release builds.
pub(crate) fn bench(repo: &Repo, bench: &Bench) -> Result<ExitCode> {
    // One thread: waking another for each reply would add to the server's time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let options = bench.options();
    let installer = Installer::new(true);
    let repo = &match &options.programs {
        Some(programs) => repo.with_dist(programs),
        None => {
            match bench {
                Bench::Execd(_) => build::daemon(repo, Profile::Release, &repo.dist())?,
                Bench::Egress(_) => build::sidecar(repo, Profile::Release, &repo.dist())?,
                _ => build::all(repo, &installer, Profile::Release, &repo.dist())?,
            }
            repo.clone()
        }
    };
    let measured = match bench {
        Bench::Egress(_) => "egress",
        _ => "execd",
    };
    let mut report = Report::new(repo, measured);
    match bench {
        Bench::Lifecycle(_) => lifecycle(repo, &installer, options, &runtime, &mut report)?,
        Bench::Pool(_) => pool(repo, &installer, options, &runtime, &mut report)?,
        Bench::Ladder(_) => {
            runtime.block_on(ladder::measure(repo, &installer, options, &mut report))?;
        }
        Bench::Overload(_) => runtime.block_on(overload::measure(repo, options, &mut report))?,
        Bench::Console(_) => {
            runtime.block_on(console::measure(repo, &installer, options, &mut report))?;
        }
        Bench::Execd(_) => {
            runtime.block_on(daemon::measure(repo, options, &mut report))?;
            footprint::on_disk(repo, "execd", &mut report)?;
        }
        Bench::Egress(_) => {
            runtime.block_on(egress::measure(repo, &installer, options, &mut report))?;
        }
    }
    report.print();
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_vec_pretty(&report.to_json())?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lifecycle(
    repo: &Repo,
    installer: &Installer,
    options: &Options,
    runtime: &Runtime,
    report: &mut Report,
) -> Result<()> {
    step("the Docker engine answers", || docker::ensure(installer))?;
    installer.program("wrk", &["wrk"])?;
    step("the base image is there", || {
        ensure_base_image(repo, installer)
    })?;

    let reference = Client::reference()?;
    if reference.is_none() {
        notice("not measured: another server of the API; set REFERENCE_URL and REFERENCE_API_KEY");
    }
    let has_sidecar = repo.dist().join("egress").exists();
    if has_sidecar {
        step("the image of the egress sidecar is there", || {
            ensure_egress_image(repo, installer, &repo.dist())
        })?;
    } else {
        notice("not measured: sandboxes with a network policy; these programs have no sidecar");
    }
    let subject = Subject::start(repo, "bench-docker", "docker")?;
    let restricted = has_sidecar.then(|| subject.client().with_policy(network_policy()));
    let measured = runtime.block_on(async {
        footprint::at_rest(&subject, report)?;
        let complete = complete_subject(repo, installer, "bench-complete", "docker").await?;
        let mut servers = vec![Contender::new("", subject.client())];
        let with_all = complete.as_ref().map(Subject::client);
        servers.extend(with_all.map(|client| Contender::new(COMPLETE, client)));
        servers.extend(
            reference
                .as_ref()
                .map(|client| Contender::new("reference: ", client)),
        );
        let mut creating = servers.clone();
        creating.extend(
            restricted
                .as_ref()
                .map(|client| Contender::new(RESTRICTED, client)),
        );
        lifecycle::measure(&creating, options, report).await?;
        reads::measure(repo, &servers, options, report).await?;
        complete.map_or(Ok(()), Subject::stop)?;
        in_sandbox(&subject, options, report).await
    });
    subject.stop().and(measured)?;

    let crowd = Subject::start(repo, "bench-sim", "sim")?;
    let measured = runtime.block_on(async {
        reads::crowd(repo, &crowd, options, report).await?;
        let complete = complete_subject(repo, installer, "bench-sim-complete", "sim").await?;
        let Some(complete) = complete else {
            return Ok(());
        };
        complete::measure(crowd.client(), complete.client(), options, report).await?;
        complete.stop()
    });
    crowd.stop().and(measured)?;
    footprint::start_up(repo, report)
}

fn pool(
    repo: &Repo,
    installer: &Installer,
    options: &Options,
    runtime: &Runtime,
    report: &mut Report,
) -> Result<()> {
    step("the Docker engine answers", || docker::ensure(installer))?;
    step("the base image is there", || {
        ensure_base_image(repo, installer)
    })?;
    let subject = Subject::start(repo, "bench-pool", "docker")?;
    let measured = runtime.block_on(pool::measure(subject.client(), options, report));
    subject.stop().and(measured)
}

/// A policy of one rule.
fn network_policy() -> Value {
    json!({
        "defaultAction": "deny",
        "egress": [{ "action": "allow", "target": "*.example.org" }],
    })
}

/// The server with everything on, unless it is an older one that has not got everything.
async fn complete_subject(
    repo: &Repo,
    installer: &Installer,
    name: &str,
    runtime: &str,
) -> Result<Option<Subject>> {
    let help = Command::new(repo.dist().join("opensandbox-server"))
        .args(["key", "--help"])
        .output()?;
    if !help.status.success() {
        notice("not measured: everything on; this server has no keys of its own");
        return Ok(None);
    }
    let subject = Subject::start_complete(repo, installer, name, runtime).await?;
    Ok(Some(subject))
}

/// Commands and memory in a sandbox.
async fn in_sandbox(subject: &Subject, options: &Options, report: &mut Report) -> Result<()> {
    let client = subject.client();
    let mut server = client.connect().await?;
    let sandbox = client.create_ready(&mut server).await?;
    footprint::of_execd(subject, &sandbox, report).await?;
    command::measure(&sandbox.execd, "in a sandbox: ", options, report).await?;
    client.delete(&mut server, &sandbox.id).await
}

//! Create and delete, sequentially and twenty at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::{
    Options,
    client::Client,
    engine::{Engine, Template, remove},
    report::Report,
    stats::Samples,
};

/// Concurrent creates in the parallel part.
const PARALLEL: usize = 20;
/// Rounds of the parallel part.
const ROUNDS: usize = 3;

/// A server that is measured in turns with others.
#[derive(Clone, Copy)]
pub(super) struct Contender<'a> {
    /// Prefix of the names of its rows.
    pub(super) prefix: &'static str,
    /// Where it is.
    pub(super) client: &'a Client,
}

impl<'a> Contender<'a> {
    /// The server of a client.
    pub(super) const fn new(prefix: &'static str, client: &'a Client) -> Self {
        Self { prefix, client }
    }
}

/// What the turns of one server took.
#[derive(Default)]
struct Turns {
    created: Samples,
    answered: Samples,
    gone: Samples,
}

/// Measures create→ready and delete against raw Docker, each server in turn; twenty creates at once
/// for the first one.
pub(super) async fn measure(
    servers: &[Contender<'_>],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let engine = Engine::local();
    let first = servers.first().context("no server is measured")?;
    let template = warm_up(first.client, &engine).await?;
    for other in &servers[1..] {
        warm_up(other.client, &engine).await?;
    }
    one_by_one(servers, &engine, &template, options.turns, report).await?;
    in_parallel(first.client, &engine, &template, report).await
}

/// Creates and deletes a sandbox, because the first one also creates the volume and the network.
async fn warm_up(client: &Client, engine: &Engine) -> Result<Template> {
    let mut server = client.connect().await?;
    let first = client.create_ready(&mut server).await?;
    let template = engine.template(&first.id).await?;
    delete_and_wait(client, engine, &first.id).await?;
    Ok(template)
}

async fn one_by_one(
    servers: &[Contender<'_>],
    engine: &Engine,
    template: &Template,
    turns: usize,
    report: &mut Report,
) -> Result<()> {
    let mut raw = engine.connect().await?;
    let (mut raw_started, mut raw_removed) = (Samples::default(), Samples::default());
    let mut measured: Vec<Turns> = servers.iter().map(|_| Turns::default()).collect();
    for turn in 0..turns {
        let start = Instant::now();
        let container = template.start(&mut raw).await?;
        raw_started.add(start.elapsed());

        for (server, measured) in servers.iter().zip(&mut measured) {
            let mut connection = server.client.connect().await?;
            let start = Instant::now();
            let sandbox = server.client.create_ready(&mut connection).await?;
            measured.created.add(start.elapsed());
            let (answer, whole) = delete_and_wait(server.client, engine, &sandbox.id).await?;
            measured.answered.add(answer);
            measured.gone.add(whole);
        }

        let start = Instant::now();
        remove(&mut raw, &container).await?;
        raw_removed.add(start.elapsed());
        eprintln!("    turn {} of {turns}", turn + 1);
    }
    for (Contender { prefix, .. }, turns) in servers.iter().zip(&measured) {
        report.compare(
            &format!("{prefix}create → execd answers"),
            turns.created.summary(),
            "raw create + start",
            raw_started.summary(),
        );
        report.durations(&format!("{prefix}delete: answered"), &turns.answered);
        report.compare(
            &format!("{prefix}delete: gone"),
            turns.gone.summary(),
            "raw rm -f",
            raw_removed.summary(),
        );
    }
    Ok(())
}

/// Measures the time until DELETE is answered, and until the container is removed.
async fn delete_and_wait(
    client: &Client,
    engine: &Engine,
    id: &str,
) -> Result<(Duration, Duration)> {
    let mut server = client.connect().await?;
    let container = engine.container_of(id).await?;
    let start = Instant::now();
    let deleted = async {
        client.delete(&mut server, id).await?;
        Ok::<_, anyhow::Error>(start.elapsed())
    };
    let removed = async {
        engine.removed(&container).await?;
        Ok::<_, anyhow::Error>(start.elapsed())
    };
    tokio::try_join!(deleted, removed).context("delete")
}

async fn in_parallel(
    client: &Client,
    engine: &Engine,
    template: &Template,
    report: &mut Report,
) -> Result<()> {
    let (mut ours, mut raw) = (Samples::default(), Samples::default());
    for round in 0..ROUNDS {
        let mut servers = Vec::new();
        for _ in 0..PARALLEL {
            servers.push(client.connect().await?);
        }
        let start = Instant::now();
        let made = servers.iter_mut().map(|server| client.create_ready(server));
        let sandboxes = futures::future::try_join_all(made).await?;
        ours.add(start.elapsed());
        for sandbox in &sandboxes {
            delete_and_wait(client, engine, &sandbox.id).await?;
        }

        let requests = template.with_fresh_ports::<PARALLEL>()?;
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for request in requests {
            let mut engine = engine.connect().await?;
            tasks.spawn(async move { request.start(&mut engine).await });
        }
        let mut containers = Vec::new();
        while let Some(started) = tasks.join_next().await {
            containers.push(started??);
        }
        raw.add(start.elapsed());
        let mut connection = engine.connect().await?;
        for container in &containers {
            remove(&mut connection, container).await?;
        }
        eprintln!("    round {} of {ROUNDS}", round + 1);
    }
    let name = format!("{PARALLEL} creates at once, all answer");
    report.compare(
        &name,
        ours.summary(),
        &format!("{PARALLEL} raw create + start at once"),
        raw.summary(),
    );
    Ok(())
}

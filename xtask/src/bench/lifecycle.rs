//! Create and delete, sequentially and twenty at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::{
    Options,
    engine::{Engine, Template, remove},
    report::Report,
    stats::Samples,
    subject::Subject,
};
/// Concurrent creates in the parallel part.
const PARALLEL: usize = 20;
/// Rounds of the parallel part.
const ROUNDS: usize = 3;

/// Measures create→ready and delete against raw Docker.
pub(super) async fn measure(
    subject: &Subject,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let engine = Engine::local();
    let template = warm_up(subject, &engine).await?;
    one_by_one(subject, &engine, &template, options.turns, report).await?;
    in_parallel(subject, &engine, &template, report).await
}

/// Creates and deletes a sandbox, because the first one also creates the volume and the network.
async fn warm_up(subject: &Subject, engine: &Engine) -> Result<Template> {
    let mut server = subject.connect().await?;
    let first = subject.create_ready(&mut server).await?;
    let template = engine.template(&first.id).await?;
    delete_and_wait(subject, engine, &first.id).await?;
    Ok(template)
}

async fn one_by_one(
    subject: &Subject,
    engine: &Engine,
    template: &Template,
    turns: usize,
    report: &mut Report,
) -> Result<()> {
    let (mut server, mut raw) = (subject.connect().await?, engine.connect().await?);
    let mut samples: [Samples; 5] = Default::default();
    let [created, raw_started, answered, gone, raw_removed] = &mut samples;
    for turn in 0..turns {
        let start = Instant::now();
        let sandbox = subject.create_ready(&mut server).await?;
        created.add(start.elapsed());

        let start = Instant::now();
        let container = template.start(&mut raw).await?;
        raw_started.add(start.elapsed());

        let (answer, whole) = delete_and_wait(subject, engine, &sandbox.id).await?;
        answered.add(answer);
        gone.add(whole);

        let start = Instant::now();
        remove(&mut raw, &container).await?;
        raw_removed.add(start.elapsed());
        eprintln!("    turn {} of {turns}", turn + 1);
    }
    report.compare(
        "create → execd answers",
        created.summary(),
        "raw create + start",
        raw_started.summary(),
    );
    report.durations("delete: answered", answered);
    report.compare(
        "delete: gone",
        gone.summary(),
        "raw rm -f",
        raw_removed.summary(),
    );
    Ok(())
}

/// Measures the time until DELETE is answered, and until the container is removed.
async fn delete_and_wait(
    subject: &Subject,
    engine: &Engine,
    id: &str,
) -> Result<(Duration, Duration)> {
    let mut server = subject.connect().await?;
    let container = engine.container_of(id).await?;
    let start = Instant::now();
    let deleted = async {
        subject.delete(&mut server, id).await?;
        Ok::<_, anyhow::Error>(start.elapsed())
    };
    let removed = async {
        engine.removed(&container).await?;
        Ok::<_, anyhow::Error>(start.elapsed())
    };
    tokio::try_join!(deleted, removed).context("delete")
}

async fn in_parallel(
    subject: &Subject,
    engine: &Engine,
    template: &Template,
    report: &mut Report,
) -> Result<()> {
    let (mut ours, mut raw) = (Samples::default(), Samples::default());
    for round in 0..ROUNDS {
        let mut servers = Vec::new();
        for _ in 0..PARALLEL {
            servers.push(subject.connect().await?);
        }
        let start = Instant::now();
        let made = servers
            .iter_mut()
            .map(|server| subject.create_ready(server));
        let sandboxes = futures::future::try_join_all(made).await?;
        ours.add(start.elapsed());
        for sandbox in &sandboxes {
            delete_and_wait(subject, engine, &sandbox.id).await?;
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

//! Pools: how long a claim takes, one by one and many at once, and how fast a pool fills up.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    Options,
    client::Client,
    engine::{Engine, Template, remove},
    http::Connection,
    report::Report,
    stats::{Rates, Samples},
};
use crate::up::BASE_IMAGE;

/// Name of the pool.
const POOL: &str = "bench";
/// Sandboxes that wait, and creates at once.
const WAITING: usize = 50;
/// Containers that the baseline starts at once, as the server does.
const STARTS: usize = 4;
/// Longest time until the pool is full.
const FULL: Duration = Duration::from_secs(600);
/// The number of sandboxes that wait, for rates.
const WAITING_RATE: f64 = 50.0;
/// Pause between two looks at the pool.
const PAUSE: Duration = Duration::from_millis(20);

/// Measures claims and the refill, against raw Docker in the same run.
pub(super) async fn measure(client: &Client, options: &Options, report: &mut Report) -> Result<()> {
    let engine = Engine::local();
    let mut server = client.connect().await?;
    // The first sandbox also creates the volume and the network.
    let first = client.create_ready(&mut server).await?;
    let template = engine.template(&first.id).await?;
    client.delete(&mut server, &first.id).await?;

    let (mut refill, mut raw) = (Rates::new("containers/s"), Rates::new("containers/s"));
    let start = Instant::now();
    server.call("POST", "/v1/pools", Some(&body())).await?;
    until_full(&mut server).await?;
    refill.add(WAITING_RATE, start.elapsed());
    start_raw(&engine, &template, &mut raw).await?;
    report.compare_rates(
        "a pool fills up",
        &refill,
        "raw create + start, four at once",
        &raw,
    );

    let pooled = client.with_pool(POOL);
    one_by_one(
        &pooled,
        &mut server,
        &engine,
        &template,
        options.turns,
        report,
    )
    .await?;
    at_once(&pooled, &mut server, report).await?;
    server
        .call("DELETE", &format!("/v1/pools/{POOL}"), None)
        .await?;
    Ok(())
}

fn body() -> Value {
    json!({
        "name": POOL,
        "template": {"spec": {"containers": [{
            "image": BASE_IMAGE,
            "resources": {"limits": {"cpu": "1", "memory": "512Mi"}},
        }]}},
        "capacitySpec": {
            "bufferMin": WAITING, "bufferMax": WAITING, "poolMin": 0, "poolMax": 3 * WAITING,
        },
    })
}

async fn until_full(server: &mut Connection) -> Result<()> {
    let deadline = Instant::now() + FULL;
    loop {
        let path = format!("/v1/pools/{POOL}");
        let pool: Value = server.call("GET", &path, None).await?.json()?;
        if pool["status"]["available"] == WAITING {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the pool is not full: {pool}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Starts as many containers as the pool has, without a server.
async fn start_raw(engine: &Engine, template: &Template, raw: &mut Rates) -> Result<()> {
    let requests = template.with_fresh_ports::<WAITING>()?;
    let mut requests = requests.into_iter();
    let mut started = Vec::with_capacity(WAITING);
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    loop {
        while tasks.len() < STARTS
            && let Some(request) = requests.next()
        {
            let mut connection = engine.connect().await?;
            tasks.spawn(async move { request.start(&mut connection).await });
        }
        match tasks.join_next().await {
            Some(container) => started.push(container??),
            None => break,
        }
    }
    raw.add(WAITING_RATE, start.elapsed());
    let mut connection = engine.connect().await?;
    for container in &started {
        remove(&mut connection, container).await?;
    }
    Ok(())
}

async fn one_by_one(
    pooled: &Client,
    server: &mut Connection,
    engine: &Engine,
    template: &Template,
    turns: usize,
    report: &mut Report,
) -> Result<()> {
    let (mut claims, mut raw) = (Samples::default(), Samples::default());
    let mut connection = engine.connect().await?;
    for turn in 0..turns {
        until_full(server).await?;
        let start = Instant::now();
        let container = template.start(&mut connection).await?;
        raw.add(start.elapsed());
        remove(&mut connection, &container).await?;
        let start = Instant::now();
        let sandbox = pooled.create_ready(server).await?;
        claims.add(start.elapsed());
        pooled.delete(server, &sandbox.id).await?;
        eprintln!("    turn {} of {turns}", turn + 1);
    }
    report.compare(
        "claim → execd answers",
        claims.summary(),
        "raw create + start",
        raw.summary(),
    );
    Ok(())
}

async fn at_once(pooled: &Client, server: &mut Connection, report: &mut Report) -> Result<()> {
    until_full(server).await?;
    let mut connections = Vec::with_capacity(WAITING);
    for _ in 0..WAITING {
        connections.push(pooled.connect().await?);
    }
    let start = Instant::now();
    let claims = connections.iter_mut().map(|connection| async move {
        let sandbox = pooled.create_ready(connection).await?;
        Ok::<_, anyhow::Error>((sandbox, start.elapsed()))
    });
    let claimed = futures::future::try_join_all(claims).await;
    let claimed = claimed.context("claims at once")?;
    let mut samples = Samples::default();
    for (sandbox, took) in &claimed {
        samples.add(*took);
        pooled.delete(server, &sandbox.id).await?;
    }
    report.durations(&format!("{WAITING} claims at once, each answers"), &samples);
    Ok(())
}

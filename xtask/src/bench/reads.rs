//! Reads and proxied requests: latency on one connection, throughput on sixteen.

use std::time::Duration;

use anyhow::Result;

use super::{
    Options,
    http::Connection,
    load::{self, CONNECTIONS},
    report::Report,
    subject::Subject,
};
use crate::step::notice;

/// Sandboxes on Docker while reads are measured.
const FEW: usize = 10;
/// Sandboxes of the simulated runtime while the same reads are measured.
const MANY: usize = 1000;

/// Reads with a few sandboxes, and requests through the server.
pub(super) async fn measure(
    subject: &Subject,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut server = subject.connect().await?;
    let mut sandboxes = Vec::new();
    for _ in 0..FEW {
        sandboxes.push(subject.create_ready(&mut server).await?);
    }
    let time = Duration::from_secs(options.seconds);
    let one = &sandboxes[0];
    let get = format!("/v1/sandboxes/{}", one.id);
    run(subject, "GET one sandbox", &get, time, report).await?;
    run(
        subject,
        &format!("list {FEW} sandboxes"),
        "/v1/sandboxes?pageSize=50",
        time,
        report,
    )
    .await?;

    let direct = load::get(vec![one.execd().await?], &one.path("/ping"), time).await?;
    report.load("execd /ping, direct", &direct);
    let proxied = load::get(vec![subject.connect().await?], &one.proxied("/ping"), time).await?;
    report.compare(
        "execd /ping, through the server",
        &proxied.latencies,
        "direct",
        &direct.latencies,
    );
    let busy = load::get(connections(subject).await?, &one.proxied("/ping"), time).await?;
    report.load(&format!("the same on {CONNECTIONS} connections"), &busy);

    for sandbox in &sandboxes {
        subject.delete(&mut server, &sandbox.id).await?;
    }
    Ok(())
}

/// The same reads with many simulated sandboxes, and what the server then weighs.
pub(super) async fn crowd(subject: &Subject, options: &Options, report: &mut Report) -> Result<()> {
    let mut server = subject.connect().await?;
    let mut one = String::new();
    for _ in 0..MANY {
        one = subject.create(&mut server).await?;
    }
    let time = Duration::from_secs(options.seconds);
    let with = format!("with {MANY} sandboxes");
    run(
        subject,
        &format!("GET one, {with}"),
        &format!("/v1/sandboxes/{one}"),
        time,
        report,
    )
    .await?;
    run(
        subject,
        &format!("list a page of 50, {with}"),
        "/v1/sandboxes?pageSize=50",
        time,
        report,
    )
    .await?;
    match super::footprint::resident(subject.pid()) {
        Ok(bytes) => report.bytes(&format!("server RSS {with}"), bytes),
        Err(error) => notice(&format!("not measured: server RSS {with}: {error:#}")),
    }
    Ok(())
}

async fn run(
    subject: &Subject,
    name: &str,
    path: &str,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    let alone = load::get(vec![subject.connect().await?], path, time).await?;
    report.load(name, &alone);
    let busy = load::get(connections(subject).await?, path, time).await?;
    report.load(&format!("{name}, {CONNECTIONS} connections"), &busy);
    Ok(())
}

async fn connections(subject: &Subject) -> Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        connections.push(subject.connect().await?);
    }
    Ok(connections)
}

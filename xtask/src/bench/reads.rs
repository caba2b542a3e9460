//! Reads and proxied requests: latency on one connection, throughput on sixteen.

use std::time::Duration;

use anyhow::Result;

use super::{
    Options,
    client::{Client, Sandbox},
    lifecycle::Contender,
    load::{self, CONNECTIONS},
    nginx::Nginx,
    report::Report,
    subject::Subject,
};
use crate::{repo::Repo, step::notice};

/// Sandboxes on Docker while reads are measured.
const FEW: usize = 10;
/// Sandboxes of the simulated runtime while the same reads are measured.
const MANY: usize = 1000;

/// Measures reads with a few sandboxes on each server, and requests through the first.
pub(super) async fn measure(
    repo: &Repo,
    servers: &[Contender<'_>],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let time = Duration::from_secs(options.seconds);
    for (index, Contender { prefix, client }) in servers.iter().enumerate() {
        let mut server = client.connect().await?;
        let mut sandboxes = Vec::new();
        for _ in 0..FEW {
            sandboxes.push(client.create_ready(&mut server).await?);
        }
        let one = &sandboxes[0];
        let (name, path) = (
            format!("{prefix}GET one sandbox"),
            format!("/v1/sandboxes/{}", one.id),
        );
        run(repo, client, &name, &path, time, report).await?;
        let (name, path) = (
            format!("{prefix}list {FEW} sandboxes"),
            "/v1/sandboxes?pageSize=50",
        );
        run(repo, client, &name, path, time, report).await?;
        if index == 0 {
            proxied(repo, client, one, time, report).await?;
        }
        for sandbox in &sandboxes {
            client.delete(&mut server, &sandbox.id).await?;
        }
    }
    Ok(())
}

/// Measures `/ping` of a sandbox's execd: directly, through the server, and through nginx.
async fn proxied(
    repo: &Repo,
    client: &Client,
    sandbox: &Sandbox,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    let execd = &sandbox.execd;
    let direct = load::alone(execd.connect().await?, &execd.path("/ping"), time).await?;
    report.load("/ping of a sandbox, direct", &direct);
    let path = sandbox.proxied("/ping");
    let through = load::alone(client.connect().await?, &path, time).await?;
    report.compare(
        "/ping through the server",
        through.latency,
        "direct",
        direct.latency,
    );
    let through = load::crowded(repo, &client.target(&path), time)?;
    let name = format!("/ping through the server, {CONNECTIONS} connections");
    if !Nginx::present() {
        notice("not measured: nginx as a proxy; install nginx for it");
        report.load(&name, &through);
        return Ok(());
    }
    let nginx = Nginx::proxy(repo, execd.address(), &execd.path("/ping"))?;
    let target = execd.target(&nginx.address, "/ping");
    let floor = load::crowded(repo, &target, time)?;
    report.compare_load(&name, &through, "nginx", &floor);
    Ok(())
}

/// Measures the same reads, and the server's memory, with many simulated sandboxes.
pub(super) async fn crowd(
    repo: &Repo,
    subject: &Subject,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let client = subject.client();
    let mut server = client.connect().await?;
    let mut one = String::new();
    for _ in 0..MANY {
        one = client.create(&mut server).await?;
    }
    let time = Duration::from_secs(options.seconds);
    let with = format!("with {MANY} sandboxes");
    let (name, path) = (format!("GET one, {with}"), format!("/v1/sandboxes/{one}"));
    run(repo, client, &name, &path, time, report).await?;
    let (name, path) = (
        format!("list a page of 50, {with}"),
        "/v1/sandboxes?pageSize=50",
    );
    run(repo, client, &name, path, time, report).await?;
    match super::footprint::resident(subject.pid()) {
        Ok(bytes) => report.bytes(&format!("server RSS {with}"), bytes),
        Err(error) => notice(&format!("not measured: server RSS {with}: {error:#}")),
    }
    Ok(())
}

async fn run(
    repo: &Repo,
    client: &Client,
    name: &str,
    path: &str,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    let alone = load::alone(client.connect().await?, path, time).await?;
    report.load(name, &alone);
    let busy = load::crowded(repo, &client.target(path), time)?;
    report.load(&format!("{name}, {CONNECTIONS} connections"), &busy);
    Ok(())
}

//! `bench execd`: cost of the daemon outside a sandbox, compared with nginx, plain forks and, if
//! `REFERENCE_EXECD_URL` names one, another daemon with the same API.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{
    Options, command,
    execd::{Execd, StandaloneExecd},
    footprint, load,
    report::Report,
    stats::Samples,
    stream, terminal, transfer,
};
use crate::{process::find_program, repo::Repo, step::notice};

/// Variable with the address of another daemon to measure, as `http://host:port`.
const REFERENCE: &str = "REFERENCE_EXECD_URL";
/// Number of measured starts.
const STARTS: usize = 20;

/// Measures our daemon, then the reference if one is named.
pub(super) async fn measure(repo: &Repo, options: &Options, report: &mut Report) -> Result<()> {
    let mut starts = Samples::default();
    for _ in 0..STARTS {
        starts.add(StandaloneExecd::start_timed(repo)?.1);
    }
    report.durations("exec to first answer", &starts);
    let alone = StandaloneExecd::start(repo)?;
    report.bytes("RSS at rest", footprint::resident(alone.pid())?);
    one(repo, &alone.execd, "", Some(alone.pid()), options, report).await?;
    match std::env::var(REFERENCE) {
        Ok(url) => {
            let other =
                Execd::at(&url).with_context(|| format!("{REFERENCE} is not an address"))?;
            one(repo, &other, "reference: ", None, options, report).await
        }
        Err(_) => {
            notice(&format!(
                "not measured: a reference daemon; set {REFERENCE}"
            ));
            Ok(())
        }
    }
}

/// Measures one daemon. `prefix` is the prefix of the row names.
async fn one(
    repo: &Repo,
    execd: &Execd,
    prefix: &str,
    pid: Option<u32>,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let time = Duration::from_secs(options.seconds);
    for (name, route) in [
        ("GET /ping", "/ping"),
        ("GET /files/info", "/files/info?path=%2Fetc%2Fpasswd"),
    ] {
        let ours = load::alone(execd.connect().await?, &execd.path(route), time).await?;
        report.load(&format!("{prefix}{name}"), &ours);
        if find_program("wrk").is_some() {
            let target = execd.target(execd.address(), route);
            let less = load::by_wrk(repo, &target, 1, time)?;
            report.load(&format!("{prefix}{name}, by wrk"), &less);
        }
    }
    command::measure(execd, prefix, options, report).await?;
    stream::measure(repo, execd, prefix, pid, report).await?;
    transfer::measure(repo, execd, prefix, pid, report).await?;
    terminal::measure(execd, prefix, options, report).await
}

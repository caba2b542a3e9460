//! `bench execd`: what the daemon costs without a sandbox around it, beside nginx, plain forks and
//! any other daemon of the same API that `REFERENCE_EXECD_URL` names.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{
    Options, command,
    execd::{Alone, Execd},
    footprint, load,
    report::Report,
    stats::Samples,
    stream, terminal, transfer,
};
use crate::{process::find_program, repo::Repo, step::notice};

/// Names another daemon to measure, as `http://host:port`.
const REFERENCE: &str = "REFERENCE_EXECD_URL";
/// Starts that are measured.
const STARTS: usize = 20;

/// Measures ours, then the other one if there is one.
pub(super) async fn measure(repo: &Repo, options: &Options, report: &mut Report) -> Result<()> {
    let mut starts = Samples::default();
    for _ in 0..STARTS {
        starts.add(Alone::start_timed(repo)?.1);
    }
    report.durations("exec to first answer", &starts);
    let alone = Alone::start(repo)?;
    report.bytes("RSS at rest", footprint::resident(alone.pid())?);
    one(repo, &alone.execd, "", Some(alone.pid()), options, report).await?;
    match std::env::var(REFERENCE) {
        Ok(url) => {
            let other = Execd::at(&url).with_context(|| format!("{REFERENCE} is no address"))?;
            one(repo, &other, "reference: ", None, options, report).await
        }
        Err(_) => {
            notice(&format!(
                "not measured: another daemon; {REFERENCE} names none"
            ));
            Ok(())
        }
    }
}

/// All that can be asked of a daemon. `whose` begins every row.
async fn one(
    repo: &Repo,
    execd: &Execd,
    whose: &str,
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
        report.load(&format!("{whose}{name}"), &ours);
        if find_program("wrk").is_some() {
            let target = execd.target(execd.address(), route);
            let less = load::by_wrk(repo, &target, 1, time)?;
            report.load(&format!("{whose}{name}, by wrk"), &less);
        }
    }
    command::measure(execd, whose, options, report).await?;
    stream::measure(repo, execd, whose, pid, report).await?;
    transfer::measure(repo, execd, whose, pid, report).await?;
    terminal::measure(execd, whose, options, report).await
}

/// Tells how much memory a daemon gained since it had `before` bytes.
pub(super) fn grown(
    pid: Option<u32>,
    before: Option<u64>,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    if let (Some(pid), Some(before)) = (pid, before) {
        let now = footprint::resident(pid)?;
        report.bytes(name, now.saturating_sub(before));
    }
    Ok(())
}

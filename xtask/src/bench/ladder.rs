//! Requests at a rising rate. They start at fixed times whether or not earlier ones were answered,
//! and a latency counts from the time at which the request was due; so a server that falls behind
//! shows (an *open* load). The generator shares the machine with the server.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::{JoinSet, LocalSet};

use super::{
    COMPLETE, Options,
    client::Client,
    footprint::processor_time,
    http::Connection,
    report::Report,
    stats::{Samples, Summary},
    subject::Subject,
};
use crate::{host::Installer, repo::Repo};

/// Connections of the load: as many requests are under way at most.
const CONNECTIONS: usize = 64;
/// Sandboxes on the server.
const SANDBOXES: usize = 1000;
/// Factor between two rates, and between the last two.
const FACTORS: [f64; 2] = [2.0, 1.25];
/// Rates after which the ladder ends without a failure.
const MOST_STEPS: usize = 40;
/// A server keeps up while the slowest hundredth of its answers take no longer than this,
const SLOW: Duration = Duration::from_millis(50);
/// and while it answers this share of the requests in time.
const ANSWERED: f64 = 0.95;

/// What is requested.
#[derive(Clone, Copy)]
enum Mix {
    /// Of 50 requests 45 read one sandbox, 4 list a page, one renews.
    Reads,
    /// Each creates a sandbox; its removal follows and does not count.
    Creates,
}

impl Mix {
    const fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads and renewals",
            Self::Creates => "creates",
        }
    }

    /// First rate, in requests a second.
    const fn first_rate(self) -> f64 {
        match self {
            Self::Reads => 1000.0,
            Self::Creates => 50.0,
        }
    }
}

/// Result of one rate.
struct Step {
    rate: f64,
    samples: Samples,
    failed: usize,
    /// From the first request's time to the last answer.
    took: Duration,
    /// Shares of a processor that the server and the generator used.
    used: [f64; 2],
}

impl Step {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a count of requests is far below 2^52"
    )]
    fn answered_rate(&self) -> f64 {
        self.samples.len() as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn keeps_up(&self, summary: &Summary) -> bool {
        self.failed == 0 && summary.p99 <= SLOW && self.answered_rate() >= ANSWERED * self.rate
    }
}

/// Climbs for both mixes, on a server with the defaults and on one with everything on.
pub(super) async fn measure(
    repo: &Repo,
    installer: &Installer,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let plain = Subject::start(repo, "bench-ladder", "sim")?;
    let measured = both(&plain, "", options, report).await;
    plain.stop().and(measured)?;
    let name = "bench-ladder-complete";
    let complete = Subject::start_complete(repo, installer, name, "sim").await?;
    let measured = both(&complete, COMPLETE, options, report).await;
    complete.stop().and(measured)
}

async fn both(
    subject: &Subject,
    prefix: &str,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let client = subject.client();
    let mut connection = client.connect().await?;
    let mut ids = Vec::with_capacity(SANDBOXES);
    for _ in 0..SANDBOXES {
        ids.push(client.create(&mut connection).await?);
    }
    let ids: Rc<[String]> = ids.into();
    for mix in [Mix::Reads, Mix::Creates] {
        climb(subject, &ids, mix, prefix, options, report).await?;
        // The overload must leave nothing behind.
        let answer = connection.send("GET", "/v1/sandboxes", None).await?;
        ensure!(
            answer.status == 200,
            "after the load a list answers {}",
            answer.status
        );
    }
    Ok(())
}

/// Doubles the rate until the server no longer keeps up, then goes on from the last good rate in
/// smaller steps.
async fn climb(
    subject: &Subject,
    ids: &Rc<[String]>,
    mix: Mix,
    prefix: &str,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let time = Duration::from_secs(options.seconds);
    let mut steps = 0;
    let mut good = mix.first_rate() / FACTORS[0];
    for factor in FACTORS {
        loop {
            let step = at_rate(subject, ids, mix, good * factor, time).await?;
            let summary = step.samples.summary();
            let keeps_up = step.keeps_up(&summary);
            show(prefix, mix, &step, summary, keeps_up, report);
            steps += 1;
            ensure!(steps < MOST_STEPS, "the rate rises without an end");
            if !keeps_up {
                break;
            }
            good = step.rate;
        }
    }
    Ok(())
}

fn show(
    prefix: &str,
    mix: Mix,
    step: &Step,
    summary: Summary,
    keeps_up: bool,
    report: &mut Report,
) {
    let name = format!("{prefix}{}: {:.0}/s", mix.name(), step.rate);
    eprintln!("    {name}");
    let [server, generator] = step.used.map(|share| share * 100.0);
    let note = format!(
        "{} answered {:.0}/s, {} failed; processor: server {server:.0} %, generator {generator:.0} %",
        if keeps_up { "keeps up:" } else { "fails:" },
        step.answered_rate(),
        step.failed,
    );
    report.latencies(&name, summary, &note);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of requests is positive and far below 2^52"
)]
async fn at_rate(
    subject: &Subject,
    ids: &Rc<[String]>,
    mix: Mix,
    rate: f64,
    time: Duration,
) -> Result<Step> {
    let count = (rate * time.as_secs_f64()) as usize;
    let busy = || Ok::<_, anyhow::Error>([processor_time(subject.pid())?, own_time()]);
    let before = busy()?;
    let start = Instant::now();
    let next = Rc::new(Cell::new(0));
    let set = LocalSet::new();
    let results = set
        .run_until(async {
            let mut workers = JoinSet::new();
            for _ in 0..CONNECTIONS {
                workers.spawn_local(work(Worker {
                    client: subject.client().clone(),
                    ids: Rc::clone(ids),
                    next: Rc::clone(&next),
                    mix,
                    start,
                    interval: Duration::from_secs_f64(1.0 / rate),
                    count,
                }));
            }
            workers.join_all().await
        })
        .await;
    let took = start.elapsed();
    let after = busy()?;
    let mut step = Step {
        rate,
        samples: Samples::default(),
        failed: 0,
        took,
        used: [0, 1].map(|who| {
            let used = after[who].saturating_sub(before[who]);
            used.as_secs_f64() / took.as_secs_f64()
        }),
    };
    for (samples, failed) in results {
        step.samples.append(samples);
        step.failed += failed;
    }
    Ok(step)
}

/// One connection's part of a step.
struct Worker {
    client: Client,
    ids: Rc<[String]>,
    /// Number of the next request, counted by all workers.
    next: Rc<Cell<usize>>,
    mix: Mix,
    start: Instant,
    interval: Duration,
    count: usize,
}

/// Latencies of the requests that succeeded, and the number of the others.
async fn work(worker: Worker) -> (Samples, usize) {
    let (mut samples, mut failed) = (Samples::default(), 0);
    let mut connection = None;
    loop {
        let number = worker.next.get();
        if number >= worker.count {
            return (samples, failed);
        }
        worker.next.set(number + 1);
        let due = worker.start + worker.interval.mul_f64(number_of(number));
        tokio::time::sleep_until(due.into()).await;
        match request(&worker, &mut connection, number).await {
            Ok(answered) => samples.add(answered.saturating_duration_since(due)),
            Err(_) => {
                // A connection after a failure may have a rest of an answer on it.
                connection = None;
                failed += 1;
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of requests is far below 2^52"
)]
const fn number_of(count: usize) -> f64 {
    count as f64
}

/// Sends one request and returns when it was answered.
async fn request(
    worker: &Worker,
    connection: &mut Option<Connection>,
    number: usize,
) -> Result<Instant> {
    let Worker { client, ids, .. } = worker;
    if connection.is_none() {
        *connection = Some(client.connect().await?);
    }
    let connection = connection.as_mut().context("no connection")?;
    let path = format!("/v1/sandboxes/{}", ids[number % ids.len()]);
    match worker.mix {
        Mix::Reads if number.is_multiple_of(50) => {
            let later = jiff::Timestamp::now() + Duration::from_secs(7200);
            let body = serde_json::json!({ "expiresAt": later.to_string() });
            let path = format!("{path}/renew-expiration");
            connection.call("POST", &path, Some(&body)).await?;
        }
        Mix::Reads if number % 50 < 5 => {
            connection
                .call("GET", "/v1/sandboxes?pageSize=50", None)
                .await?;
        }
        Mix::Reads => {
            connection.call("GET", &path, None).await?;
        }
        Mix::Creates => {
            let id = client.create(connection).await?;
            let answered = Instant::now();
            client.delete(connection, &id).await?;
            return Ok(answered);
        }
    }
    Ok(Instant::now())
}

/// Processor time of this process.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

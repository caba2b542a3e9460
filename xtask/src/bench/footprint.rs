//! Size on disk, memory, and start-up time.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    client::Sandbox,
    engine::Engine,
    report::Report,
    stats::Samples,
    subject::{Subject, empty_folder},
};
use crate::{
    repo::Repo,
    step::notice,
    up::{Settings, free_port, get_status, random_key, render, write_private},
};

/// Number of measured starts of the server.
const STARTS: usize = 10;

/// Reports the memory of the server before any load.
pub(super) fn at_rest(subject: &Subject, report: &mut Report) -> Result<()> {
    report.bytes("server RSS at rest", resident(subject.pid())?);
    Ok(())
}

/// Reports the memory of an unused execd in a sandbox, and of the server after the load.
pub(super) async fn of_execd(
    subject: &Subject,
    sandbox: &Sandbox,
    report: &mut Report,
) -> Result<()> {
    report.bytes("server RSS after the load", resident(subject.pid())?);
    let container = Engine::local().inspect(&sandbox.id).await?;
    let pid = container["State"]["Pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok());
    match pid
        .context("the engine gave no process id")
        .and_then(resident)
    {
        Ok(bytes) => report.bytes("execd RSS at rest in a sandbox", bytes),
        Err(error) => notice(&format!("not measured: execd RSS: {error:#}")),
    }
    Ok(())
}

/// Reports the sizes on disk, and the server's time from exec to its first answer.
pub(super) fn start_up(repo: &Repo, report: &mut Report) -> Result<()> {
    for name in ["execd", "opensandbox-server"] {
        on_disk(repo, name, report)?;
    }
    // A store of a newer program would keep an older one from starting.
    let dir = empty_folder(repo, "bench-start")?;
    let mut samples = Samples::default();
    for _ in 0..STARTS {
        samples.add(one_start(&repo.dist().join("opensandbox-server"), &dir)?);
    }
    report.durations("server: exec to first answer", &samples);
    Ok(())
}

/// Reports the size of a program.
pub(super) fn on_disk(repo: &Repo, name: &str, report: &mut Report) -> Result<()> {
    let size = fs::metadata(repo.dist().join(name))?.len();
    report.bytes(&format!("{name} on disk"), size);
    Ok(())
}

fn one_start(program: &Path, dir: &Path) -> Result<Duration> {
    let config = dir.join("config.toml");
    write_private(
        &config,
        &render(free_port()?, &random_key()?, &dir.join("store.db")),
    )?;
    let settings = Settings::load(&config)?;
    let log = fs::File::create(dir.join("server.log"))?;
    let start = Instant::now();
    let mut child = Command::new(program)
        .arg("--config")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let answered = loop {
        // A refused connection costs less than a request.
        if TcpStream::connect(&settings.address).is_ok()
            && get_status(&settings.address, "/health") == Some(200)
        {
            break start.elapsed();
        }
        ensure!(
            child.try_wait()?.is_none(),
            "the server ended; see {}",
            dir.display()
        );
        std::thread::yield_now();
    };
    // So that it removes its warm sidecars.
    kill_process(Pid::from_child(&child), Signal::TERM).context("cannot stop the server")?;
    child.wait()?;
    Ok(answered)
}

/// Resident memory of a process, in bytes.
pub(super) fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("cannot read the status of process {pid}"))?;
    let kib = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .parse::<u64>()
                .ok()
        })
        .context("the kernel reports no resident size")?;
    Ok(kib * 1024)
}

/// Processor time that a process has used, in user space and in the kernel.
pub(super) fn processor_time(pid: u32) -> Result<Duration> {
    /// Clock ticks of a second in `/proc`: the same on every Linux.
    const TICKS: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("cannot read the state of process {pid}"))?;
    // Fields are counted from behind the name, which may contain anything.
    let behind = stat.rsplit_once(") ").map(|(_, rest)| rest);
    let fields = behind.unwrap_or_default().split(' ').skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}

/// Reports how much the memory of a daemon grew since it had `before` bytes.
pub(super) fn grown(
    pid: Option<u32>,
    before: Option<u64>,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    if let (Some(pid), Some(before)) = (pid, before) {
        let now = resident(pid)?;
        report.bytes(name, now.saturating_sub(before));
    }
    Ok(())
}

//! The server process: started, watched until it answers, stopped.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{settings::Settings, wait::until};

/// Longest time from start to the first answer; recovery of many sandboxes is included.
const START: Duration = Duration::from_secs(60);
/// Longest time a server may take to drain before it is killed.
const STOP: Duration = Duration::from_secs(20);
/// Longest time for one look at `/ready`.
const PROBE: Duration = Duration::from_secs(2);
/// Lines of its log that are shown when a server does not come up.
const LOG_TAIL: usize = 20;

/// A server that we started.
pub(crate) struct Server {
    child: Child,
    pid_file: PathBuf,
}

/// A server that an earlier run started.
pub(crate) struct Running {
    /// Its process.
    pub(crate) pid: i32,
    /// What it runs with.
    pub(crate) config: PathBuf,
    pid_file: PathBuf,
}

impl Server {
    /// The server of this state folder, if it still runs.
    pub(crate) fn running(state: &Path) -> Result<Option<Running>> {
        let pid_file = state.join("server.pid");
        let Ok(text) = fs::read_to_string(&pid_file) else {
            return Ok(None);
        };
        let mut lines = text.lines();
        let (Some(pid), Some(config)) = (lines.next(), lines.next()) else {
            return Ok(None);
        };
        let pid: i32 = pid
            .parse()
            .with_context(|| format!("{} is damaged", pid_file.display()))?;
        // The number may belong to another program by now.
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let ours = command
            .split(|byte| *byte == 0)
            .any(|word| word == config.as_bytes());
        Ok(ours.then(|| Running {
            pid,
            config: PathBuf::from(config),
            pid_file,
        }))
    }

    /// Starts the server and waits until it is ready.
    pub(crate) fn start(
        program: &Path,
        config: &Path,
        settings: &Settings,
        state: &Path,
    ) -> Result<Self> {
        let log = state.join("server.log");
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        if TcpStream::connect(&settings.address).is_ok() {
            bail!(
                "{} is taken by another program; choose one with --port",
                settings.address
            );
        }
        // A session of its own: it outlives our terminal, and Ctrl-C reaches it only through us.
        let child = Command::new("setsid")
            .arg(program)
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let pid_file = state.join("server.pid");
        let mut server = Self { child, pid_file };
        if let Err(error) = server.becomes_ready(&settings.address) {
            server.end()?;
            bail!("{error:#}\n{}", tail(&log));
        }
        let mark = format!("{}\n{}\n", server.child.id(), config.display());
        fs::write(&server.pid_file, mark)?;
        Ok(server)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn becomes_ready(&mut self, address: &str) -> Result<()> {
        let mut ended = None;
        let mut last = None;
        let ready = until(START, || {
            ended = self.child.try_wait().ok().flatten();
            last = get_status(address, "/ready");
            ended.is_some() || last == Some(200)
        });
        match (ended, ready, last) {
            (Some(status), ..) => bail!("the server ended with {status}; its log says:"),
            (None, true, _) => Ok(()),
            (None, false, Some(status)) => {
                bail!("the server answers /ready with {status}; its log says:")
            }
            (None, false, None) => bail!(
                "the server did not answer in {} s; its log says:",
                START.as_secs()
            ),
        }
    }

    /// Stays until the server ends or we are told to stop.
    pub(crate) fn serve(mut self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let asked = runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut child_ended = signal(SignalKind::child())?;
            loop {
                if self.child.try_wait()?.is_some() {
                    return Ok::<_, std::io::Error>(false);
                }
                tokio::select! {
                    _ = interrupt.recv() => return Ok(true),
                    _ = terminate.recv() => return Ok(true),
                    _ = child_ended.recv() => {}
                }
            }
        })?;
        if asked {
            eprintln!("\nStopping the server. Its sandboxes stay, and expire when it runs again.");
            self.end()?;
            return Ok(ExitCode::SUCCESS);
        }
        fs::remove_file(&self.pid_file)?;
        bail!("the server ended by itself with {}", self.child.wait()?)
    }

    /// Stops the server: asked first, killed when it does not listen.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, Signal::TERM)?;
            if !until(STOP, || !matches!(self.child.try_wait(), Ok(None))) {
                self.child.kill()?;
            }
        }
        self.child.wait()?;
        match fs::remove_file(&self.pid_file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Running {
    /// Stops the server: asked first, killed when it does not listen.
    pub(crate) fn stop(&self) -> Result<()> {
        let pid = Pid::from_raw(self.pid).context("a process id is positive")?;
        kill_process(pid, Signal::TERM).context("cannot stop the server")?;
        if !until(STOP, || ended(self.pid)) {
            kill_process(pid, Signal::KILL).context("cannot kill the server")?;
        }
        fs::remove_file(&self.pid_file)?;
        Ok(())
    }
}

/// Whether a process is gone; one that nobody has reaped yet has no command line any more.
fn ended(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |command| command.is_empty())
}

/// Status of a GET, or `None` while nobody answers.
pub(crate) fn get_status(address: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PROBE)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut head = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head)
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
}

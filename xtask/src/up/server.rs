//! The server process: start, wait until ready, stop.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::settings::Settings;
use crate::{process::fresh_log, wait::until};

/// Longest time from start to the first answer; recovery of many sandboxes is included.
const START: Duration = Duration::from_secs(60);
/// Longest time a server may take to drain before it is killed.
const STOP: Duration = Duration::from_secs(20);
/// Longest time for one request to `/ready`.
const PROBE: Duration = Duration::from_secs(2);
/// Lines of the log that are shown when a server does not become ready.
const LOG_TAIL: usize = 20;

/// A server that this process started.
pub(crate) struct Server {
    child: Child,
    pid_file: PathBuf,
}

/// A server that an earlier run started.
pub(crate) struct Running {
    /// Process id.
    pub(crate) pid: i32,
    /// Configuration file.
    pub(crate) config: PathBuf,
    pid_file: PathBuf,
}

impl Server {
    /// Finds the server of this state folder, if it still runs.
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
        // The kernel may have given the PID to another program by now.
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

    /// Starts the server, with further variables in its environment, and waits until it is ready.
    pub(crate) fn start(
        program: &Path,
        config: &Path,
        settings: &Settings,
        state: &Path,
        environment: &[(&str, PathBuf)],
    ) -> Result<Self> {
        check_free(&settings.address)?;
        let log = log(state);
        let out = fresh_log(&log)?;
        // A session of its own: the server outlives this terminal, and Ctrl-C reaches it only
        // through xtask.
        let child = Command::new("setsid")
            .arg(program)
            .arg("--config")
            .arg(config)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let pid_file = state.join("server.pid");
        let mut server = Self { child, pid_file };
        // Before the wait: Ctrl-C then ends only xtask, and the next run finds the server.
        let mark = format!("{}\n{}\n", server.child.id(), config.display());
        if let Err(error) = fs::write(&server.pid_file, mark) {
            server.end()?;
            return Err(error.into());
        }
        let child = &mut server.child;
        let ended = || {
            child
                .try_wait()
                .ok()
                .flatten()
                .map(|status| status.to_string())
        };
        if let Err(error) = until_ready(&settings.address, &log, ended) {
            server.end()?;
            return Err(error);
        }
        Ok(server)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server ends, or stops it on SIGINT or SIGTERM.
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
        forget(&self.pid_file)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the server ended unexpectedly with {status}");
        }
        eprintln!("The server was stopped.");
        Ok(ExitCode::SUCCESS)
    }

    /// Stops the server with SIGTERM, and with SIGKILL when it does not end in time.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, Signal::TERM)?;
            if !until(STOP, || !matches!(self.child.try_wait(), Ok(None))) {
                self.child.kill()?;
            }
        }
        self.child.wait()?;
        forget(&self.pid_file)
    }
}

impl Running {
    /// Waits until the server is ready. It is not ready while the engine is unavailable.
    pub(crate) fn wait_until_ready(&self, settings: &Settings, state: &Path) -> Result<()> {
        let ended = || ended(self.pid).then(|| "an unknown status".to_owned());
        until_ready(&settings.address, &log(state), ended)
    }

    /// Stops the server with SIGTERM, and with SIGKILL when it does not end in time.
    pub(crate) fn stop(&self) -> Result<()> {
        let pid = Pid::from_raw(self.pid).context("a process id is positive")?;
        kill_process(pid, Signal::TERM).context("cannot stop the server")?;
        if !until(STOP, || ended(self.pid)) {
            kill_process(pid, Signal::KILL).context("cannot kill the server")?;
        }
        forget(&self.pid_file)
    }
}

fn log(state: &Path) -> PathBuf {
    state.join("server.log")
}

/// Removes the PID file of a server that ended. Another xtask may have removed it already.
fn forget(pid_file: &Path) -> Result<()> {
    match fs::remove_file(pid_file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", pid_file.display()))
        }
        _ => Ok(()),
    }
}

/// Fails when a server could not listen at this address.
pub(super) fn check_free(address: &str) -> Result<()> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!(
                "{address} is taken by another program; choose another port with --port, or in \
                 your configuration"
            )
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
        Ok(_) => Ok(()),
    }
}

/// Waits until a server is ready. `ended` returns the exit status once the server has ended.
fn until_ready(address: &str, log: &Path, mut ended: impl FnMut() -> Option<String>) -> Result<()> {
    let mut end = None;
    let mut last = None;
    let ready = until(START, || {
        end = ended();
        last = get_status(address, "/ready");
        end.is_some() || last == Some(200)
    });
    let problem = match (end, ready, last) {
        (None, true, _) => return Ok(()),
        (Some(status), ..) => format!("the server ended with {status}"),
        (None, false, Some(status)) => format!("the server answers /ready with {status}"),
        (None, false, None) => format!("the server did not answer in {} s", START.as_secs()),
    };
    bail!("{problem}; its log says:\n{}", tail(log))
}

/// Whether a process has ended. A zombie counts: it has no command line any more.
fn ended(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |command| command.is_empty())
}

/// Status of a GET, or `None` without an answer.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).spawn().unwrap()
    }

    /// A path without a file.
    fn nowhere() -> PathBuf {
        std::env::temp_dir().join(format!("xtask-no-pid-{}", std::process::id()))
    }

    #[test]
    fn a_pid_file_that_is_gone_is_no_error() {
        let mut server = child("exec sleep 1000");
        let running = Running {
            pid: server.id().cast_signed(),
            config: PathBuf::new(),
            pid_file: nowhere(),
        };
        running.stop().unwrap();
        server.wait().unwrap();
    }

    #[test]
    fn a_server_that_was_stopped_from_outside_is_no_failure() {
        let serve = |script| {
            let server = Server {
                child: child(script),
                pid_file: nowhere(),
            };
            server.serve()
        };
        assert!(serve("exit 0").is_ok());
        let error = serve("exit 3").unwrap_err().to_string();
        assert!(error.ends_with("exit status: 3"), "{error}");
    }

    #[test]
    fn a_server_is_recorded_before_it_is_ready() {
        use std::os::unix::fs::PermissionsExt;
        let state = std::env::temp_dir().join(format!("xtask-start-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        let program = state.join("server");
        // Ends as soon as it is recorded, or after a while.
        let script = "#!/bin/sh\ncd \"${0%/*}\"\nfor _ in $(seq 100); do\n\
                      read pid < server.pid && [ \"$pid\" = $$ ] && echo recorded && exit 3\n\
                      sleep 0.1\ndone 2> /dev/null\nexit 4\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let settings = Settings {
            file: state.join("server.toml"),
            address: format!("127.0.0.1:{}", super::super::free_port().unwrap()),
            api_key: None,
        };
        let started = Server::start(&program, &settings.file, &settings, &state, &[]);
        let error = started.err().unwrap().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.ends_with("recorded"), "{error}");
        assert!(!state.join("server.pid").exists());
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn a_taken_port_is_reported_and_a_free_one_stays_free() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let error = check_free(&address).unwrap_err().to_string();
        assert!(error.contains("--port"), "{error}");
        drop(listener);
        check_free(&address).unwrap();
        check_free(&address).unwrap();
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let log = nowhere();
        let error = until_ready("127.0.0.1:1", &log, || Some("a bang".to_owned())).unwrap_err();
        assert!(error.to_string().contains("ended with a bang"), "{error}");
    }
}

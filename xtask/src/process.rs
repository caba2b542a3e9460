//! Running other programs: as part of a step, for their output, or watched with a limit.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufReader, ErrorKind, Read},
    mem,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::{
    deadline,
    interrupt::{ForwardGuard, signal_group},
    progress::{Line, Progress},
    step,
    wait::until,
};

/// Variables that `cargo run` sets for xtask. Build scripts that watch them would run again each
/// time a build starts from xtask instead of from a shell.
const XTASK_VARIABLES: [&str; 6] = [
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// `cargo`, as it would run from a shell.
pub(crate) fn cargo() -> Command {
    without_xtask_variables(Command::new("cargo"))
}

/// Removes the variables that Cargo set for xtask itself.
pub(crate) fn without_xtask_variables(mut command: Command) -> Command {
    for name in XTASK_VARIABLES {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command
}

/// Lets what this thread starts from now on give way to what other threads start. The priority is that of a
/// thread, and a program inherits it.
pub(crate) fn give_way() {
    /// A tenth of the share.
    const NICE: i32 = 10;
    // Without it, the build only takes longer.
    let _ = rustix::process::nice(NICE);
}

/// Longest time for a query such as `docker version`, which hangs when its daemon does.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Lines of output that may wait for the watcher.
const LINE_BUFFER: usize = 1024;
/// Longest time between two calls of a watcher; without output it gets [`Line::Idle`].
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long after a program's exit its last lines may take to arrive.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Runs a program to its exit as part of a step. Its output is shown only when it fails; until then
/// its last line is shown from time to time as progress.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    succeed(command, None)
}

/// Like [`run`], but killed after `limit`.
pub(crate) fn run_within(limit: Duration, command: &mut Command) -> Result<()> {
    succeed(command, Some(limit))
}

/// Like [`run`], for a program that is expected to fail: neither its status nor its output counts.
pub(crate) fn run_ignoring_failure(command: &mut Command) -> Result<()> {
    execute(command, None).map(drop)
}

fn succeed(command: &mut Command, limit: Option<Duration>) -> Result<()> {
    let (ended, progress) = execute(command, limit)?;
    let problem = match ended {
        Ended::Exited(status) if status.success() => return Ok(()),
        Ended::Exited(status) => format!("ended with {status}"),
        Ended::Killed => "timed out and was killed".to_owned(),
    };
    progress.show_output(&describe(command));
    bail!("{} {problem}", describe(command))
}

fn execute(command: &mut Command, limit: Option<Duration>) -> Result<(Ended, Progress)> {
    // By default Cargo draws its progress on terminals only.
    command
        .env("CARGO_TERM_PROGRESS_WHEN", "always")
        .env("CARGO_TERM_PROGRESS_WIDTH", "80");
    let mut progress = Progress::of(step::current());
    let ended = follow(command, limit, &mut |line| progress.record(line))?;
    Ok((ended, progress))
}

/// Returns what the program wrote to stdout, trimmed; an error when it failed or took longer than
/// [`QUERY_TIMEOUT`].
pub(crate) fn query(command: &mut Command) -> Result<String> {
    let mut text = String::new();
    let ended = watch(command, QUERY_TIMEOUT, &mut |line| {
        if let Line::Out(line) = line {
            text.push_str(line);
            text.push('\n');
        }
    })?;
    match ended {
        Ended::Exited(status) if status.success() => Ok(text.trim().to_owned()),
        Ended::Exited(status) => bail!("{} ended with {status}", describe(command)),
        Ended::Killed => bail!("{} did not answer in {QUERY_TIMEOUT:?}", describe(command)),
    }
}

/// How a watched program ended.
pub(crate) enum Ended {
    /// It exited or died of a signal that the watcher did not send.
    Exited(ExitStatus),
    /// The watcher killed it when its time was up.
    Killed,
}

/// Runs a program in a process group of its own and passes every line to `on_line`. After `limit`
/// the whole group is killed, so that no process of a hung test stays behind.
pub(crate) fn watch(
    command: &mut Command,
    limit: Duration,
    on_line: &mut dyn FnMut(&Line),
) -> Result<Ended> {
    follow(command, Some(limit), on_line)
}

/// Runs a program and passes every line to `on_line`. Without a limit it stays in the process group
/// of xtask, so that Ctrl-C reaches both.
fn follow(
    command: &mut Command,
    limit: Option<Duration>,
    on_line: &mut dyn FnMut(&Line),
) -> Result<Ended> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if limit.is_some() {
        command.process_group(0);
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", describe(command)))?;
    let _guard = limit.map(|_| ForwardGuard::new(child.id()));
    let (sender, lines) = mpsc::sync_channel(LINE_BUFFER);
    // The readers end with their pipes. They are not joined: a stray daemon may hold a pipe open.
    if let Some(pipe) = child.stdout.take() {
        read_lines(pipe, Line::Out, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        read_lines(pipe, Line::Err, sender.clone());
    }
    drop(sender);
    let deadline = limit.map(|limit| Instant::now() + deadline::within(limit));
    let mut ended: Option<Instant> = None;
    let timed_out = loop {
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => on_line(&line),
            // Without its output it may still run.
            Err(RecvTimeoutError::Disconnected) => {
                let exited = || !matches!(child.try_wait(), Ok(None));
                break deadline.is_some_and(|deadline| {
                    !until(deadline.saturating_duration_since(Instant::now()), exited)
                });
            }
            Err(RecvTimeoutError::Timeout) => {
                on_line(&Line::Idle);
                if ended.is_none() && child.try_wait()?.is_some() {
                    ended = Some(Instant::now());
                }
            }
        }
        if ended.is_some_and(|ended| ended.elapsed() > LAST_LINES) {
            break false;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break ended.is_none();
        }
    };
    if timed_out {
        signal_group(child.id(), Signal::KILL);
    }
    let status = child
        .wait()
        .with_context(|| format!("lost {}", describe(command)))?;
    Ok(if timed_out {
        Ended::Killed
    } else {
        Ended::Exited(status)
    })
}

fn read_lines(
    pipe: impl Read + Send + 'static,
    kind: fn(String) -> Line,
    lines: mpsc::SyncSender<Line>,
) {
    let mut pipe = BufReader::new(pipe);
    thread::spawn(move || {
        let mut text = Vec::new();
        let mut next = [0];
        loop {
            let at_end = pipe.read_exact(&mut next).is_err();
            let line = match next[0] {
                _ if at_end && text.is_empty() => break,
                _ if at_end => kind,
                b'\n' => kind,
                b'\r' if pipe.buffer().first() != Some(&b'\n') => Line::Transient,
                byte => {
                    text.push(byte);
                    continue;
                }
            };
            if lines.send(line(plain(&mem::take(&mut text)))).is_err() {
                break;
            }
        }
    });
}

/// The text of a line without the escape sequence with which Cargo erases its progress.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_start_matches("\x1b[K").trim_end().to_owned()
}

/// Creates an empty log for a program that outlives xtask. The previous log stays as `<log>.1`: it
/// says why the program had to be started again.
pub(crate) fn fresh_log(log: &Path) -> Result<File> {
    let mut before = log.as_os_str().to_owned();
    before.push(".1");
    match fs::rename(log, &before) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => File::create(log),
    }
    .with_context(|| format!("cannot write {}", log.display()))
}

/// The program on `PATH`, if any.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The command as a reader would type it, for messages.
pub(crate) fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn output_of_both_streams_arrives_by_lines() {
        let mut seen = Vec::new();
        let script = r"printf 'one\r\n1/2\r2/2\r'; printf '\033[Ktwo\nthree' >&2; exit 3";
        let ended = watch(&mut shell(script), QUERY_TIMEOUT, &mut |line| match line {
            Line::Idle => {}
            line => seen.push(format!("{line:?}")),
        });
        seen.sort();
        let expected = [
            r#"Err("three")"#,
            r#"Err("two")"#,
            r#"Out("one")"#,
            r#"Transient("1/2")"#,
            r#"Transient("2/2")"#,
        ];
        assert_eq!(seen, expected);
        assert!(matches!(ended, Ok(Ended::Exited(status)) if status.code() == Some(3)));
    }

    #[test]
    fn a_daemon_that_holds_the_pipes_open_is_not_waited_for() {
        let mut daemon = String::new();
        let ended = watch(
            &mut shell("sleep 1000 & echo $!"),
            QUERY_TIMEOUT,
            &mut |line| {
                if let Line::Out(pid) = line {
                    daemon.clone_from(pid);
                }
            },
        );
        run(Command::new("kill").arg(&daemon)).unwrap();
        assert!(matches!(ended, Ok(Ended::Exited(status)) if status.success()));
    }

    #[test]
    fn a_program_and_its_children_are_killed_on_timeout() {
        let mut shell = shell("sleep 1000 & echo $!; wait");
        let mut child = String::new();
        let ended = watch(&mut shell, Duration::from_secs(2), &mut |line| {
            if let Line::Out(pid) = line {
                child.clone_from(pid);
            }
        });
        assert!(matches!(ended, Ok(Ended::Killed)));
        let gone = || {
            let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        assert!(until(QUERY_TIMEOUT, gone), "process {child} lives on");
    }

    #[test]
    fn a_program_that_closed_its_output_is_killed_on_timeout() {
        let mut silent = shell("exec >&- 2>&-; sleep 20");
        let ended = watch(&mut silent, Duration::from_secs(1), &mut |_| {});
        assert!(matches!(ended, Ok(Ended::Killed)));
    }

    #[test]
    fn the_previous_log_is_kept() {
        let dir = std::env::temp_dir().join(format!("xtask-log-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let log = dir.join("server.log");
        for text in ["first", "second", "third"] {
            fresh_log(&log).unwrap();
            fs::write(&log, text).unwrap();
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "third");
        let before = fs::read_to_string(dir.join("server.log.1")).unwrap();
        assert_eq!(before, "second");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_failed_query_names_its_program() {
        assert_eq!(query(Command::new("echo").arg("hello")).unwrap(), "hello");
        let error = query(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("false ended with"), "{error}");
        let error = query(&mut Command::new("/no/such/program"))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "cannot run /no/such/program");
    }
}

//! Running other programs: plainly, for their output, or watched with a limit.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::interrupt::{Told, tell};

/// What `cargo run` tells us about ourselves. Build scripts that watch these variables would run
/// anew each time a build comes from here instead of from a shell.
const ABOUT_US: [&str; 6] = [
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// `cargo`, as it would run from a shell.
pub(crate) fn cargo() -> Command {
    without_our_names(Command::new("cargo"))
}

/// The command without what Cargo told us about ourselves.
pub(crate) fn without_our_names(mut command: Command) -> Command {
    for name in ABOUT_US {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command
}

/// Longest time for a question such as `docker version`, which hangs when its daemon does.
pub(crate) const QUESTION: Duration = Duration::from_secs(20);
/// Lines of output that may wait for the watcher.
const LINE_BUFFER: usize = 1024;

/// Runs to the end; the program's output joins our progress on stderr.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .with_context(|| format!("cannot run {}", describe(command)))?;
    if status.success() {
        Ok(())
    } else {
        bail!("{} ended with {status}", describe(command))
    }
}

/// What the program wrote to stdout, trimmed; an error when it failed or took longer than
/// [`QUESTION`].
pub(crate) fn ask(command: &mut Command) -> Result<String> {
    let mut text = String::new();
    let ended = watch(command, QUESTION, &mut |line| {
        if let Line::Out(line) = line {
            text.push_str(line);
            text.push('\n');
        }
    })?;
    match ended {
        Ended::Exited(status) if status.success() => Ok(text.trim().to_owned()),
        Ended::Exited(status) => bail!("{} ended with {status}", describe(command)),
        Ended::Killed => bail!("{} did not answer in {QUESTION:?}", describe(command)),
    }
}

/// One line of a watched program.
pub(crate) enum Line<'a> {
    /// From stdout.
    Out(&'a str),
    /// From stderr.
    Err(&'a str),
}

/// How a watched program ended.
pub(crate) enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// By us: its time was up.
    Killed,
}

/// Runs in a process group of its own and hands every line on. After `limit` the whole group is
/// killed, so that nothing a hung test started stays behind.
pub(crate) fn watch(
    command: &mut Command,
    limit: Duration,
    on_line: &mut dyn FnMut(&Line<'_>),
) -> Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", describe(command)))?;
    let _told = Told::group(child.id());
    let (sender, lines) = mpsc::sync_channel::<(bool, String)>(LINE_BUFFER);
    // The readers end with their pipes. Nobody waits for them: a stray daemon may hold one open.
    if let Some(pipe) = child.stdout.take() {
        read_lines(pipe, true, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        read_lines(pipe, false, sender.clone());
    }
    drop(sender);
    let deadline = Instant::now() + limit;
    let timed_out = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((true, line)) => on_line(&Line::Out(&line)),
            Ok((false, line)) => on_line(&Line::Err(&line)),
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if timed_out {
        tell(child.id(), Signal::KILL);
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
    is_out: bool,
    lines: mpsc::SyncSender<(bool, String)>,
) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if lines.send((is_out, text)).is_err() {
                break;
            }
            line.clear();
        }
    });
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

    #[test]
    fn output_of_both_streams_arrives_by_lines() {
        let mut seen = Vec::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; exit 3"]);
        let ended = watch(&mut shell, QUESTION, &mut |line| {
            seen.push(match line {
                Line::Out(text) => format!("out {text}"),
                Line::Err(text) => format!("err {text}"),
            });
        });
        seen.sort();
        assert_eq!(seen, ["err two", "out one"]);
        assert!(matches!(ended, Ok(Ended::Exited(status)) if status.code() == Some(3)));
    }

    #[test]
    fn a_program_and_its_children_die_when_their_time_is_up() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo $!; wait"]);
        let mut child = String::new();
        let ended = watch(&mut shell, Duration::from_secs(2), &mut |line| {
            if let Line::Out(pid) = line {
                child = (*pid).to_owned();
            }
        });
        assert!(matches!(ended, Ok(Ended::Killed)));
        let gone = || {
            let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        assert!(
            crate::up::wait::until(QUESTION, gone),
            "process {child} lives on"
        );
    }

    #[test]
    fn questions_fail_with_the_program_that_failed() {
        assert_eq!(ask(Command::new("echo").arg("hello")).unwrap(), "hello");
        let error = ask(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("false ended with"), "{error}");
        let error = ask(&mut Command::new("/no/such/program"))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "cannot run /no/such/program");
    }
}

//! Log of a daemon inside a sandbox (contract: execd §1.4).
//!
//! ```text
//!   event ─▶ line ─▶ sampling ─┬─▶ queue ──own thread──▶ output
//!                              └─▶ queue ──own thread──▶ output
//! ```
//!
//! Logging never waits for an output, and no output waits for another. The reader of standard error
//! may be a container engine that is stopped, and the daemon must continue to work.
//!
//! The daemon chooses the outputs. [`names`] parses the list in [`ENV_OUTPUTS`], which every daemon
//! supports. [`redact`] masks secrets in logged texts.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod escape;
mod identity;
pub mod limits;
mod line;
mod queue;
pub mod redact;
mod rotate;
mod sampling;
mod subscriber;

use std::{io, os::fd::AsFd, path::Path};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tracing::{Level, subscriber::SetGlobalDefaultError};

pub use identity::{Identity, Json};
pub use queue::Writer;
use rotate::{RotatingFile, RotationLimits};
use subscriber::Lines;

/// Variable with a list of outputs, see [`names`].
pub const ENV_OUTPUTS: &str = "OPENSANDBOX_LOG_OUTPUT";

/// Outputs of the log. Every output gets every line.
#[derive(Debug)]
pub struct Log(Vec<Output>);

/// Reason why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A thread cannot be started.
    #[error("cannot start the thread of the log")]
    Thread(#[source] io::Error),
    /// The process already has a log.
    #[error("the log was already set up")]
    Twice(#[source] SetGlobalDefaultError),
}

/// Sets up the log of this process. Events of this level and above go to the outputs until the
/// writer is dropped. `RUST_LOG` is ignored, because the environment belongs to the user.
///
/// # Errors
/// See [`LogError`].
pub fn init(level: Level, to: Log) -> Result<Writer, LogError> {
    init_as(Identity::default(), level, to)
}

/// The same for a daemon that every line names.
///
/// # Errors
/// See [`LogError`].
pub fn init_as(identity: Identity, level: Level, to: Log) -> Result<Writer, LogError> {
    let writer = Writer::start(to).map_err(LogError::Thread)?;
    let lines = Lines::new(level, identity, writer.queues());
    tracing::subscriber::set_global_default(lines).map_err(LogError::Twice)?;
    Ok(writer)
}

/// Destination of the log.
#[derive(Debug)]
struct Output {
    to: Target,
    /// Whether the last line is incomplete.
    torn: bool,
}

#[derive(Debug)]
enum Target {
    Stream(Stream),
    File(RotatingFile),
}

/// Standard stream of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Names of the outputs in a comma-separated list.
#[must_use]
pub fn names(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

impl Log {
    /// Opens outputs by name: `stdout`, `stderr`, or the path of a file. Returns an error message
    /// for each output that is skipped. A daemon works without its log, so errors are not fatal. If
    /// no output remains, the log goes to `fallback`.
    pub fn open(
        names: impl IntoIterator<Item = impl AsRef<str>>,
        fallback: Stream,
    ) -> (Self, Vec<String>) {
        let mut outputs = Vec::new();
        let mut problems = Vec::new();
        for name in names {
            match name.as_ref() {
                "stdout" => outputs.push(Target::Stream(Stream::Stdout).into()),
                "stderr" => outputs.push(Target::Stream(Stream::Stderr).into()),
                path => match RotatingFile::open(Path::new(path), RotationLimits::DEFAULT) {
                    Ok(file) => outputs.push(Target::File(file).into()),
                    Err(error) => problems.push(format!("{path}: {error}")),
                },
            }
        }
        if outputs.is_empty() {
            outputs.push(Target::Stream(fallback).into());
        }
        (Self(outputs), problems)
    }

    /// Whether the log goes to standard error.
    #[must_use]
    pub fn is_on_stderr(&self) -> bool {
        self.0
            .iter()
            .any(|output| matches!(output.to, Target::Stream(Stream::Stderr)))
    }
}

impl From<Target> for Output {
    fn from(to: Target) -> Self {
        Self { to, torn: false }
    }
}

impl Output {
    /// Writes whole lines, and waits for the output. Returns the number of lost lines.
    fn write_lines(&mut self, lines: &[u8]) -> u64 {
        if let Target::File(file) = &mut self.to {
            file.rotate_if_full(lines.len() as u64);
        }
        let mut rest = lines;
        if self.torn {
            self.torn = !self.write(b"\n").is_empty();
        }
        if !self.torn {
            rest = self.write(lines);
            let written = &lines[..lines.len() - rest.len()];
            self.torn = written.last().is_some_and(|last| *last != b'\n');
        }
        memchr::memchr_iter(b'\n', rest).count() as u64
    }

    /// Writes bytes. On an error, returns the rest.
    fn write<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while !rest.is_empty() {
            let fd = match &self.to {
                Target::Stream(Stream::Stdout) => rustix::stdio::stdout(),
                Target::Stream(Stream::Stderr) => rustix::stdio::stderr(),
                Target::File(file) => file.as_fd(),
            };
            match rustix::io::write(fd, rest) {
                Ok(0) => break,
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                // Files are opened with `O_NONBLOCK`, and another process may have set it on a
                // standard stream, which it shares.
                Err(Errno::AGAIN) => {
                    let place = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None);
                    if place.is_err_and(|error| error != Errno::INTR) {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        if let Target::File(file) = &mut self.to {
            file.add_bytes((bytes.len() - rest.len()) as u64);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Read,
        thread,
        time::{Duration, Instant},
    };

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    /// Opens a list of outputs. Returns their targets, and the number of skipped outputs.
    fn opened(list: &str) -> (Vec<&'static str>, usize) {
        let (log, problems) = Log::open(names(list), Stream::Stderr);
        let kinds = log.0.iter().map(|output| match &output.to {
            Target::File(_) => "file",
            Target::Stream(Stream::Stdout) => "stdout",
            Target::Stream(Stream::Stderr) => "stderr",
        });
        (kinds.collect(), problems.len())
    }

    #[test]
    fn outputs_are_opened_by_name_with_a_fallback() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/daemon.log");
        let list = format!("stdout, {},,stderr", path.display());
        assert_eq!(opened(&list), (vec!["stdout", "file", "stderr"], 0));
        for nothing in ["", " , "] {
            assert_eq!(opened(nothing), (vec!["stderr"], 0));
        }
        assert_eq!(opened("/dev/null/x"), (vec!["stderr"], 1));
        assert_eq!(opened("/dev/null/x,stdout"), (vec!["stdout"], 1));
        let (log, _) = Log::open(names(""), Stream::Stdout);
        assert!(!log.is_on_stderr());
    }

    #[test]
    fn every_output_gets_every_line() {
        let place = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| place.path().join(name));
        let list = format!("{},{}", one.display(), two.display());
        let (log, _) = Log::open(names(&list), Stream::Stderr);
        let writer = Writer::start(log).unwrap();
        for queue in writer.queues() {
            queue.push(b"line\n");
        }
        drop(writer);
        for path in [one, two] {
            assert_eq!(fs::read(path).unwrap(), b"line\n");
        }
    }

    #[test]
    fn a_blocked_output_delays_no_other_and_loses_no_line() {
        let place = tempfile::tempdir().unwrap();
        let [pipe, file] = ["pipe", "file"].map(|name| place.path().join(name));
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let kept = File::options().read(true).write(true).open(&pipe).unwrap();
        let list = format!("{},{}", pipe.display(), file.display());
        let (log, problems) = Log::open(names(&list), Stream::Stderr);
        assert_eq!(problems, [""; 0]);
        let mut reader = File::open(&pipe).unwrap();
        drop(kept);
        let writer = Writer::start(log).unwrap();
        // More than the capacity of a pipe.
        let lines: Vec<String> = (0..2000).map(|n| format!("{n:0>100}\n")).collect();
        for line in &lines {
            for queue in writer.queues() {
                queue.push(line.as_bytes());
            }
        }
        let all = lines.concat();
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(&file).unwrap() != all {
            assert!(Instant::now() < deadline, "the file waits for the pipe");
            thread::yield_now();
        }
        let reader = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        drop(writer);
        assert!(reader.join().unwrap() == all, "it was cut");
    }

    #[test]
    fn failed_writes_are_counted() {
        let full = RotatingFile::open(Path::new("/dev/full"), RotationLimits::DEFAULT).unwrap();
        let mut full = Output::from(Target::File(full));
        assert_eq!(full.write_lines(b"one\ntwo\n"), 2);
        assert!(!full.torn, "nothing was written");
        full.torn = true;
        assert_eq!(full.write_lines(b"one\ntwo\n"), 2);
        assert!(full.torn);
    }

    #[test]
    fn an_incomplete_line_is_ended_before_the_next() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let file = RotatingFile::open(&path, RotationLimits::DEFAULT).unwrap();
        let mut output = Output::from(Target::File(file));
        assert_eq!(output.write_lines(b"one\nhal"), 0);
        assert_eq!(output.write_lines(b"two\n"), 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\nhal\ntwo\n");
    }
}

//! The log of a daemon that runs inside a sandbox (contract: execd §1.4).
//!
//! ```text
//!   event ─▶ line ─▶ sampling ─┬─▶ queue ──a thread of its own──▶ output
//!                              └─▶ queue ──a thread of its own──▶ output
//! ```
//!
//! Logging never waits for an output, and no output waits for another: the reader of standard error
//! may be a container engine that is away, and the daemon must work on.
//!
//! The daemon names the outputs; [`names`] reads the list in [`ENV_OUTPUTS`], which all daemons
//! understand. [`redact`] masks secrets in what they log.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

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

pub use queue::Writer;
use rotate::{Bounds, Rotating};
use subscriber::Lines;

/// The variable that names outputs, see [`names`].
pub const ENV_OUTPUTS: &str = "OPENSANDBOX_LOG_OUTPUT";

/// All outputs of the log. Each line goes to every one of them.
#[derive(Debug)]
pub struct Log(Vec<Output>);

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Its thread cannot be had.
    #[error("cannot start the thread of the log")]
    Thread(#[source] io::Error),
    /// One was set up before.
    #[error("the log was already set up")]
    Twice(#[source] SetGlobalDefaultError),
}

/// Sets up the log of this process: events of this level and worse go to the outputs until the
/// writer is dropped. The environment has no say: it is the user's, also its `RUST_LOG`.
///
/// # Errors
/// See [`LogError`].
pub fn init(level: Level, to: Log) -> Result<Writer, LogError> {
    let writer = Writer::start(to).map_err(LogError::Thread)?;
    let lines = Lines::new(level, writer.queues());
    tracing::subscriber::set_global_default(lines).map_err(LogError::Twice)?;
    Ok(writer)
}

/// One of the places where the log goes.
#[derive(Debug)]
struct Output {
    to: Target,
    /// The last line was cut.
    torn: bool,
}

#[derive(Debug)]
enum Target {
    Stream(Stream),
    File(Rotating),
}

/// A standard stream of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The names of outputs in a list that is separated by commas.
#[must_use]
pub fn names(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

impl Log {
    /// Opens outputs by their names: `stdout`, `stderr`, or the path of a file. Gives also what is
    /// wrong with those that were left out. A log that cannot be written keeps no daemon from
    /// working; with no output left, it goes to `fallback`.
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
                path => match Rotating::open(Path::new(path), Bounds::DEFAULT) {
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

    /// Whether people who look at standard error see it.
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
    /// Writes whole lines, however long that takes. Gives the number of those that were lost.
    fn write_lines(&mut self, lines: &[u8]) -> u64 {
        if let Target::File(file) = &mut self.to {
            file.make_room(lines.len() as u64);
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

    /// Gives what could not be written.
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
                // Ours never block to be opened, and others may share standard error.
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

    /// What the outputs of a list are, and how many were left out.
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
    fn outputs_are_opened_by_name_and_the_fallback_serves_without_any() {
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
    fn lines_go_everywhere() {
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
    fn an_output_that_blocks_loses_nothing_and_holds_no_other_up() {
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
        // More than a pipe holds.
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
    fn lines_that_cannot_be_written_are_counted() {
        let full = Rotating::open(Path::new("/dev/full"), Bounds::DEFAULT).unwrap();
        let mut full = Output::from(Target::File(full));
        assert_eq!(full.write_lines(b"one\ntwo\n"), 2);
        assert!(!full.torn, "nothing was written");
        full.torn = true;
        assert_eq!(full.write_lines(b"one\ntwo\n"), 2);
        assert!(full.torn);
    }

    #[test]
    fn a_line_after_one_that_was_cut_begins_anew() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let file = Rotating::open(&path, Bounds::DEFAULT).unwrap();
        let mut output = Output::from(Target::File(file));
        assert_eq!(output.write_lines(b"one\nhal"), 0);
        assert_eq!(output.write_lines(b"two\n"), 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\nhal\ntwo\n");
    }
}

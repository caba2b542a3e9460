//! The log: where it goes and how it looks (contract: execd §1.2, §1.4).
//!
//! To standard error, unless a file (`EXECD_LOG_FILE`) or a list of outputs
//! (`OPENSANDBOX_LOG_OUTPUT`) is named. Standard output belongs to the user's entry point.
//!
//! ```text
//!   event ─▶ line ─▶ sampling ─┬─▶ queue ──a thread of its own──▶ output
//!                              └─▶ queue ──a thread of its own──▶ output
//! ```
//!
//! Whoever logs never waits for an output, nor does another output: the reader of standard error
//! may be a container engine that is away, and the daemon must work on.

mod line;
mod queue;
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

/// Names a file for the log.
const ENV_FILE: &str = "EXECD_LOG_FILE";
/// Names outputs, separated by commas: `stdout`, `stderr`, and paths. The file wins over it.
const ENV_OUTPUTS: &str = "OPENSANDBOX_LOG_OUTPUT";

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
    Stdout,
    Stderr,
    File(Rotating),
}

/// The outputs that the environment names, and what is wrong with those that were left out. A log
/// that cannot be written keeps no sandbox from working; with no output left, it is standard error.
pub fn open(variable: impl Fn(&str) -> Option<String>) -> (Log, Vec<String>) {
    let set = |name| variable(name).filter(|value| !value.trim().is_empty());
    let names = match (set(ENV_FILE), set(ENV_OUTPUTS)) {
        (Some(file), _) => vec![file],
        (None, Some(list)) => list.split(',').map(|name| name.trim().to_owned()).collect(),
        (None, None) => Vec::new(),
    };
    let mut outputs = Vec::new();
    let mut problems = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        match name.as_str() {
            "stdout" => outputs.push(Target::Stdout.into()),
            "stderr" => outputs.push(Target::Stderr.into()),
            path => match Rotating::open(Path::new(path), Bounds::DEFAULT) {
                Ok(file) => outputs.push(Target::File(file).into()),
                Err(error) => problems.push(format!("{path}: {error}")),
            },
        }
    }
    if outputs.is_empty() {
        outputs.push(Target::Stderr.into());
    }
    (Log(outputs), problems)
}

impl Log {
    /// Whether people who look at standard error see it.
    #[must_use]
    pub fn is_on_stderr(&self) -> bool {
        self.0
            .iter()
            .any(|output| matches!(output.to, Target::Stderr))
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
                Target::Stdout => rustix::stdio::stdout(),
                Target::Stderr => rustix::stdio::stderr(),
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
            file.grew((bytes.len() - rest.len()) as u64);
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

    fn named(file: Option<&str>, outputs: Option<&str>) -> (Vec<String>, usize) {
        let (log, problems) = open(|name| {
            let value = match name {
                ENV_FILE => file,
                _ => outputs,
            };
            value.map(str::to_owned)
        });
        let names = log.0.iter().map(|output| match &output.to {
            Target::File(_) => "file".to_owned(),
            other => format!("{other:?}"),
        });
        (names.collect(), problems.len())
    }

    #[test]
    fn the_file_wins_over_the_list() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/execd.log");
        let path = path.to_str().unwrap();
        let list = format!("stdout, {path},,stderr");
        let all = ["Stdout", "file", "Stderr"].map(str::to_owned).to_vec();
        assert_eq!(named(None, Some(&list)), (all, 0));
        assert_eq!(
            named(Some(path), Some("stdout")),
            (vec!["file".to_owned()], 0)
        );
        for nothing in [None, Some(""), Some(" , ")] {
            assert_eq!(named(None, nothing), (vec!["Stderr".to_owned()], 0));
        }
        assert_eq!(
            named(Some("/dev/null/x"), None),
            (vec!["Stderr".to_owned()], 1)
        );
    }

    #[test]
    fn lines_go_everywhere() {
        let place = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| place.path().join(name));
        let list = format!("{},{}", one.display(), two.display());
        let (log, _) = open(|name| (name == ENV_OUTPUTS).then(|| list.clone()));
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
        let (log, problems) = open(|name| (name == ENV_OUTPUTS).then(|| list.clone()));
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

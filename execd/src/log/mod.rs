//! The log: where it goes and how it looks (contract: execd §1.2, §1.4).
//!
//! To standard error, unless a file (`EXECD_LOG_FILE`) or a list of outputs
//! (`OPENSANDBOX_LOG_OUTPUT`) is named. Standard output belongs to the user's entry point.
//!
//! ```text
//!   event ─▶ line ─▶ sampling ─▶ queue ──a thread of its own──▶ outputs
//! ```
//!
//! Whoever logs never waits for an output: the reader of standard error may be a container engine
//! that is away, and the daemon must work on.

mod line;
mod queue;
mod rotate;
mod sampling;
mod subscriber;

use std::{
    io::{self, Write},
    path::Path,
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
    let lines = Lines::new(level, writer.queue());
    tracing::subscriber::set_global_default(lines).map_err(LogError::Twice)?;
    Ok(writer)
}

#[derive(Debug)]
enum Output {
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
            "stdout" => outputs.push(Output::Stdout),
            "stderr" => outputs.push(Output::Stderr),
            path => match Rotating::open(Path::new(path), Bounds::DEFAULT) {
                Ok(file) => outputs.push(Output::File(file)),
                Err(error) => problems.push(format!("{path}: {error}")),
            },
        }
    }
    if outputs.is_empty() {
        outputs.push(Output::Stderr);
    }
    (Log(outputs), problems)
}

impl Log {
    /// Whether people who look at standard error see it.
    #[must_use]
    pub fn is_on_stderr(&self) -> bool {
        self.0.iter().any(|output| matches!(output, Output::Stderr))
    }

    /// Writes whole lines. An output that fails loses them; nobody could be told.
    fn write_lines(&mut self, lines: &[u8]) {
        for output in &mut self.0 {
            let _lost = match output {
                Output::Stdout => {
                    let mut stdout = io::stdout().lock();
                    stdout.write_all(lines).and_then(|()| stdout.flush())
                }
                Output::Stderr => io::stderr().write_all(lines),
                Output::File(file) => file.write_lines(lines),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: Option<&str>, outputs: Option<&str>) -> (Vec<String>, usize) {
        let (log, problems) = open(|name| {
            let value = match name {
                ENV_FILE => file,
                _ => outputs,
            };
            value.map(str::to_owned)
        });
        let names = log.0.iter().map(|output| match output {
            Output::File(_) => "file".to_owned(),
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
        let (mut log, _) = open(|name| (name == ENV_OUTPUTS).then(|| list.clone()));
        log.write_lines(b"line\n");
        for path in [one, two] {
            assert_eq!(std::fs::read(path).unwrap(), b"line\n");
        }
    }
}

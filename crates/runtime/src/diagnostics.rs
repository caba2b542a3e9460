//! What a runtime reports to people who look for a fault in one sandbox (contract: lifecycle §11).

use std::collections::BTreeMap;

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use crate::{LogFollow, LogLines, RuntimeError};

/// Reads the log and the settings of single sandboxes.
///
/// Neither call returns a secret: values of environment variables and tokens among the labels stay
/// in the runtime. Both fail with [`RuntimeError::NotFound`] if the sandbox has no container.
#[async_trait]
pub trait Diagnostics: Send + Sync {
    /// Reads the last lines of the output of the sandbox's entry point. Each begins with its time.
    async fn read_log(&self, id: &SandboxId, query: LogQuery) -> Result<LogText, RuntimeError>;

    /// Reads the output of the sandbox's entry point line by line: the last lines, and with
    /// [`LogFollow::follow`] each that is written later. Dropping the stream ends it.
    async fn open_log(&self, id: &SandboxId, wanted: LogFollow) -> Result<LogLines, RuntimeError>;

    /// Reads the settings and the state of the sandbox's main container.
    async fn inspect(&self, id: &SandboxId) -> Result<Inspection, RuntimeError>;
}

/// Wanted part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Most lines.
    pub lines: usize,
    /// No line from before this time.
    pub since: Option<WireTime>,
    /// Most bytes. The oldest lines are left out first.
    pub bytes: usize,
}

/// Part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogText {
    /// Whole lines, oldest first. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether lines were left out because of [`LogQuery::bytes`].
    pub is_cut: bool,
}

impl LogText {
    /// Takes the wanted part of raw output, whose beginning may be missing.
    #[must_use]
    pub fn of_output(output: &[u8], query: &LogQuery, is_cut: bool) -> Self {
        let text = String::from_utf8_lossy(output);
        let mut all: Vec<&str> = text.split_inclusive('\n').collect();
        if is_cut && !all.is_empty() {
            // The first line may lack its beginning.
            all.remove(0);
        }
        // Engines take whole seconds: the output begins with the second of the wanted time.
        let is_early = |line: &str| {
            let (time, _) = line.split_once(' ').unwrap_or((line, ""));
            let time = WireTime::parse(time).ok();
            query.since.zip(time).is_some_and(|(since, at)| at < since)
        };
        let early = all.iter().take_while(|line| is_early(line)).count();
        let recent = &all[early..];
        let kept = &recent[recent.len().saturating_sub(query.lines)..];
        Self {
            text: kept.concat(),
            is_cut,
        }
    }
}

/// Settings and state of a main container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspection {
    /// Id of the container.
    pub container: String,
    /// Name of the container.
    pub name: String,
    /// The image that it was created from.
    pub image: String,
    /// State, in the runtime's word.
    pub status: String,
    /// Whether its process exists.
    pub is_running: bool,
    /// Whether it is frozen.
    pub is_paused: bool,
    /// Whether the kernel killed a process because the memory limit was reached.
    pub out_of_memory: bool,
    /// Exit status of its process, after the end.
    pub exit_code: Option<i64>,
    /// Number of restarts by the runtime.
    pub restarts: Option<i64>,
    /// When it was created.
    pub created: Option<WireTime>,
    /// When its process was started.
    pub started: Option<WireTime>,
    /// When its process ended.
    pub finished: Option<WireTime>,
    /// Why it could not be started.
    pub error: Option<String>,
    /// CPU limit in billionths of a core.
    pub nano_cpus: Option<i64>,
    /// Memory limit in bytes.
    pub memory_bytes: Option<i64>,
    /// Most processes and threads.
    pub pids: Option<i64>,
    /// The OCI runtime that runs it, by the name that the runtime knows it by.
    pub oci_runtime: Option<String>,
    /// Name and IP address of each network.
    pub networks: Vec<(String, String)>,
    /// Ports inside, and where they are published.
    pub ports: Vec<(String, Option<String>)>,
    /// Labels. The values of secret ones are replaced by [`MASK`].
    pub labels: BTreeMap<String, String>,
    /// Names of environment variables, sorted.
    pub environment: Vec<String>,
    /// The last health checks, oldest first.
    pub health_checks: Vec<HealthCheck>,
}

/// A health check that the runtime made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// When it ended.
    pub at: Option<WireTime>,
    /// Its exit status; 0 means healthy.
    pub exit_code: i64,
    /// What it printed.
    pub output: String,
}

/// What is shown in place of a secret.
pub const MASK: &str = "***";

/// Words in the names of secrets.
const SECRET_WORDS: [&str; 5] = ["SECRET", "TOKEN", "PASSWORD", "KEY", "CREDENTIAL"];

/// Whether a name is likely to be that of a secret.
#[must_use]
pub fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        let text = |output: &[u8], lines, is_cut| {
            let query = LogQuery {
                lines,
                since: None,
                bytes: usize::MAX,
            };
            LogText::of_output(output, &query, is_cut).text
        };
        assert_eq!(text(b"a\nb\nc\n", 2, false), "b\nc\n");
        assert_eq!(text(b"a\nb", 9, false), "a\nb", "an end without a newline");
        assert_eq!(text(b"lf of a line\nb\n", 9, true), "b\n");
        assert_eq!(text(b"\xff\n", 1, false), "\u{fffd}\n");
        assert_eq!(text(b"", 1, true), "");
    }

    #[test]
    fn no_line_is_from_before_the_wanted_time() {
        let output = b"2031-05-01T10:00:01.100000001Z early\n\
            2031-05-01T10:00:01.299999999Z early\n\
            2031-05-01T10:00:01.300000001Z wanted\n\
            2031-05-01T10:00:02Z wanted, too\n";
        let query = |lines, since| LogQuery {
            lines,
            since: Some(WireTime::parse(since).unwrap()),
            bytes: usize::MAX,
        };
        let lines = |lines, since| {
            let log = LogText::of_output(output, &query(lines, since), false);
            log.text.lines().count()
        };
        assert_eq!(lines(9, "2031-05-01T10:00:01.3Z"), 2);
        assert_eq!(lines(1, "2031-05-01T10:00:01.3Z"), 1);
        assert_eq!(lines(9, "2031-05-01T10:00:01Z"), 4);
        assert_eq!(lines(9, "2031-05-01T10:00:03Z"), 0);
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "API_KEY",
            "db-password",
            "x.token",
            "MySecret",
            "credentials",
        ] {
            assert!(names_secret(name), "{name}");
        }
        assert!(!names_secret("PATH"));
    }
}

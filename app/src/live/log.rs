//! What the topic `sandbox/{id}/logs` carries.

use serde::{Deserialize, Serialize};

/// Which of its outputs a program wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogStream {
    /// The standard output.
    #[serde(rename = "o")]
    Output,
    /// The standard error.
    #[serde(rename = "e")]
    Error,
}

/// One line: when it was written in Unix microseconds (0 if unknown), where, and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine(pub i64, pub LogStream, pub String);

/// Consecutive lines of a log. A snapshot has the last ones, a delta new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBatch {
    /// Who counted the lines. The numbers of another run are unrelated.
    pub run: u64,
    /// Number of the first line. Numbers between two batches that are in neither belong to lines that
    /// were left out because there were too many at once.
    pub first: u64,
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Whether more may come.
    pub state: LogState,
}

/// Whether a log goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogState {
    /// It has not been read yet.
    #[default]
    Waiting,
    /// Lines follow as they are written.
    Following,
    /// The entry point ended.
    Ended,
    /// It cannot be read at present, for this reason. The server tries again.
    Failed(String),
}

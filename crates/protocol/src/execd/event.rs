//! Events of a stream: compact JSON objects, each followed by two newlines (contract: execd §4).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One event. The order of the members is the order on the wire; empty ones are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Id of the run, a piece of output, or `pong`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Number of the execution in its code context.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub execution_count: i64,
    /// Wall time of the run in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub execution_time: i64,
    /// Unix milliseconds.
    pub timestamp: i64,
    /// Results by MIME type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, Value>,
    /// Why the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExecutionError>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Event {
    /// The exit code that this event carries, as every SDK infers it (contract: execd A1.5).
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match (self.kind, &self.error) {
            (EventKind::ExecutionComplete, _) => Some(0),
            (EventKind::Error, Some(error)) => error.evalue.parse().ok(),
            _ => None,
        }
    }
}

/// Content of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// First event: `text` is the id of the run.
    Init,
    /// Keeps the connection awake.
    Ping,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// State of a code execution.
    Status,
    /// Number of a code execution.
    ExecutionCount,
    /// Result of a code execution.
    Result,
    /// The run failed.
    Error,
    /// The run ended well.
    ExecutionComplete,
    /// A kind this build does not know.
    #[serde(other)]
    Unknown,
}

/// How a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionError {
    /// Class of the error, such as `CommandExecError`.
    pub ename: String,
    /// Its value: the exit code in decimal for a command, `-1` after a signal.
    pub evalue: String,
    /// Lines for people.
    #[serde(default)]
    pub traceback: Option<Vec<String>>,
}

/// `ename` of a command that did not end with 0.
pub const COMMAND_ERROR: &str = "CommandExecError";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_members_are_left_out_and_order_is_fixed() {
        let text =
            r#"{"type":"execution_complete","execution_time":104,"timestamp":1767225600105}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.exit_code(), Some(0));
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        let text = r#"{"type":"error","timestamp":1,"error":{"ename":"CommandExecError","evalue":"3","traceback":["exit status 3"]}}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.exit_code(), Some(3));
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }

    #[test]
    fn events_of_later_releases_are_read() {
        let event: Event =
            serde_json::from_str(r#"{"type":"novelty","timestamp":1,"seq":4}"#).unwrap();
        assert_eq!(event.kind, EventKind::Unknown);
        assert_eq!(event.exit_code(), None);
    }
}

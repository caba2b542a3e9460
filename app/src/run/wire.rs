//! Messages of `/console/run/{sandbox}`: JSON in text frames, in both directions. Those of the server are
//! also sent at `/console/output/{sandbox}`, where a page sends none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::live::LogStream;

/// Longest limit of a command, in seconds.
pub const SECONDS_MAX: u32 = 86_400;

/// A message of the page. The first one is an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum RunRequest {
    /// Starts the command.
    Run(RunOrder),
    /// Ends the command: a request to its process group, and after three seconds force.
    Interrupt,
}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrder {
    /// Text for the shell.
    pub command: String,
    /// Working directory; execd's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User id; execd's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Seconds until the command is killed, up to [`SECONDS_MAX`]; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Variables beside those of execd.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, String>,
    /// Whether execd keeps all of its output for a day, with both outputs in one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RunMessage {
    /// The server waits for the order.
    Ready,
    /// The command runs.
    Started,
    /// So many bytes before the next line are not sent.
    Earlier {
        /// Their number.
        bytes: u64,
    },
    /// What it wrote, oldest first.
    Output {
        /// The lines.
        lines: Vec<RunLine>,
    },
    /// It ended. Nothing follows.
    Ended(Ended),
    /// It does not run, or what became of it is not known. Nothing follows.
    Refused {
        /// Why, in words.
        message: String,
    },
}

/// A line: where it was written, and its text without the line's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLine(pub LogStream, pub String);

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its exit status, if it has one: -1 after a signal.
    pub exit_code: Option<i32>,
    /// How long it ran.
    pub millis: i64,
    /// Why it failed, in words.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn orders_read_as_documented() {
        let read = |value| serde_json::from_value::<RunRequest>(value);
        let order = RunOrder {
            command: "true".to_owned(),
            cwd: Some("/".to_owned()),
            ..RunOrder::default()
        };
        let json = json!({ "op": "run", "command": "true", "cwd": "/" });
        assert_eq!(read(json).unwrap(), RunRequest::Run(order));
        let stop = read(json!({ "op": "interrupt" })).unwrap();
        assert_eq!(stop, RunRequest::Interrupt);
        assert!(read(json!({ "op": "run" })).is_err());
    }
}

//! Commands (contract: execd §5, A2.1).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Body of `POST /command`. Exactly one of `command` and `argv` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommand {
    /// Text for the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Program and arguments, run without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Working directory; `~` and `$NAME` are expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Answer as soon as the process runs; its output is kept for the logs.
    #[serde(default)]
    pub background: bool,
    /// Milliseconds until the process group is killed; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// User to run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group to run as; needs `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Variables on top of execd's own and those of the `EXECD_ENVS` file.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
}

/// The contract takes a `null` value of a variable as the empty string.
fn null_is_empty<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let map = Option::<BTreeMap<String, Option<String>>>::deserialize(deserializer)?;
    Ok(map
        .into_iter()
        .flatten()
        .map(|(name, value)| (name, value.unwrap_or_default()))
        .collect())
}

/// Answer of `GET /command/status/{id}` (contract: execd §5.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandStatus {
    /// Id of the command: 32 hex digits.
    pub id: String,
    /// The command text, or the argument list as JSON text.
    pub content: String,
    /// Whether the process still runs.
    pub running: bool,
    /// Absent while running; -1 after a signal, 255 when a background process could not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed, such as `exit status 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_nulls_mean_absent() {
        let run: RunCommand = serde_json::from_str(
            r#"{"command":"true","cwd":null,"timeout":null,"uid":null,"gid":null,"envs":null}"#,
        )
        .unwrap();
        let want = RunCommand {
            command: Some("true".into()),
            ..RunCommand::default()
        };
        assert_eq!(run, want);
        let run: RunCommand = serde_json::from_str(r#"{"envs":{"A":null,"B":"b"}}"#).unwrap();
        assert_eq!(run.envs["A"], "");
        assert_eq!(run.envs["B"], "b");
    }

    #[test]
    fn status_of_a_running_command_has_no_end() {
        let status = CommandStatus {
            id: "3f0c".into(),
            content: "sleep 2".into(),
            running: true,
            exit_code: None,
            error: None,
            started_at: "2026-01-01T00:00:00.1Z".parse().unwrap(),
            finished_at: None,
        };
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"id":"3f0c","content":"sleep 2","running":true,"started_at":"2026-01-01T00:00:00.1Z"}"#
        );
    }
}

//! Isolated execution: sessions with namespaces of their own (contract: execd A4).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Body of `POST /v1/isolated/session`. Absent members have the defaults of contract: execd A4.2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewIsolatedSession {
    /// The older form of one overlay; becomes the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Mount>,
    /// What is mounted over the read-only root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<Mount>,
    /// `strict` or `balanced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Paths made writable inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_writable: Vec<String>,
    /// Paths of the sandbox shown elsewhere inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    /// Whether the network is the sandbox's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_net: Option<bool>,
    /// Which variables of the daemon get in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_passthrough: Option<EnvPassthrough>,
    /// User inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// How that user comes about: `setpriv` or `userns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid_mode: Option<String>,
    /// Seconds without a run until the session ends; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i64>,
}

/// One overlay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute and clean.
    #[serde(default)]
    pub path: String,
    /// `rw`, `ro` or `overlay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether what an overlay takes up is on the disk; for `overlay` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
}

/// A path of the sandbox shown inside a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Path in the sandbox.
    #[serde(default)]
    pub source: String,
    /// Path in the session; the same when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    /// Whether it cannot be written through this mount.
    #[serde(default, deserialize_with = "null_is_default")]
    pub readonly: bool,
}

/// Which variables of the daemon a session gets (contract: execd A6.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvPassthrough {
    /// `deny` or `allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Names.
    #[serde(default, deserialize_with = "null_is_default")]
    pub keys: Vec<String>,
}

/// The contract takes `null` for every optional member.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Answer of `POST /v1/isolated/session`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedSessionCreated {
    /// Id of the session: a UUID with dashes.
    pub session_id: String,
    /// When it was created.
    pub created_at: Timestamp,
}

/// Answer of `GET /v1/isolated/session/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedSession {
    /// Its state.
    pub status: IsolatedStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// End of the last run; the creation before the first.
    pub last_run_at: Timestamp,
    /// Until it expires; only with a timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_remaining_seconds: Option<u64>,
    /// Its specification, with defaults filled in.
    #[serde(flatten)]
    pub made: NewIsolatedSession,
}

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolatedStatus {
    /// Runs can be started.
    Active,
    /// Its processes are gone.
    Dead,
    /// It is being removed.
    Destroyed,
}

/// One entry of `GET /v1/isolated/sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedSessionEntry {
    /// Id of the session.
    pub session_id: String,
    /// Its state.
    pub status: IsolatedStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// End of the last run; the creation before the first.
    pub last_run_at: Timestamp,
    /// Until it expires; only with a timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_remaining_seconds: Option<u64>,
}

/// Answer of `GET /v1/isolated/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedSessions {
    /// In the order of creation.
    pub sessions: Vec<IsolatedSessionEntry>,
}

/// Body of `POST /v1/isolated/session/{id}/run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIsolated {
    /// Text for the shell; required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Variables of this run only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, Option<String>>,
    /// Seconds until the run is ended; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// Answer as soon as it runs; its output is kept for the logs.
    #[serde(default)]
    pub background: bool,
}

/// Answer to a background run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedRunStarted {
    /// Id of the session.
    pub session_id: String,
    /// Id of the run.
    pub run_id: String,
    /// When it was started.
    pub started_at: Timestamp,
}

/// Answer of `GET /v1/isolated/session/{id}/runs/{run}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedRun {
    /// Id of the session.
    pub session_id: String,
    /// Id of the run.
    pub run_id: String,
    /// Whether its shell still runs.
    pub running: bool,
    /// Absent while running, and when the session ended first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it has no exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Answer of `GET /v1/isolated/capabilities` (contract: execd A4.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationCapabilities {
    /// Whether sessions can be created.
    pub available: bool,
    /// Name of the isolator.
    pub isolator: String,
    /// Its version.
    pub version: String,
    /// Whether sessions with the daemon's own identity can be made.
    pub setpriv_available: bool,
    /// Whether sessions in user namespaces can be made.
    pub userns_available: bool,
    /// Whether changes can be applied.
    pub commit_supported: bool,
    /// Whether changes can be listed.
    pub diff_supported: bool,
    /// Why nothing is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Further layers.
    pub hardening: Hardening,
    /// The orders of `--runtime-init` that are understood, whether or not it is on.
    #[serde(
        default,
        rename = "runtimeInit",
        skip_serializing_if = "Option::is_none"
    )]
    pub runtime_init: Option<RuntimeInitOrders>,
}

/// Which orders a daemon understands (contract: execd A9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeInitOrders {
    /// Version of their form.
    pub version: u32,
}

/// Layers around what the daemon starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardening {
    /// `none`, `subreaper` or `pid1`.
    pub init_mode: String,
    /// Whether signals to the daemon are kept from the user's processes.
    pub signal_shield: bool,
    /// Dropping capabilities of ordinary commands.
    pub cap_drop: Layer,
    /// The filter of system calls of sessions.
    pub seccomp: Layer,
    /// Landlock.
    pub landlock: Layer,
    /// Auditing.
    pub ebpf: Layer,
}

/// State of one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its state.
    pub state: LayerState,
    /// Why it is not active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    /// In force.
    Active,
    /// Off.
    Disabled,
    /// Only partly in force.
    Degraded,
    /// Unavailable.
    Unsupported,
}

/// Answer of `GET /v1/isolated/session/{id}/diff`; in no other server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedDiff {
    /// What differs from the sandbox's files, by path.
    pub changes: Vec<IsolatedChange>,
    /// Whether entries were left out.
    pub truncated: bool,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedChange {
    /// Absolute path.
    pub path: String,
    /// Kind of the difference.
    pub change: ChangeKind,
    /// Present kind of the entry; absent when it was deleted.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<super::file::FileKind>,
    /// Bytes; only for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Created.
    Added,
    /// Content, kind, owner or mode changed.
    Modified,
    /// Deleted.
    Deleted,
}

/// Answer of `commit` and `discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedChangesSettled {
    /// Number of changes that were applied or discarded.
    pub changes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_echoes_what_it_was_made_from() {
        let made = NewIsolatedSession {
            overlays: vec![Mount {
                path: "/workspace".into(),
                mode: Some("overlay".into()),
                persist: Some(true),
            }],
            uid: Some(4_000_000_000),
            idle_timeout_seconds: Some(0),
            ..NewIsolatedSession::default()
        };
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let session = IsolatedSession {
            status: IsolatedStatus::Active,
            created_at: at,
            last_run_at: at,
            idle_remaining_seconds: None,
            made,
        };
        let text = r#"{"status":"active","created_at":"2026-01-02T03:04:05Z","last_run_at":"2026-01-02T03:04:05Z","overlays":[{"path":"/workspace","mode":"overlay","persist":true}],"uid":4000000000,"idle_timeout_seconds":0}"#;
        assert_eq!(serde_json::to_string(&session).unwrap(), text);
        assert_eq!(
            serde_json::from_str::<IsolatedSession>(text).unwrap(),
            session
        );
    }
}

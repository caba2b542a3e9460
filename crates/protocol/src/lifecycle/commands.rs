//! Commands that a sandbox ran. An addition to the contract.

use serde::{Deserialize, Serialize};

use crate::{SandboxId, WireTime};

/// The last commands of a sandbox, without output and environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxCommandList {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Source of the list: always `sandbox`. Programs in the sandbox may have forged it.
    pub reported_by: String,
    /// The commands, newest first.
    pub commands: Vec<SandboxCommand>,
}

/// A command, as the sandbox reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxCommand {
    /// `foreground`, `background`, `session` or `isolated`.
    pub kind: String,
    /// The command text, or the argument list as JSON text; secrets are masked, and a long text is cut.
    pub command: String,
    /// Working directory, if the client gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User, if the client gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    /// When it began.
    pub started_at: WireTime,
    /// When it ended; absent while it runs, and if the sandbox did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<WireTime>,
    /// Exit status: -1 after a signal, 255 when it could not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

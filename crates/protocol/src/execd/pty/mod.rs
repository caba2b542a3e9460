//! Terminal sessions (contract: execd §9, A10): the bodies of their routes, and the frames and
//! close codes of their WebSocket.
//!
//! Execd, the SDK, the server's terminal bridge and the console's page all read and write frames
//! with this codec: [`BinaryFrame`] for messages that begin with a tag byte, [`ClientFrame`] and
//! [`ServerFrame`] for JSON text.

mod binary;
pub mod close_code;
mod text;

use serde::{Deserialize, Serialize};

pub use binary::{BinaryFrame, REPLAY, STDERR, STDIN, STDOUT};
pub use text::{ClientFrame, ServerFrame};

/// Body of `POST /pty`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPty {
    /// Working directory; created if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Command for the shell; absent: an interactive shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether a process whose environment names no locale gets one with UTF-8; absent: if the image
    /// has it (not in the contract).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utf8: Option<bool>,
}

/// Answer of `POST /pty`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtyCreated {
    /// Id of the session.
    pub session_id: String,
}

/// Answer of `GET /pty/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtyStatus {
    /// Id of the session.
    pub session_id: String,
    /// Whether its process runs.
    pub running: bool,
    /// Bytes of output since its start.
    pub output_offset: u64,
}

/// How the process is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PtyMode {
    /// A terminal.
    Pty,
    /// Three pipes.
    Pipe,
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PtyRole {
    /// Reads and writes; at most one.
    Holder,
    /// Reads only.
    Viewer,
}

//! Terminal sessions (contract: execd §9, A10).
//!
//! Binary frames begin with a tag byte; text frames are JSON.

use serde::{Deserialize, Serialize};

/// Tag of a binary frame from the client: bytes for standard input.
pub const STDIN: u8 = 0x00;
/// Tag of a binary frame to the client: output of the terminal, or standard output.
pub const STDOUT: u8 = 0x01;
/// Tag of a binary frame to the client: standard error (pipe mode only).
pub const STDERR: u8 = 0x02;
/// Tag of a binary frame to the client: output from before, after eight bytes with the big-endian
/// offset of its first byte.
pub const REPLAY: u8 = 0x03;
/// Close code of a client whose place another one took.
pub const CLOSE_TAKEN_OVER: u16 = 4001;

/// Body of `POST /pty`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPty {
    /// Working directory; made when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Command for the shell; absent: an interactive shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
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
    /// Bytes of output it ever produced.
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

/// Text frames to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerFrame {
    /// The client is attached; live output follows.
    Connected {
        /// Id of the session.
        session_id: String,
        /// How the process is connected.
        mode: PtyMode,
        /// What this connection may do.
        role: PtyRole,
    },
    /// Answer to [`ClientFrame::Ping`].
    Pong,
    /// The client's frame was refused, or the session could not start.
    Error {
        /// Text for people.
        error: String,
        /// Stable code.
        code: String,
    },
    /// The process ended, and all its output was sent before.
    Exit {
        /// Its status; -1 after a signal.
        exit_code: i32,
    },
}

/// Text frames from the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ClientFrame {
    /// Text for standard input.
    Stdin {
        /// The text.
        #[serde(default)]
        data: String,
    },
    /// New size of the terminal.
    Resize {
        /// Columns.
        #[serde(default)]
        cols: u32,
        /// Rows.
        #[serde(default)]
        rows: u32,
    },
    /// A signal for the process group, by name.
    Signal {
        /// `SIGINT`, `SIGTERM`, `SIGKILL`, `SIGQUIT` or `SIGHUP`.
        #[serde(default)]
        signal: String,
    },
    /// Asks for a pong.
    Ping,
    /// A type this build does not know.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_tagged_by_type() {
        let show = |frame: &ServerFrame| serde_json::to_string(frame).unwrap();
        assert_eq!(
            show(&ServerFrame::Exit { exit_code: 0 }),
            r#"{"type":"exit","exit_code":0}"#
        );
        assert_eq!(show(&ServerFrame::Pong), r#"{"type":"pong"}"#);
        assert_eq!(
            show(&ServerFrame::Connected {
                session_id: "a".into(),
                mode: PtyMode::Pipe,
                role: PtyRole::Viewer
            }),
            r#"{"type":"connected","session_id":"a","mode":"pipe","role":"viewer"}"#
        );
        let read = |text| serde_json::from_str::<ClientFrame>(text).unwrap();
        let size = ClientFrame::Resize {
            cols: 120,
            rows: 40,
        };
        assert_eq!(read(r#"{"type":"resize","cols":120,"rows":40}"#), size);
        assert_eq!(read(r#"{"type":"dance","x":1}"#), ClientFrame::Unknown);
    }
}

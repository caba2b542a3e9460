//! History of commands. An addition to the contract.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Page of `GET /commands/history`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHistoryPage {
    /// Commands that began or ended after the given revision, by revision.
    pub entries: Vec<CommandHistoryEntry>,
    /// Whether there are more after the last entry.
    pub more: bool,
    /// When this execd began to record, in Unix microseconds. Revisions of another epoch mean
    /// nothing.
    pub epoch: i64,
}

/// A command, without its output and environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHistoryEntry {
    /// Number of the command, from 1.
    pub number: u64,
    /// Grows with every begin and end of a command.
    pub revision: u64,
    /// Its id, by which it is interrupted; absent for runs in sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How it was run.
    pub kind: CommandKind,
    /// The command text, or the argument list as JSON text; secrets are masked, and a long text is cut.
    pub command: String,
    /// Working directory, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User that it runs as, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Its exit status: -1 after a signal, 255 when it could not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a command was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandKind {
    /// `POST /command`.
    Foreground,
    /// `POST /command` with `background`.
    Background,
    /// In a shell session.
    Session,
    /// In an isolated session.
    Isolated,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl CommandKind {
    /// Name in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Background => "background",
            Self::Session => "session",
            Self::Isolated => "isolated",
            Self::Other => "other",
        }
    }
}

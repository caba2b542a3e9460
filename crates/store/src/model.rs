//! Rows as types.

use std::collections::BTreeMap;

use osb_protocol::{SandboxId, WireTime};

/// What changed of one sandbox since its create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Renewed expiry.
    pub expires_at: Option<WireTime>,
    /// Patched metadata; replaces the labels' wholly.
    pub metadata: Option<BTreeMap<String, String>>,
    /// When deletion was asked for.
    pub deleted_at: Option<WireTime>,
    /// The tenant whose sandbox it is, as the last change kept it.
    pub tenant: Option<String>,
}

/// Digests of the files of a sandbox that were imported from another server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedFiles {
    /// Of the file with its expiry.
    pub expiry: Option<[u8; 32]>,
    /// Of the file with its metadata.
    pub metadata: Option<[u8; 32]>,
}

/// What files of another server say about a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignImport {
    /// The expiry to keep, if any.
    pub expires_at: Option<WireTime>,
    /// The metadata to keep, if any.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The tenant whose sandbox it is.
    pub tenant: Option<String>,
    /// All files of the sandbox that are imported by now.
    pub files: ImportedFiles,
}

/// How a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A client deleted it.
    Deleted,
    /// The sandbox expired.
    Expired,
    /// The create failed.
    CreateFailed,
    /// The client disconnected before it had the response.
    Abandoned,
    /// The container was removed outside this server.
    Vanished,
}

impl Outcome {
    /// The stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::CreateFailed => "create_failed",
            Self::Abandoned => "abandoned",
            Self::Vanished => "vanished",
        }
    }

    pub(crate) fn from_stored(name: &str) -> Self {
        match name {
            "deleted" => Self::Deleted,
            "expired" => Self::Expired,
            "create_failed" => Self::CreateFailed,
            "abandoned" => Self::Abandoned,
            _ => Self::Vanished,
        }
    }
}

/// When a stage of a create was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageTime {
    /// Name of the stage.
    pub stage: String,
    /// When.
    pub at: WireTime,
}

/// What an ended sandbox had been created with, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedSpec {
    /// Its metadata at the end.
    pub metadata: BTreeMap<String, String>,
    /// Its entry point.
    pub entrypoint: Vec<String>,
    /// Resource limits as requested.
    pub resources: BTreeMap<String, String>,
    /// When it would have expired, or did; `None` for one without an expiry.
    pub expires_at: Option<WireTime>,
}

/// A sandbox that is gone, or a create that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Its name.
    pub id: SandboxId,
    /// Requested image.
    pub image: String,
    /// When it was accepted.
    pub created_at: WireTime,
    /// When it ended.
    pub ended_at: WireTime,
    /// How it ended.
    pub outcome: Outcome,
    /// Error code or state reason.
    pub reason: String,
    /// The reason in words.
    pub message: String,
    /// Stages of its create.
    pub stages: Vec<StageTime>,
    /// The tenant whose sandbox it was.
    pub tenant: Option<String>,
    /// What it had been created with.
    pub spec: EndedSpec,
}

/// A console session as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Session id.
    pub id: String,
    /// Encoded contents.
    pub data: Vec<u8>,
    /// Unix seconds.
    pub expires_at: i64,
}

/// A create whose client does not know its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnansweredCreate {
    /// The sandbox.
    pub id: SandboxId,
    /// Requested image.
    pub image: String,
    /// When it was accepted.
    pub created_at: WireTime,
    /// The tenant whose sandbox it is.
    pub tenant: Option<String>,
}

/// An idempotency key of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKey {
    /// Digest of the key and what it is unique within.
    pub key: [u8; 32],
    /// Digest of the request that used it first.
    pub body: [u8; 32],
    /// The sandbox of that request.
    pub sandbox_id: SandboxId,
    /// When it was used.
    pub used_at: WireTime,
}

/// Consecutive samples of a sandbox's resource use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricStretch {
    /// The sandbox.
    pub id: SandboxId,
    /// Seconds from one sample to the next.
    pub step: u32,
    /// Which of the stretches with this step it replaces.
    pub place: u32,
    /// Time of the first sample, in Unix seconds.
    pub start: i64,
    /// When it was written, in Unix seconds.
    pub written_at: i64,
    /// The samples, encoded by the server.
    pub points: Vec<u8>,
}

/// A command that the execd of a sandbox reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedCommand {
    /// When it began, in Unix microseconds.
    pub started_at: i64,
    /// Its number since execd was started.
    pub number: i64,
    /// How it was run.
    pub kind: String,
    /// Its text.
    pub command: String,
    /// Its working directory, if the client gave one.
    pub cwd: Option<String>,
    /// Its user, if the client gave one.
    pub uid: Option<i64>,
    /// When it ended, in Unix microseconds.
    pub finished_at: Option<i64>,
    /// Its exit status.
    pub exit_code: Option<i32>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it was reported, in Unix seconds.
    pub reported_at: i64,
}

//! Messages from the daemon to a session's init: the session's plan once, then every run and every
//! file request. Both sides are the same program, so the format is private.

use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Setup of a session for its init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// In mount order: a parent before its children.
    pub(super) overlays: Vec<Overlay>,
    pub(super) binds: Vec<Bound>,
    /// Whether the session has its own `/tmp`.
    pub(super) own_tmp: bool,
    pub(super) share_net: bool,
    /// Hidden, so that sessions do not see the changes of other sessions.
    pub(super) upper_root: Option<PathBuf>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Whether a user namespace provides the session's ids.
    pub(super) userns: bool,
    /// The daemon's user and group, which those ids map to outside the namespace.
    pub(super) outside: (u32, u32),
    /// System calls to refuse.
    pub(super) deny: Vec<String>,
    /// Limit of concurrent processes.
    pub(super) processes: u32,
}

/// Overlay of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Overlay {
    /// Its place, without links.
    pub(super) path: PathBuf,
    /// The path in the request, which may lead there through links.
    pub(super) asked: PathBuf,
    pub(super) mode: Mode,
}

/// How an overlay is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Mode {
    /// The directory itself.
    Writable,
    /// The directory itself, read-only.
    ReadOnly,
    /// The directory as the lower layer, with changes in these directories.
    OnDisk { upper: PathBuf, work: PathBuf },
    /// The same, with changes in memory.
    InMemory,
}

/// Bind mount, perhaps at another path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    pub(super) source: PathBuf,
    pub(super) dest: PathBuf,
    pub(super) readonly: bool,
    /// Member of the request that it comes from, for messages.
    pub(super) member: String,
}

/// Result of the init's setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ready {
    /// The session is ready. `without` names optional parts that are unavailable.
    Yes { without: Vec<String> },
    /// The setup failed.
    No { why: Refusal, message: String },
}

/// Reason why a session could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// The kernel or the daemon's rights do not allow namespaces or mounts.
    Namespaces,
    /// The identity cannot be assumed.
    Identity,
    /// A path in the request does not exist.
    Missing,
}

/// Order for one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) code: String,
    /// Initial variables of the shell; empty when a state is restored.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Search path for the shell.
    pub(super) search: Option<OsString>,
    /// Variables of this run only.
    pub(super) envs: Vec<(String, String)>,
    /// Initial working directory, unless a state overrides it.
    pub(super) cwd: PathBuf,
    /// Whether to restore a state.
    pub(super) restore: bool,
    /// Whether to save the state after the run.
    pub(super) report: bool,
    /// Directory that must be writable.
    pub(super) writable: Option<PathBuf>,
}

/// Event from the keeper of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KeeperEvent {
    /// The shell started.
    Started,
    /// The shell did not start, because the directory is not writable.
    NotWritable,
    /// The shell did not start.
    NotStarted(String),
    /// The shell exited.
    Exited(i32),
    /// A signal terminated the shell.
    Signalled { number: i32, core: bool },
}

/// Connection that carries a file request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileOrder {
    pub(super) view: crate::view::View,
}

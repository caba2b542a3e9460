//! What the init of a session is told: the session as a whole once, then every run and every
//! request for files. Both sides are the same program, so the form is nobody else's business.

use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};

/// A session as its init sets it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// In the order in which they are mounted: a parent before what lies in it.
    pub(super) overlays: Vec<Overlay>,
    pub(super) binds: Vec<Bound>,
    /// Whether `/tmp` is the session's own.
    pub(super) own_tmp: bool,
    pub(super) share_net: bool,
    /// Covered, so that sessions do not see what others wrote.
    pub(super) upper_root: Option<PathBuf>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Whether these are made by a user namespace.
    pub(super) userns: bool,
    /// User and group of the daemon, which they are outside then.
    pub(super) outside: (u32, u32),
    /// System calls that are refused.
    pub(super) deny: Vec<String>,
    /// Processes at once.
    pub(super) processes: u32,
}

/// One overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Overlay {
    pub(super) path: PathBuf,
    pub(super) mode: Mode,
}

/// How an overlay is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Mode {
    /// The directory itself.
    Writable,
    /// The directory itself, which cannot be written.
    ReadOnly,
    /// The directory below, and what is written above it in these directories.
    OnDisk { upper: PathBuf, work: PathBuf },
    /// The same in memory.
    InMemory,
}

/// A path shown inside, perhaps under another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    pub(super) source: PathBuf,
    pub(super) dest: PathBuf,
    pub(super) readonly: bool,
    /// The member of the request that it comes from, for messages.
    pub(super) member: String,
}

/// What the init says about its attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ready {
    /// The session is there. What could not be had and is not needed is told.
    Yes { without: Vec<String> },
    /// It is not.
    No { why: Refusal, message: String },
}

/// Why a session could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// The kernel or our rights do not allow namespaces or mounts.
    Namespaces,
    /// The identity cannot be assumed.
    Identity,
    /// Something that the request names is not there.
    Missing,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) code: String,
    /// What the shell starts with; nothing when a state is restored.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Where the shell is looked for.
    pub(super) search: Option<OsString>,
    /// Variables of this run only.
    pub(super) envs: Vec<(String, String)>,
    /// Where it starts, unless a state says otherwise.
    pub(super) cwd: PathBuf,
    /// Whether there is a state to restore.
    pub(super) restore: bool,
    /// Where the state it leaves is written, unless it is nobody's business.
    pub(super) report: bool,
    /// A directory that must be writable.
    pub(super) writable: Option<PathBuf>,
}

/// What the keeper of a run tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Told {
    /// The shell runs.
    Started,
    /// It does not, because a directory cannot be written.
    NotWritable,
    /// It does not.
    NotStarted(String),
    /// The shell ended by itself.
    Exited(i32),
    /// It was ended by a signal.
    Signalled { number: i32, core: bool },
}

/// One connection that carries requests for files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileOrder {
    pub(super) view: crate::view::View,
}

//! Events of a back end.

use osb_protocol::{SandboxId, WireTime};

use crate::{Observed, Role};

/// A change that a back end reports.
#[derive(Clone, Debug)]
pub enum RuntimeEvent {
    /// All sandboxes, sent after each (re)connect and periodically. A sandbox that is not listed does
    /// not exist.
    Synced {
        /// Every sandbox of this installation.
        all: Vec<Observed>,
        /// When the list was begun. A sandbox that started later may be missing.
        at: WireTime,
    },
    /// The back end stopped answering. Known states may be out of date until the next
    /// [`RuntimeEvent::Synced`].
    Lost {
        /// Description of the failure.
        reason: String,
    },
    /// The current state of a sandbox, after it started or reappeared.
    Changed(Box<Observed>),
    /// A container of a sandbox exited. For [`Role::Main`] this is the entry point.
    Exited {
        /// The sandbox.
        id: SandboxId,
        /// The container's role.
        role: Role,
        /// Exit status; 128 + n for signal n.
        code: i64,
        /// Time of the exit.
        at: WireTime,
    },
    /// The kernel killed a process because the memory limit was reached.
    OutOfMemory {
        /// The sandbox.
        id: SandboxId,
    },
    /// The sandbox was frozen or thawed.
    Paused {
        /// The sandbox.
        id: SandboxId,
        /// Whether it is frozen now.
        paused: bool,
        /// Time of the change.
        at: WireTime,
    },
    /// The sandbox was removed.
    Removed {
        /// The sandbox.
        id: SandboxId,
        /// Time of the removal. A create that retries removes the container of its first attempt,
        /// so a removal may precede the sandbox's start.
        at: WireTime,
    },
}

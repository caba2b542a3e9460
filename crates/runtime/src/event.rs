//! What a back end tells.

use osb_protocol::{SandboxId, WireTime};

use crate::{Observed, Role};

/// Something happened.
#[derive(Clone, Debug)]
pub enum RuntimeEvent {
    /// The full picture, after a (re)connect and every now and then: what is not in it does not
    /// exist.
    Synced {
        /// Every sandbox of this installation.
        all: Vec<Observed>,
        /// When the look was taken: what started later may be missing.
        at: WireTime,
    },
    /// The back end does not answer any more; what is known may be out of date until the next
    /// [`RuntimeEvent::Synced`].
    Lost {
        /// What was seen.
        reason: String,
    },
    /// A sandbox is as described: it started, or came back.
    Changed(Box<Observed>),
    /// A container of a sandbox ended: its command, for [`Role::Main`].
    Exited {
        /// Which sandbox.
        id: SandboxId,
        /// Which of its containers.
        role: Role,
        /// Its status; 128 + n for a signal.
        code: i64,
        /// When.
        at: WireTime,
    },
    /// The kernel killed a process because the memory limit was reached.
    OutOfMemory {
        /// Which.
        id: SandboxId,
    },
    /// Frozen or thawed.
    Paused {
        /// Which.
        id: SandboxId,
        /// Frozen?
        paused: bool,
        /// When.
        at: WireTime,
    },
    /// The sandbox is gone.
    Removed {
        /// Which.
        id: SandboxId,
        /// When: a create that tries again removes the container of its first attempt.
        at: WireTime,
    },
}

//! Data of actions on several sandboxes at once.

use osb_protocol::{SandboxId, WireTime};
use serde::{Deserialize, Serialize};

/// What is done to several sandboxes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAct {
    /// Extends their lives to this moment. Longer ones stay.
    Extend(WireTime),
    /// Freezes them.
    Pause,
    /// Thaws them.
    Resume,
    /// Removes them.
    Delete,
}

/// What a bulk action did, in one line. `done` is what it did to a sandbox, such as `paused`.
#[must_use]
pub fn bulk_summary<'a>(ends: impl Iterator<Item = &'a BulkEnd>, done: &str) -> String {
    let (mut all, mut skipped, mut failed) = (0, 0, 0);
    for end in ends {
        all += 1;
        match end {
            BulkEnd::Done => {}
            BulkEnd::Skipped(_) => skipped += 1,
            BulkEnd::Failed(_) => failed += 1,
        }
    }
    let mut text = format!("{} of {all} {done}", all - skipped - failed);
    for (count, word) in [(skipped, "skipped"), (failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(" · {count} {word}"));
        }
    }
    text
}

/// Most sandboxes of one bulk action.
pub const BULK_MAX: usize = 5_000;

/// What a bulk action did to one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkResult {
    /// The sandbox.
    pub id: SandboxId,
    /// How it went.
    pub end: BulkEnd,
}

/// How a bulk action went for one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkEnd {
    /// It was done.
    Done,
    /// Nothing had to be done, for this reason.
    Skipped(String),
    /// It was not done, for this reason.
    Failed(String),
}

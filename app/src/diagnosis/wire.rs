//! What travels between server and browser about the checks of a sandbox.

use osb_protocol::WireTime;
use serde::{Deserialize, Serialize};

/// A check that ran now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// What was checked, in a word or two.
    pub name: String,
    /// How it ended.
    pub end: CheckEnd,
    /// What was found, in words.
    pub text: String,
    /// How long it took, in milliseconds, if anything was asked.
    pub took_ms: Option<u64>,
    /// When it ended.
    pub at: Option<WireTime>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckEnd {
    /// All is well.
    Good,
    /// Something is wrong.
    Bad,
    /// There was nothing to check.
    Skipped,
}

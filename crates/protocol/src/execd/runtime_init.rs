//! Telling a warm daemon for whom it is (contract: execd A9.5). The request is read member by
//! member, so that an error can name the one that breaks a rule.

use serde::{Deserialize, Serialize};

/// Answer of `POST /internal/init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialized {
    /// Always the same.
    pub status: InitializedStatus,
    /// The sandbox's id, as it was told.
    pub sandbox_id: String,
    /// Which of its incarnations this is, as it was told.
    pub generation: u64,
    /// What was asked for and not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// What became of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InitializedStatus {
    /// Everything that it asks for is in force.
    Initialized,
}

/// Answer of `GET /ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether the daemon knows for whom it is.
    pub initialized: bool,
    /// The sandbox's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Which of its incarnations this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Why it never will; an addition of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

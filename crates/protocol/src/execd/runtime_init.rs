//! Telling a warm daemon for whom it is (contract: execd A9.5). The request is read member by
//! member, so that an error can name the one that breaks a rule.

use serde::{Deserialize, Serialize};

/// Answer of `POST /internal/init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialized {
    /// Always the same.
    pub status: InitializedStatus,
    /// Id of the sandbox, as received.
    pub sandbox_id: String,
    /// Generation of the sandbox, as received.
    pub generation: u64,
    /// Requested parts that were not applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Outcome of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InitializedStatus {
    /// All requested settings are in force.
    Initialized,
}

/// Answer of `GET /ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether the daemon has been initialised.
    pub initialized: bool,
    /// The sandbox's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Generation of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Why it never will be; not in the public contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

//! Diagnostics of one sandbox (contract: lifecycle §11).

use serde::{Deserialize, Serialize};

use crate::SandboxId;

/// Kind of a diagnostic content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DiagnosticKind {
    /// Output of the entry point.
    Logs,
    /// What happened to the sandbox.
    Events,
}

/// How a diagnostic content is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// In the answer.
    Inline,
    /// At another address.
    Url,
}

/// Logs or events of a sandbox. This server delivers all contents inline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DiagnosticContent {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// What it is.
    pub kind: DiagnosticKind,
    /// The requested scope, normalised.
    pub scope: String,
    /// How it is delivered.
    pub delivery: Delivery,
    /// Media type of the content.
    pub content_type: String,
    /// The content, of inline delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Length of the content in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_length: Option<u64>,
    /// Whether more exists than is delivered.
    pub truncated: bool,
    /// What the content lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

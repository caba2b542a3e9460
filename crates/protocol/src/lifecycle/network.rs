//! What the sidecar of a sandbox decided, and the policy that follows from it. Additions to the
//! contract.

use serde::{Deserialize, Serialize};

use super::NetworkPolicy;
use crate::WireTime;

/// Decisions of the sidecar that enforces the network policy of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkDecisions {
    /// Names that were asked for, in the order of their last query. The sidecar remembers those that
    /// were asked for last.
    #[serde(default)]
    pub names: Vec<NameDecision>,
    /// Value of `since` for later changes of names.
    #[serde(default)]
    pub next: u64,
    /// Destinations of packets within the last hour; always all. Empty if only names are enforced.
    #[serde(default)]
    pub destinations: Vec<DestinationDecision>,
}

/// What was decided about a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NameDecision {
    /// `allow` or `deny`: what happened to the last query. A name is allowed although all addresses of
    /// an answer are refused.
    pub action: String,
    /// Name that was asked for.
    pub name: String,
    /// Rule that decided, or `default`, or why an answer was withheld.
    pub rule: String,
    /// Number of queries.
    pub count: u64,
    /// Time of the first query that the sidecar remembers.
    pub first: WireTime,
    /// Time of the last query.
    pub last: WireTime,
    /// Number of the last change. Later ones have higher numbers.
    pub number: u64,
    /// Whether each answer of a name server said that the name does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nonexistent: bool,
}

/// What was decided about a destination of packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DestinationDecision {
    /// `allow` or `deny`.
    pub action: String,
    /// Destination address.
    pub address: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Destination port.
    pub port: u16,
    /// Number of refused packets, or of admitted ones that were judged: usually one a connection.
    pub count: u64,
    /// Allowed names that led to this address, as far as the sidecar remembers them.
    #[serde(default)]
    pub names: Vec<String>,
}

/// The smallest policy for what a sandbox asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyProposal {
    /// A policy that refuses everything else.
    pub policy: NetworkPolicy,
    /// What each rule of the policy is for, in the order of the rules.
    pub reasons: Vec<ProposedRule>,
    /// Names that the sandbox asked for and that do not exist: it needs no rules for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nonexistent: Vec<String>,
}

/// What a proposed rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProposedRule {
    /// Target of the rule.
    pub target: String,
    /// Names that it allows, or protocols and ports that were used at its address, such as `tcp/443`.
    pub covers: Vec<String>,
}

//! The audit trail: who did what to which object. The route is an addition of this server.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    WireTime,
    identity::{PrincipalKind, Role},
};

/// How an act ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// It was done.
    Succeeded,
    /// The actor may not do it: a wrong key or password, the role, a quota.
    Denied,
    /// It could not be done, or its client disconnected before the answer.
    Failed,
}

impl AuditOutcome {
    /// All outcomes.
    pub const ALL: [Self; 3] = [Self::Succeeded, Self::Denied, Self::Failed];

    /// The name on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }

    /// The outcome of a request by the status of its answer.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            ..=399 => Self::Succeeded,
            401 | 403 => Self::Denied,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for AuditOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not the name of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of succeeded, denied, failed")]
pub struct NotAnOutcome;

impl FromStr for AuditOutcome {
    type Err = NotAnOutcome;

    fn from_str(name: &str) -> Result<Self, NotAnOutcome> {
        let mut all = Self::ALL.into_iter();
        all.find(|outcome| outcome.as_str() == name)
            .ok_or(NotAnOutcome)
    }
}

/// What an actor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditActorKind {
    /// Any client of a server without authentication.
    Anonymous,
    /// The server's configured API key.
    ConfiguredKey,
    /// An API key of the store.
    ApiKey,
    /// A key of the tenant provider.
    TenantKey,
    /// A user.
    User,
    /// The server itself.
    System,
    /// An operator at the command line of the server's machine.
    CommandLine,
    /// A client that proved no identity.
    Unknown,
}

impl From<PrincipalKind> for AuditActorKind {
    fn from(kind: PrincipalKind) -> Self {
        match kind {
            PrincipalKind::Anonymous => Self::Anonymous,
            PrincipalKind::ConfiguredKey => Self::ConfiguredKey,
            PrincipalKind::ApiKey => Self::ApiKey,
            PrincipalKind::TenantKey => Self::TenantKey,
            PrincipalKind::User => Self::User,
        }
    }
}

/// Who acted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditActor {
    /// What it is.
    pub kind: AuditActorKind,
    /// Stable id within its kind; empty for an unknown client.
    pub id: String,
    /// Name for people at that time. For an unknown client the name that it gave, if it gave one.
    pub name: String,
    /// Its role at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The tenant that it was limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// What was acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditObject {
    /// What it is, such as `sandbox` or `user`.
    pub kind: String,
    /// Its id; empty when none was made or known.
    pub id: String,
}

/// One act, or a number of equal refusals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Id, never used again.
    #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
    pub id: String,
    /// When the act ended.
    pub at: WireTime,
    /// What was done, such as `sandbox.create`.
    pub action: String,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// HTTP status of the answer; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Who acted.
    pub actor: AuditActor,
    /// What was acted on.
    pub object: AuditObject,
    /// The tenant whose object it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Number of equal refusals that this entry stands for; 1 for an act.
    pub count: u64,
    /// What was changed: `before` and `after` by member, or facts about the act. Never a secret.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, Value>))]
    pub changes: Map<String, Value>,
}

/// A page of the audit trail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditPage {
    /// Newest first.
    pub items: Vec<AuditEntry>,
    /// Value of `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_one_name_and_follow_from_the_status() {
        for outcome in AuditOutcome::ALL {
            assert_eq!(outcome.as_str().parse(), Ok(outcome));
            let json = serde_json::to_string(&outcome).unwrap();
            assert_eq!(json, format!("\"{outcome}\""));
        }
        assert_eq!("ok".parse::<AuditOutcome>(), Err(NotAnOutcome));
        for (status, want) in [
            (101, AuditOutcome::Succeeded),
            (303, AuditOutcome::Succeeded),
            (401, AuditOutcome::Denied),
            (403, AuditOutcome::Denied),
            (404, AuditOutcome::Failed),
            (503, AuditOutcome::Failed),
        ] {
            assert_eq!(AuditOutcome::of_status(status), want, "{status}");
        }
    }
}

//! The audit trail as rows, the same for every database.

use osb_protocol::{
    WireTime,
    audit::{AuditActor, AuditActorKind, AuditEntry, AuditObject, AuditOutcome},
    identity::Role,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::StoreError;

/// Which entries are wanted. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Entries before this place.
    pub before: Option<AuditPlace>,
    /// Entries at or after this time.
    pub since: Option<WireTime>,
    /// Entries before this time.
    pub until: Option<WireTime>,
    /// Id or name of the actor.
    pub actor: Option<String>,
    /// Name of the action.
    pub action: Option<String>,
    /// Id of a sandbox.
    pub sandbox: Option<String>,
    /// The tenant whose object it is.
    pub tenant: Option<String>,
    /// How it ended.
    pub outcome: Option<AuditOutcome>,
}

/// Place of an entry in the trail. Later entries have greater places; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditPlace(pub i64);

/// What is not searched for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Details {
    actor_kind: AuditActorKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor_role: Option<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor_tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    count: u64,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    changes: Map<String, Value>,
}

impl Details {
    fn unreadable() -> Self {
        Self {
            actor_kind: AuditActorKind::Unknown,
            actor_role: None,
            actor_tenant: None,
            status: None,
            code: None,
            address: None,
            request_id: None,
            count: 1,
            changes: Map::from_iter([("unreadable".to_owned(), Value::Bool(true))]),
        }
    }
}

/// The columns of an entry, in the order of the table.
pub(crate) struct Columns {
    pub(crate) id: String,
    pub(crate) at: WireTime,
    pub(crate) action: String,
    pub(crate) outcome: String,
    pub(crate) actor_id: String,
    pub(crate) actor_name: String,
    pub(crate) object_kind: String,
    pub(crate) object_id: String,
    pub(crate) tenant: Option<String>,
    pub(crate) details: String,
}

impl Columns {
    pub(crate) fn of(entry: &AuditEntry) -> Result<Self, StoreError> {
        let entry = entry.clone();
        let details = Details {
            actor_kind: entry.actor.kind,
            actor_role: entry.actor.role,
            actor_tenant: entry.actor.tenant,
            status: entry.status,
            code: entry.code,
            address: entry.address,
            request_id: entry.request_id,
            count: entry.count,
            changes: entry.changes,
        };
        Ok(Self {
            id: entry.id,
            at: entry.at,
            action: entry.action,
            outcome: entry.outcome.as_str().to_owned(),
            actor_id: entry.actor.id,
            actor_name: entry.actor.name,
            object_kind: entry.object.kind,
            object_id: entry.object.id,
            tenant: entry.tenant,
            details: serde_json::to_string(&details).map_err(|source| StoreError::Damaged {
                what: "an entry of the audit trail",
                source,
            })?,
        })
    }

    /// The entry. One whose details cannot be read keeps the rest: it must not hide the others.
    pub(crate) fn into_entry(self) -> AuditEntry {
        let details: Details =
            serde_json::from_str(&self.details).unwrap_or_else(|_| Details::unreadable());
        AuditEntry {
            id: self.id,
            at: self.at,
            action: self.action,
            // An outcome of a later release is none of the better ones.
            outcome: self.outcome.parse().unwrap_or(AuditOutcome::Failed),
            status: details.status,
            code: details.code,
            actor: AuditActor {
                kind: details.actor_kind,
                id: self.actor_id,
                name: self.actor_name,
                role: details.actor_role,
                tenant: details.actor_tenant,
            },
            object: AuditObject {
                kind: self.object_kind,
                id: self.object_id,
            },
            tenant: self.tenant,
            address: details.address,
            request_id: details.request_id,
            count: details.count,
            changes: details.changes,
        }
    }
}

/// Whether `store check` can read the details of an entry.
pub(crate) fn is_readable(details: &str) -> bool {
    serde_json::from_str::<Details>(details).is_ok()
}

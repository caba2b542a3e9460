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

/// Share of the kept entries that acts which did not succeed may take once there are too many: one in
/// this number. Clients without a key can cause them, and must not displace what was done.
const UNSUCCESSFUL_SHARE: u64 = 4;

/// How entries are read and pruned, in SQL that every database knows.
pub(crate) const COUNT: &str = "SELECT (SELECT COUNT(*) FROM audit_entries),
    (SELECT COUNT(*) FROM audit_entries WHERE outcome <> 'succeeded')";
pub(crate) const DELETE_UNSUCCESSFUL: &str = "DELETE FROM audit_entries WHERE seq IN (
    SELECT seq FROM audit_entries WHERE outcome <> 'succeeded' ORDER BY seq LIMIT $1)";
pub(crate) const DELETE_OLDEST: &str = "DELETE FROM audit_entries WHERE seq IN (
    SELECT seq FROM audit_entries ORDER BY seq LIMIT $1)";

/// The statement of a query. Each filter has its own parameter, in the order of the fields of
/// [`AuditQuery`], followed by the limit; a filter that is absent has no condition, because a database
/// uses no index for one that may be true of any row.
///
/// `without_index` stands before a column whose index must not be used.
pub(crate) fn select(query: &AuditQuery, without_index: &str) -> String {
    // The index of the time would have every page sort all entries of the time.
    let no_time = without_index;
    let no_tenant = query.sandbox.as_ref().map_or("", |_| without_index);
    let conditions = [
        (query.since.is_some(), format!("{no_time}at >= $2")),
        (query.until.is_some(), format!("{no_time}at < $3")),
        (
            query.actor.is_some(),
            "(actor_id = $4 OR actor_name = $4)".to_owned(),
        ),
        (query.action.is_some(), "action = $5".to_owned()),
        (
            query.sandbox.is_some(),
            "object_kind = 'sandbox' AND object_id = $6".to_owned(),
        ),
        (query.tenant.is_some(), format!("{no_tenant}tenant = $7")),
        (query.outcome.is_some(), "outcome = $8".to_owned()),
    ];
    let mut statement = "SELECT seq, id, at, action, outcome, actor_id, actor_name, object_kind,
           object_id, tenant, details
         FROM audit_entries WHERE seq < $1"
        .to_owned();
    for (_, condition) in conditions.iter().filter(|(is_wanted, _)| *is_wanted) {
        statement.push_str(" AND ");
        statement.push_str(condition);
    }
    statement.push_str(" ORDER BY seq DESC LIMIT $9");
    statement
}

impl AuditQuery {
    /// The place before which the entries are.
    pub(crate) fn end(&self) -> i64 {
        self.before.map_or(i64::MAX, |AuditPlace(place)| place)
    }
}

/// What one step deletes of entries beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// The oldest of those that did not succeed.
    pub(crate) unsuccessful: i64,
    /// Then the oldest.
    pub(crate) oldest: i64,
}

impl Excess {
    /// Of `all` entries, `unsuccessful` among them, `keep` are to stay; at most `most` go now.
    pub(crate) fn of((all, unsuccessful): (i64, i64), keep: u64, most: u32) -> Self {
        let limit = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let most = i64::from(most);
        let excess = all.saturating_sub(limit(keep)).max(0);
        let beyond_share = unsuccessful.saturating_sub(limit(keep / UNSUCCESSFUL_SHARE));
        let first = excess.min(beyond_share.max(0));
        let unsuccessful = first.min(most);
        Self {
            unsuccessful,
            oldest: (excess - first).min(most - unsuccessful),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::Excess;

    #[test]
    fn what_did_not_succeed_goes_first_down_to_its_share() {
        let excess = |all, unsuccessful, keep, most| {
            let Excess {
                unsuccessful,
                oldest,
            } = Excess::of((all, unsuccessful), keep, most);
            (unsuccessful, oldest)
        };
        assert_eq!(excess(100, 100, 100, 10), (0, 0), "no more than are kept");
        assert_eq!(excess(150, 60, 100, 1_000), (35, 15));
        assert_eq!(excess(150, 60, 100, 40), (35, 5));
        assert_eq!(excess(150, 60, 100, 10), (10, 0));
        assert_eq!(excess(150, 20, 100, 1_000), (0, 50));
        assert_eq!(excess(5, 5, 0, 1_000), (5, 0));
        assert_eq!(excess(5, 5, u64::MAX, 1_000), (0, 0));
    }
}

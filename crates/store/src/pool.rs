//! Pools of sandboxes, and what waits in them (contract: lifecycle §10).

use std::fmt;

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime, lifecycle::PoolCapacity};

use crate::StoreError;

/// A pool.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolRow {
    /// The tenant whose pool it is.
    pub tenant: Option<String>,
    /// Its name, unique within the tenant.
    pub name: String,
    /// What its sandboxes are made from, as JSON.
    pub template: String,
    /// Names the template.
    pub revision: String,
    /// How many sandboxes it keeps.
    pub capacity: PoolCapacity,
    /// When it was created.
    pub created_at: WireTime,
    /// When it was last changed.
    pub changed_at: WireTime,
}

/// Omits the template, whose variables may have secrets.
impl fmt::Debug for PoolRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolRow")
            .field("tenant", &self.tenant)
            .field("name", &self.name)
            .field("revision", &self.revision)
            .field("capacity", &self.capacity)
            .field("created_at", &self.created_at)
            .field("changed_at", &self.changed_at)
            .finish_non_exhaustive()
    }
}

/// A change of a pool.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolChange {
    /// How many sandboxes it keeps from now on.
    pub capacity: PoolCapacity,
    /// Another template as JSON, and its revision.
    pub template: Option<(String, String)>,
    /// When.
    pub at: WireTime,
}

/// Omits the template, whose variables may have secrets.
impl fmt::Debug for PoolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = self.template.as_ref().map(|(_, revision)| revision);
        f.debug_struct("PoolChange")
            .field("capacity", &self.capacity)
            .field("revision", &revision)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// State of a sandbox of a pool.
///
/// ```text
/// (accepted) ─▶ Warming ─▶ Ready ─▶ Claimed ─▶ (its history)
///                  └─────────┴────▶ Draining ─▶ (gone)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// It is being started.
    Warming,
    /// It waits for a claim.
    Ready,
    /// It is a client's.
    Claimed,
    /// It is to be removed, and never becomes a client's.
    Draining,
}

impl MemberState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Warming, Self::Ready, Self::Claimed, Self::Draining];

    /// Its name in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warming => "warming",
            Self::Ready => "ready",
            Self::Claimed => "claimed",
            Self::Draining => "draining",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A sandbox of a pool.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolMemberRow {
    /// Its id, also once it is a client's.
    pub id: SandboxId,
    /// The tenant of its pool.
    pub tenant: Option<String>,
    /// Name of its pool.
    pub pool: String,
    /// Revision of the template that it was made from.
    pub revision: String,
    /// Digest of the server's settings that it was started with: with others, it goes to no client.
    pub settings: String,
    /// Its state.
    pub state: MemberState,
    /// What its client asked for, as JSON. It may have secrets, as the engine's settings of a container
    /// have. `None` until it is claimed.
    pub claim: Option<String>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Since when it is in its state.
    pub changed_at: WireTime,
}

/// Omits the claim, which may have secrets.
impl fmt::Debug for PoolMemberRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemberRow")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("pool", &self.pool)
            .field("revision", &self.revision)
            .field("settings", &self.settings)
            .field("state", &self.state)
            .field("created_at", &self.created_at)
            .field("changed_at", &self.changed_at)
            .finish_non_exhaustive()
    }
}

/// Pools and their members. A claimed member is forgotten with the history of its sandbox.
#[async_trait]
pub trait PoolStore: Send + Sync + 'static {
    /// Adds a pool; `false` if the tenant has one of that name.
    async fn add_pool(&self, pool: &PoolRow) -> Result<bool, StoreError>;

    /// All pools, by tenant and name.
    async fn all_pools(&self) -> Result<Vec<PoolRow>, StoreError>;

    /// Changes a pool, and with another template makes those of its members draining that wait or are
    /// being started; `false` if there is no such pool.
    async fn change_pool(
        &self,
        tenant: Option<&str>,
        name: &str,
        change: &PoolChange,
    ) -> Result<bool, StoreError>;

    /// Removes a pool, and makes its members draining that wait or are being started; `false` if there
    /// is no such pool. Claimed members stay.
    async fn remove_pool(
        &self,
        tenant: Option<&str>,
        name: &str,
        at: WireTime,
    ) -> Result<bool, StoreError>;

    /// Adds a member that is to be started; `false` if its pool does not exist with its revision.
    async fn add_member(&self, member: &PoolMemberRow) -> Result<bool, StoreError>;

    /// Makes members draining that wait, and whose id a create has used that ended before its claim: an
    /// idempotency key may lead to it, or its answer was never written. Returns their number.
    async fn drain_used_members(&self, at: WireTime) -> Result<u64, StoreError>;

    /// All members, oldest first.
    async fn all_members(&self) -> Result<Vec<PoolMemberRow>, StoreError>;

    /// Changes a member that is in state `from`, and keeps a claim; `false` if it is not, or there is
    /// none. Of several calls from the same state, one succeeds.
    async fn change_member(
        &self,
        id: &SandboxId,
        from: MemberState,
        to: MemberState,
        claim: Option<&str>,
        at: WireTime,
    ) -> Result<bool, StoreError>;

    /// Forgets a member that is in state `from`; `false` if it is not, or there is none.
    async fn remove_member(&self, id: &SandboxId, from: MemberState) -> Result<bool, StoreError>;
}

/// A tenant as a part of a key: no tenant has an empty name.
pub(crate) fn key_of(tenant: Option<&str>) -> &str {
    tenant.unwrap_or_default()
}

/// A tenant as it was kept.
pub(crate) fn tenant_of(key: String) -> Option<String> {
    Some(key).filter(|tenant| !tenant.is_empty())
}

/// The state with a stored name. A member in an unknown one, which `store check` reports, goes to no
/// client.
pub(crate) fn read_state(name: &str) -> MemberState {
    MemberState::of(name).unwrap_or(MemberState::Draining)
}

/// A capacity as it was kept: `bufferMax`, `bufferMin`, `poolMax`, `poolMin`.
pub(crate) fn capacity([buffer_max, buffer_min, pool_max, pool_min]: [i64; 4]) -> PoolCapacity {
    let read = |number: i64| u32::try_from(number).unwrap_or_default();
    PoolCapacity {
        buffer_max: read(buffer_max),
        buffer_min: read(buffer_min),
        pool_max: read(pool_max),
        pool_min: read(pool_min),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_not_in_the_debug_output() {
        let at = WireTime::from_unix_us(1).unwrap();
        let template = r#"{"env":"s3cret"}"#.to_owned();
        let row = PoolRow {
            tenant: None,
            name: "p".to_owned(),
            template: template.clone(),
            revision: "r1".to_owned(),
            capacity: capacity([1; 4]),
            created_at: at,
            changed_at: at,
        };
        let change = PoolChange {
            capacity: row.capacity,
            template: Some((template, "r2".to_owned())),
            at,
        };
        let shown = format!("{row:?} {change:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("r1") && shown.contains("r2"), "{shown}");
    }
}

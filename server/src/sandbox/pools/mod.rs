//! Pools of sandboxes that are started before they are needed (contract: lifecycle §10).
//!
//! ```text
//!  refill ─▶ Warming ─▶ Ready ─▶ Claimed: a sandbox like any other
//!                └────────┴───▶ Draining ─▶ (gone)
//! ```
//!
//! A member is a sandbox of the runtime whose execd waits for a claim. Until it is claimed, the registry
//! does not have it, so that it is in no list, no quota and no event. Once it is claimed it never goes
//! back.
//!
//! * [`state`]: what this process knows. [`refill`]: starts and removes members.
//! * [`claim`]: members become clients' sandboxes. [`record`]: what the store has of that. [`repeat`]:
//!   claims that an end of the server or of the container has interrupted.
//! * [`fit`]: creates that name no pool and would make what waits in one.
//! * [`recovery`]: what the runtime reports of them, and what an earlier process left.
//! * [`template`]: what members are made from. [`limits`]: what a tenant's pools may keep.
//! * [`overview`]: what the console shows.

mod claim;
mod failure;
mod fit;
mod limits;
mod overview;
mod record;
mod recovery;
mod refill;
mod repeat;
mod state;
mod template;

use std::time::Duration;

use osb_protocol::{
    Feature, FieldError,
    lifecycle::{PoolCapacity, PoolResponse, PoolStatus},
};
use osb_runtime::Runtime;
use osb_store::{PoolChange, PoolRow};
use serde_json::{Value, json};
use tracing::info;

use self::state::Key;
use super::{Error, Limits, Service, lifecycle::now, pool_error::PoolError, too_many::TooMany};
use crate::identity::Scope;

pub(super) use {claim::instead_of_member, refill::start, repeat::Repeats, state::Pools};
pub use {
    failure::PoolFailure,
    overview::{PoolOverview, TemplateOverview},
    state::{Key as PoolKey, PoolCounts},
};

/// Longest name.
pub const NAME_MAX: usize = 253;

/// Largest template, in bytes of JSON: those of all pools are kept in memory.
const TEMPLATE_MAX: usize = 64 << 10;

/// What the operator allows of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Longest time that a create waits for a sandbox of its pool.
    pub acquisition: Duration,
    /// Whether a create that names no pool gets a sandbox that waits and is what it would make.
    pub serves_plain_creates: bool,
    /// Most pools of a tenant, and of those without one. Their templates are kept in memory.
    pub max_pools: u64,
    /// Most sandboxes that the pools of a tenant without a quota for sandboxes keep waiting.
    pub max_waiting: u32,
}

impl Default for PoolLimits {
    fn default() -> Self {
        // SDKs give a create 30 s in all.
        Self {
            acquisition: Duration::from_secs(20),
            serves_plain_creates: false,
            max_pools: 100,
            max_waiting: 100,
        }
    }
}

/// Identifies the settings that members get when they are started.
pub(super) fn settings_digest(runtime: &dyn Runtime, limits: &Limits) -> String {
    let policy = limits.default_policy.as_deref();
    let settings = json!([policy, limits.execd_auth, runtime.settings_digest()]);
    template::digest(&settings.to_string())
}

impl Service {
    /// The same domain for the pools of a tenant. A scope without a tenant reaches those of all.
    ///
    /// # Errors
    /// [`Error::Rule`] when the scope has another tenant.
    pub fn for_pools_of(self, tenant: &str) -> Result<Self, Error> {
        if self.scope.tenant() == Some(tenant) {
            return Ok(self);
        }
        if self.scope != Scope::All {
            return Err(Error::rule("tenant", "must be the tenant of the API key"));
        }
        Ok(Self {
            scope: Scope::of(Some(tenant)),
            ..self
        })
    }

    /// Adds a pool of the scope's tenant, which fills up by itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] when name or template break a rule or too many would wait,
    /// [`PoolError::Exists`], [`PoolError::TooMany`], and when the store fails.
    pub async fn create_pool(
        &self,
        name: String,
        template: Value,
        capacity: PoolCapacity,
    ) -> Result<PoolResponse, Error> {
        self.note_pool(&name, capacity);
        self.require_pools()?;
        self.check_pool(Some(&name), Some(&template))?;
        self.require_hold("add a pool")?;
        let at = now();
        let row = PoolRow {
            tenant: self.scope.tenant().map(str::to_owned),
            name,
            revision: template::revision(&template),
            template: template.to_string(),
            capacity,
            created_at: at,
            changed_at: at,
        };
        let service = self.clone();
        self.owned("add a pool", async move {
            let _one_at_a_time = service.inner.pools.edits.lock().await;
            if service
                .inner
                .pools
                .pool(&service.pool_key(&row.name))
                .is_some()
            {
                return Err(Error::Pool(PoolError::Exists(row.name)));
            }
            let count = service.inner.pools.of_tenant(row.tenant.as_deref()).len();
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            let most = service.inner.limits.pools.max_pools;
            TooMany::check("pools", count, most, "pools.max_pools")
                .map_err(|full| Error::Pool(PoolError::TooMany(full)))?;
            service.check_waiting(&row.name, capacity)?;
            if !service.inner.store.add_pool(&row).await? {
                return Err(Error::Pool(PoolError::Exists(row.name)));
            }
            info!(pool = row.name, revision = row.revision, "pool added");
            service.inner.pools.put_pool(row.clone());
            Ok(service.shown(row))
        })
        .await
    }

    /// The pools of the scope's tenant, by name.
    ///
    /// # Errors
    /// When the runtime has no pools.
    pub fn list_pools(&self) -> Result<Vec<PoolResponse>, Error> {
        self.require_pools()?;
        let rows = self.inner.pools.of_tenant(self.scope.tenant()).into_iter();
        Ok(rows.map(|row| self.shown(row)).collect())
    }

    /// One pool of the scope's tenant.
    ///
    /// # Errors
    /// [`PoolError::NotFound`].
    pub fn pool(&self, name: &str) -> Result<PoolResponse, Error> {
        self.require_pools()?;
        Ok(self.shown(self.pool_row(name)?))
    }

    /// Changes how many sandboxes a pool keeps, and with a template what they are made from: those that
    /// wait and have the former one are replaced.
    ///
    /// # Errors
    /// [`PoolError::NotFound`], [`Error::Invalid`] when the template breaks a rule or too many would wait,
    /// and when the store fails.
    pub async fn update_pool(
        &self,
        name: &str,
        capacity: PoolCapacity,
        template: Option<Value>,
    ) -> Result<PoolResponse, Error> {
        self.note_pool(name, capacity);
        self.require_pools()?;
        self.pool_row(name)?;
        self.check_pool(None, template.as_ref())?;
        self.require_hold("change a pool")?;
        let change = PoolChange {
            capacity,
            template: template.map(|it| (it.to_string(), template::revision(&it))),
            at: now(),
        };
        let (service, name) = (self.clone(), name.to_owned());
        self.owned("change a pool", async move {
            let pools = &service.inner.pools;
            let _one_at_a_time = pools.edits.lock().await;
            // Another edit may have come first.
            let mut row = service.pool_row(&name)?;
            service.check_waiting(&name, capacity)?;
            let store = &service.inner.store;
            let tenant = row.tenant.as_deref();
            if !store.change_pool(tenant, &name, &change).await? {
                pools.remove_pool(&service.pool_key(&name));
                return Err(Error::Pool(PoolError::NotFound(name)));
            }
            info!(pool = row.name, "pool changed");
            (row.capacity, row.changed_at) = (change.capacity, change.at);
            if let Some((template, revision)) = change.template {
                (row.template, row.revision) = (template, revision);
            }
            pools.put_pool(row.clone());
            Ok(service.shown(row))
        })
        .await
    }

    /// Removes a pool. What waits in it is removed; claimed sandboxes stay.
    ///
    /// # Errors
    /// [`PoolError::NotFound`], and when the store fails.
    pub async fn delete_pool(&self, name: &str) -> Result<(), Error> {
        if let Some(act) = &self.act {
            act.set_object(name);
            act.set_tenant(self.scope.tenant());
        }
        self.require_pools()?;
        self.require_hold("remove a pool")?;
        let key = self.pool_key(name);
        let service = self.clone();
        self.owned("remove a pool", async move {
            let pools = &service.inner.pools;
            let _one_at_a_time = pools.edits.lock().await;
            let (tenant, name) = &key;
            let store = &service.inner.store;
            let is_removed = store.remove_pool(tenant.as_deref(), name, now()).await?;
            pools.remove_pool(&key);
            if !is_removed {
                return Err(Error::Pool(PoolError::NotFound(key.1)));
            }
            info!(pool = name, "pool removed");
            Ok(())
        })
        .await
    }

    /// Counts of all pools, with their tenants and names. `None` if the runtime has no pools.
    #[must_use]
    pub fn pool_counts(&self) -> Option<Vec<(PoolKey, PoolCounts)>> {
        self.require_pools().ok()?;
        Some(self.inner.pools.all_counts())
    }

    fn require_pools(&self) -> Result<(), Error> {
        let runtime = &self.inner.runtime;
        match runtime.pools() {
            Some(_) => Ok(()),
            None => Err(Error::Unsupported {
                feature: Feature::Pools,
                runtime: runtime.kind(),
            }),
        }
    }

    fn pool_key(&self, name: &str) -> Key {
        (self.scope.tenant().map(str::to_owned), name.to_owned())
    }

    fn pool_row(&self, name: &str) -> Result<PoolRow, Error> {
        let row = self.inner.pools.pool(&self.pool_key(name));
        row.ok_or_else(|| Error::Pool(PoolError::NotFound(name.to_owned())))
    }

    /// Checks a name and a template; all that is wrong is reported.
    fn check_pool(&self, name: Option<&str>, template: Option<&Value>) -> Result<(), Error> {
        let mut wrong = Vec::new();
        if name.is_some_and(|name| !is_name(name)) {
            let rule = "must be at most 253 lower-case letters, digits and -, with a letter or a digit \
                        at both ends";
            wrong.push(FieldError::body("string_pattern_mismatch", ["name"], rule));
        }
        if template.is_some_and(|template| template.to_string().len() > TEMPLATE_MAX) {
            let rule = "must be at most 64 KiB as JSON";
            wrong.push(FieldError::body("string_too_long", ["template"], rule));
            return Err(Error::Invalid(wrong));
        }
        match template.map(|template| self.check_template(template)) {
            Some(Ok(spec)) => wrong.extend(self.missing_limits(&spec)),
            Some(Err(error)) => wrong.extend(error.fields()),
            None => {}
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(Error::Invalid(wrong)),
        }
    }

    fn note_pool(&self, name: &str, capacity: PoolCapacity) {
        if let Some(act) = &self.act {
            act.set_object(name);
            act.set_tenant(self.scope.tenant());
            act.note("capacitySpec", json!(capacity));
        }
    }

    fn shown(&self, row: PoolRow) -> PoolResponse {
        let key = (row.tenant, row.name);
        let counts = self.inner.pools.counts(&key);
        PoolResponse {
            name: key.1,
            capacity_spec: row.capacity,
            status: Some(PoolStatus {
                total: counts.total(),
                allocated: counts.claimed,
                available: counts.ready,
                revision: row.revision,
            }),
            created_at: Some(row.created_at),
        }
    }
}

/// Whether this may be the name of a pool (contract: lifecycle §10).
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= NAME_MAX
        && !name.is_empty()
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_contract() {
        let long = "a".repeat(NAME_MAX);
        for name in ["a", "0", "a-b", "a--b", long.as_str()] {
            assert!(is_name(name), "{name}");
        }
        let longer = "a".repeat(NAME_MAX + 1);
        for name in ["", "-a", "a-", "A", "a_b", "a.b", "ä", longer.as_str()] {
            assert!(!is_name(name), "{name}");
        }
    }
}

//! Sandboxes of pools become clients' (contract: lifecycle §4.5, Kubernetes K2).
//!
//! ```text
//!  create ─▶ takes a member, and so its id ─▶ registry ─▶ the store has the claim ─▶ execd is claimed
//! ```
//!
//! The change in the store is the claim: it succeeds once, and has all that the sandbox is from then on,
//! because labels of a container cannot change. execd refuses any other claim, so that a store which was
//! restored from a backup cannot give a used sandbox to another client.

use std::{pin::pin, sync::Arc};

use osb_protocol::{Feature, resources::ResourceLimits};
use osb_runtime::{CreateSpec, Observed, Origin, Source, WaitingSandbox};
use osb_service::ErrorChain;
use osb_store::{Changes, MemberState};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::{
    record::ClaimRecord,
    state::{Key, Taken},
};
use crate::sandbox::{
    Error, Facts, Service, lifecycle::now, pool_error::PoolError, validate::claimed,
};

/// Any pool.
const ANY: &str = "*";

/// What to create after a create failed: one that named no pool, and whose member could not be claimed,
/// starts a sandbox of its own. `plain` is from [`Service::acquire`].
///
/// # Errors
/// The same error when it says something about the create itself, or the create named a pool.
pub(in crate::sandbox) fn instead_of_member(
    error: Error,
    plain: Option<CreateSpec>,
) -> Result<CreateSpec, Error> {
    match (error, plain) {
        (error @ (Error::Pool(_) | Error::Runtime(_)), Some(plain)) => {
            let error = ErrorChain(&error);
            warn!(sandbox = %plain.id(), %error, "created without a pool, whose sandbox is no use");
            Ok(plain)
        }
        (error, _) => Err(error),
    }
}

impl Service {
    /// Gives a create that names a pool one of its sandboxes: the spec then has the id of that, and is
    /// given back if the create does not get as far as the registry. Waits while one may become ready. A
    /// create that names none gets one that fits, if the operator wants that: returns it as it was, for
    /// [`instead_of_member`].
    ///
    /// # Errors
    /// [`PoolError::NoSource`], [`PoolError::Exhausted`] when none is ready in time, and
    /// [`Error::Broken`] when the member cannot get the entry point and the environment.
    pub(in crate::sandbox) async fn acquire(
        &self,
        spec: &mut CreateSpec,
    ) -> Result<Option<CreateSpec>, Error> {
        let (found, plain) = match &spec.origin.source {
            Source::Pool(name) => (Some(self.member_of(name.trim()).await?), None),
            Source::Image(_) | Source::Snapshot(_) => {
                let found = self.fitting_member(spec);
                let plain = found.is_some().then(|| spec.clone());
                (found, plain)
            }
            // No pool is made from one.
            Source::Template(_) => (None, None),
        };
        let Some((taken, member)) = found else {
            return Ok(None);
        };
        // All fields are named, so that the compiler asks what a claim does with a new one.
        let Origin {
            created_at,
            entrypoint,
            metadata,
            extensions,
            expiry,
            renew_extend_seconds,
            tenant,
            owner,
            // The member's, or what no create with a pool may ask for.
            id: _,
            source: _,
            platform: _,
            resources: _,
            token: _,
            secure_access: _,
            egress_token: _,
            hooks: _,
            volumes: _,
            pool: _,
        } = spec.origin.clone();
        let origin = Origin {
            created_at,
            entrypoint: match entrypoint.is_empty() {
                true => member.origin.entrypoint.clone(),
                false => entrypoint,
            },
            metadata,
            extensions,
            expiry,
            renew_extend_seconds,
            tenant,
            owner,
            ..member.origin
        };
        // The entry point may be the template's. The member is given back.
        let broken = claimed::check(&origin.entrypoint, &spec.env);
        if !broken.is_empty() {
            return Err(Error::Broken(broken));
        }
        // Quotas count what the sandbox has.
        spec.limits = ResourceLimits::parse(&origin.resources).unwrap_or_default();
        spec.origin = origin;
        // The member has it already.
        spec.network_policy = None;
        spec.prepared = Some(Arc::new(taken));
        Ok(plain)
    }

    async fn member_of(&self, name: &str) -> Result<(Taken, Observed), Error> {
        let pools = &self.inner.pools;
        let exhausted = || Error::Pool(PoolError::Exhausted(name.to_owned()));
        let deadline = Instant::now() + self.inner.limits.pools.acquisition;
        let mut waiting = None;
        loop {
            let mut arrived = pin!(pools.arrived.notified());
            arrived.as_mut().enable();
            let keys = self.pools_by_ref(name)?;
            if let Some(found) = keys.iter().find_map(|key| pools.take(key)) {
                return Ok(found);
            }
            let Some(key) = keys.iter().find(|key| pools.may_get_one(key)) else {
                return Err(exhausted());
            };
            waiting.get_or_insert_with(|| pools.wait_for(key));
            if timeout_at(deadline, arrived).await.is_err() {
                return Err(exhausted());
            }
        }
    }

    /// The pools that a `poolRef` names.
    fn pools_by_ref(&self, name: &str) -> Result<Vec<Key>, Error> {
        let tenant = self.scope.tenant().map(str::to_owned);
        if name == ANY {
            let rows = self.inner.pools.of_tenant(tenant.as_deref()).into_iter();
            return Ok(rows.map(|row| (row.tenant, row.name)).collect());
        }
        let key = (tenant, name.to_owned());
        match self.inner.pools.pool(&key) {
            Some(_) => Ok(vec![key]),
            None => Err(Error::Pool(PoolError::NoSource(name.to_owned()))),
        }
    }

    /// Makes the member that a create has the client's: in the store, and then in the sandbox.
    ///
    /// # Errors
    /// When its pool has removed it meanwhile, and when its entry point does not start. It must be removed
    /// then: it may have been claimed.
    pub(in crate::sandbox) async fn claim(&self, spec: &CreateSpec) -> Result<Observed, Error> {
        let id = spec.id();
        let record = ClaimRecord::of(spec);
        let text = record.text();
        let (ready, claimed) = (MemberState::Ready, MemberState::Claimed);
        let store = &self.inner.store;
        let is_ours = store
            .change_member(id, ready, claimed, Some(&text), now())
            .await?;
        let observed = is_ours
            .then(|| self.inner.pools.set_claimed(id, text))
            .flatten();
        let Some(mut observed) = observed else {
            let pool = spec.origin.pool.as_deref().unwrap_or_default();
            return Err(Error::Pool(PoolError::Exhausted(pool.to_owned())));
        };
        observed.origin = spec.origin.clone();
        self.give(&observed, &record).await?;
        Ok(observed)
    }

    /// Has a sandbox start the entry point of its claim. May be repeated.
    pub(super) async fn give(
        &self,
        observed: &Observed,
        record: &ClaimRecord,
    ) -> Result<(), Error> {
        let runtime = &self.inner.runtime;
        let pools = runtime.pools().ok_or_else(|| Error::Unsupported {
            feature: Feature::Pools,
            runtime: runtime.kind(),
        })?;
        let execd = self.waiting_execd(observed);
        let sandbox = WaitingSandbox {
            origin: &observed.origin,
            execd: execd.as_deref(),
        };
        Ok(pools.claim(sandbox, &record.claim()).await?)
    }

    /// Where this server reaches the execd of a member; `None` without a route.
    pub(super) fn waiting_execd(&self, observed: &Observed) -> Option<String> {
        let facts = Facts::found(observed.clone(), Changes::default());
        self.execd_of(&facts).ok().map(|execd| execd.authority)
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;
    use osb_runtime::RuntimeError;

    use super::*;

    #[test]
    fn only_plain_creates_go_on_without_a_pool_and_only_after_a_failed_claim() {
        let plain = || {
            let source = Source::Image("debian:12".to_owned());
            CreateSpec::new(Origin::new("a", source, WireTime::from_unix_us(1).unwrap()))
        };
        let exhausted = || Error::Pool(PoolError::Exhausted("p".to_owned()));
        let silent = Error::Runtime(RuntimeError::ExecdSilent {
            id: "b".into(),
            reason: "no answer".to_owned(),
        });
        for error in [exhausted(), silent] {
            let spec = instead_of_member(error, Some(plain())).unwrap();
            assert_eq!(spec.id().as_str(), "a");
        }
        let deleted = Error::WrongState {
            id: "b".into(),
            state: "Stopping".to_owned(),
            needs: "it was deleted before it was made",
        };
        for error in [deleted, Error::ShuttingDown] {
            instead_of_member(error, Some(plain())).unwrap_err();
        }
        let error = instead_of_member(exhausted(), None).unwrap_err();
        assert!(matches!(error, Error::Pool(_)), "{error}");
    }
}

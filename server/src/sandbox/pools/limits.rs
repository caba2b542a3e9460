//! What the pools of a tenant may keep. Members count for no quota until they are claimed, so that their
//! number is limited when a pool is added or changed.

use osb_protocol::{FieldError, lifecycle::PoolCapacity};
use osb_runtime::CreateSpec;

use super::template;
use crate::sandbox::{Error, Service, quota::Quota};

/// Most sandboxes without a client that a pool fills up to by itself.
fn waiting(capacity: PoolCapacity) -> u64 {
    let most = capacity
        .buffer_max
        .max(capacity.buffer_min)
        .max(capacity.pool_min);
    most.min(capacity.pool_max).into()
}

impl Service {
    fn tenant_quota(&self) -> Quota {
        let quotas = &self.inner.limits.quotas.tenants;
        let tenant = self.scope.tenant();
        tenant.map_or_else(Quota::default, |tenant| quotas.of(tenant))
    }

    /// Checks that the pools of the scope's tenant keep no more sandboxes than they may, once one of them
    /// has this capacity. A change that does not add to them is allowed. The caller holds the lock for
    /// edits.
    ///
    /// # Errors
    /// [`Error::Invalid`] about `capacitySpec`.
    pub(super) fn check_waiting(&self, name: &str, capacity: PoolCapacity) -> Result<(), Error> {
        let tenant = self.scope.tenant();
        let (mut others, mut former) = (0, None);
        for row in self.inner.pools.of_tenant(tenant) {
            match row.name == name {
                true => former = Some(waiting(row.capacity)),
                false => others += waiting(row.capacity),
            }
        }
        let (most, of_what) = match self.tenant_quota().sandboxes {
            Some(most) => (most, "the tenant has a quota of"),
            None => {
                let most = self.inner.limits.pools.max_waiting;
                (most.into(), "pools.max_waiting is")
            }
        };
        let wanted = waiting(capacity);
        if others + wanted <= most || former.is_some_and(|former| wanted <= former) {
            return Ok(());
        }
        let rule = format!(
            "would make {} sandboxes wait in all pools together, and {of_what} {most}",
            others + wanted
        );
        let error = FieldError::body("less_than_equal", ["capacitySpec"], rule);
        Err(Error::Invalid(vec![error]))
    }

    /// The limits that a template lacks, because the tenant has quotas for them: its sandboxes could not
    /// be claimed.
    pub(super) fn missing_limits(&self, spec: &CreateSpec) -> Vec<FieldError> {
        let quota = self.tenant_quota();
        let limits = [
            ("cpu", quota.nano_cpus, spec.limits.nano_cpus),
            ("memory", quota.memory_bytes, spec.limits.memory_bytes),
        ];
        let missing = limits
            .into_iter()
            .filter(|(_, quota, limit)| quota.is_some() && limit.is_none());
        let errors = missing.map(|(resource, ..)| {
            let rule = "is required, because the tenant has a quota for it";
            let error = FieldError::body("missing", ["resourceLimits", resource], rule);
            template::of_template(error)
        });
        errors.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_fills_up_to_its_buffer_or_least_size_within_its_most() {
        for (numbers, wanted) in [
            ([3, 1, 9, 0], 3),
            ([1, 4, 9, 0], 4),
            ([1, 1, 9, 7], 7),
            ([8, 1, 5, 7], 5),
            ([0, 0, 9, 0], 0),
        ] {
            let [buffer_max, buffer_min, pool_max, pool_min] = numbers;
            let capacity = PoolCapacity {
                buffer_max,
                buffer_min,
                pool_max,
                pool_min,
            };
            assert_eq!(waiting(capacity), wanted, "{numbers:?}");
        }
    }
}

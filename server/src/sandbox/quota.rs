//! What the sandboxes of a tenant may use together.
//!
//! A create is checked and entered into the registry in one step, so that creates at once cannot exceed
//! a quota together. What a sandbox asked for counts until it is gone; CPU and memory of one whose
//! command has ended do not count, those of a paused one do.

use std::{collections::HashMap, sync::Arc};

use osb_protocol::resources::ResourceLimits;
use osb_runtime::{CreateSpec, Phase};

use super::{Facts, Record};

/// Most that the sandboxes of one tenant may use. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Sandboxes, whatever their state.
    pub sandboxes: Option<u64>,
    /// Billionths of a core.
    pub nano_cpus: Option<i64>,
    /// Bytes.
    pub memory_bytes: Option<i64>,
}

/// Quotas of all tenants.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// For tenants without one of their own.
    pub default: Quota,
    /// Of some tenants, by name.
    pub tenants: HashMap<String, Quota>,
}

/// A resource with a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaResource {
    /// Number of sandboxes.
    Sandboxes,
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
}

impl QuotaResource {
    /// An amount with its unit.
    fn show(self, amount: i64) -> String {
        match self {
            Self::Sandboxes => amount.to_string(),
            // Decimals of a core and of a MiB that matter to a reader.
            Self::Cpu => format!("{}m", amount / 1_000_000),
            Self::Memory => format!("{} MiB", amount / (1024 * 1024)),
        }
    }
}

impl std::fmt::Display for QuotaResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "sandboxes",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        })
    }
}

/// Why a quota does not allow a create.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// It would exceed the quota.
    #[error(
        "the tenant {tenant} has a quota of {} for {resource}: {} in use, {} asked for",
        .resource.show(*.limit), .resource.show(*.used), .resource.show(*.wanted)
    )]
    Exceeded {
        /// The tenant.
        tenant: String,
        /// Which quota.
        resource: QuotaResource,
        /// The quota.
        limit: i64,
        /// What its sandboxes have.
        used: i64,
        /// What the create asked for.
        wanted: i64,
    },
    /// It has no limit for a resource with a quota.
    #[error("resourceLimits.{0}: is required, because the tenant has a quota for it")]
    Unlimited(QuotaResource),
}

/// What sandboxes use together.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    sandboxes: i64,
    nano_cpus: i64,
    memory_bytes: i64,
}

impl Use {
    fn add(&mut self, facts: &Facts) {
        self.sandboxes += 1;
        if matches!(facts.phase, Some((Phase::Exited(_), _))) {
            return;
        }
        // They followed the grammar when the sandbox was created.
        let limits = ResourceLimits::parse(&facts.origin.resources).unwrap_or_default();
        let amount = |amount: Option<i64>| amount.unwrap_or_default();
        self.nano_cpus = self.nano_cpus.saturating_add(amount(limits.nano_cpus));
        self.memory_bytes = self
            .memory_bytes
            .saturating_add(amount(limits.memory_bytes));
    }
}

impl Quotas {
    fn of(&self, tenant: &str) -> Quota {
        self.tenants.get(tenant).copied().unwrap_or(self.default)
    }

    /// Checks a create against the sandboxes that exist.
    pub(super) fn check<'a>(
        &self,
        spec: &CreateSpec,
        all: impl Iterator<Item = &'a Arc<Record>>,
    ) -> Result<(), QuotaError> {
        let Some(tenant) = spec.origin.tenant.as_deref() else {
            return Ok(());
        };
        let quota = self.of(tenant);
        if quota == Quota::default() {
            return Ok(());
        }
        let (cpus, memory) = (spec.limits.nano_cpus, spec.limits.memory_bytes);
        if quota.nano_cpus.is_some() && cpus.is_none() {
            return Err(QuotaError::Unlimited(QuotaResource::Cpu));
        }
        if quota.memory_bytes.is_some() && memory.is_none() {
            return Err(QuotaError::Unlimited(QuotaResource::Memory));
        }
        let mut used = Use::default();
        all.map(|record| &record.facts)
            .filter(|facts| facts.origin.tenant.as_deref() == Some(tenant))
            .for_each(|facts| used.add(facts));
        let most = quota
            .sandboxes
            .map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        for (resource, limit, used, wanted) in [
            (QuotaResource::Sandboxes, most, used.sandboxes, Some(1)),
            (QuotaResource::Cpu, quota.nano_cpus, used.nano_cpus, cpus),
            (
                QuotaResource::Memory,
                quota.memory_bytes,
                used.memory_bytes,
                memory,
            ),
        ] {
            let wanted = wanted.unwrap_or_default();
            if let Some(limit) = limit
                && used.saturating_add(wanted) > limit
            {
                return Err(QuotaError::Exceeded {
                    tenant: tenant.to_owned(),
                    resource,
                    limit,
                    used,
                    wanted,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use osb_runtime::{Origin, Source, Vocabulary};

    use super::*;
    use crate::sandbox::state::tests::at;

    fn spec(tenant: Option<&str>, cpu: &str, memory: &str) -> CreateSpec {
        let mut origin = Origin::new("new", Source::Image("debian:12".into()), at(1));
        origin.tenant = tenant.map(Arc::from);
        for (key, value) in [("cpu", cpu), ("memory", memory)] {
            if !value.is_empty() {
                origin.resources.insert(key.into(), value.into());
            }
        }
        let limits = ResourceLimits::parse(&origin.resources).unwrap();
        CreateSpec {
            limits,
            ..CreateSpec::new(origin)
        }
    }

    fn record(spec: &CreateSpec, phase: Phase) -> Arc<Record> {
        let mut facts = Facts::accepted(spec);
        facts.set_phase(phase, at(2));
        Arc::new(Record::derive(facts, 1, &Vocabulary::CONTAINERS.reasons))
    }

    #[test]
    fn each_resource_is_counted_for_its_tenant() {
        let quotas = Quotas {
            default: Quota {
                sandboxes: Some(3),
                nano_cpus: Some(2_000_000_000),
                memory_bytes: Some(1 << 30),
            },
            tenants: HashMap::from([("free".to_owned(), Quota::default())]),
        };
        let half = spec(Some("a"), "1", "512Mi");
        let (paused, ended) = (
            record(&half, Phase::Paused),
            record(&spec(Some("a"), "2", "1Gi"), Phase::Exited(0)),
        );
        let other = record(&spec(Some("b"), "2", "1Gi"), Phase::Running);
        let all = [paused, ended, other];
        let check = |spec: &CreateSpec| {
            let checked = quotas.check(spec, all.iter());
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(&half), Ok(()));
        assert_eq!(
            check(&spec(Some("a"), "1001m", "512Mi")),
            Err("the tenant a has a quota of 2000m for cpu: 1000m in use, 1001m asked for".into())
        );
        let memory = check(&spec(Some("a"), "1", "513Mi")).unwrap_err();
        assert!(
            memory.contains("1024 MiB for memory: 512 MiB in use, 513 MiB"),
            "{memory}"
        );
        for (cpu, memory, field) in [("", "1Mi", "cpu"), ("1", "", "memory")] {
            let refused = check(&spec(Some("a"), cpu, memory)).unwrap_err();
            assert!(
                refused.contains(&format!("resourceLimits.{field}: is required")),
                "{refused}"
            );
        }
        assert_eq!(check(&spec(Some("free"), "", "")), Ok(()));
        assert_eq!(check(&spec(None, "", "")), Ok(()));
        let full: Vec<_> = all
            .iter()
            .chain([&record(&half, Phase::Running)])
            .cloned()
            .collect();
        let refused = quotas
            .check(&spec(Some("a"), "10m", "6Mi"), full.iter())
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("3 for sandboxes: 3 in use, 1 asked"),
            "{refused}"
        );
    }
}

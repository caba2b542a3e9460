//! What the sandboxes of a tenant, of a user or of a stored API key may use together.
//!
//! A create is checked and entered into the registry in one step, so that creates at once cannot exceed
//! a quota together. What a sandbox asked for counts until it is gone; CPU and memory of one whose
//! command has ended do not count, those of a paused one do. Disk is what its writable layer was last
//! measured to have ([`super::disk`]): too much of it stops new creates, and no sandbox that runs.

use std::{collections::HashMap, fmt, sync::Arc};

use osb_protocol::{
    SandboxId,
    identity::PrincipalKind,
    quota::{QuotaAmounts, QuotaSubjectKind, QuotaUse},
    resources::ResourceLimits,
};
use osb_runtime::{CreateSpec, Phase};

use super::{Facts, Record, Service};
use crate::identity::Principal;

/// Most that the sandboxes of one subject may use. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Sandboxes, whatever their state.
    pub sandboxes: Option<u64>,
    /// Billionths of a core.
    pub nano_cpus: Option<i64>,
    /// Bytes.
    pub memory_bytes: Option<i64>,
    /// Bytes of writable layers.
    pub disk_bytes: Option<i64>,
}

/// Quotas of all subjects of one kind.
#[derive(Clone, Debug, Default)]
pub struct QuotaGroup {
    /// Of each that has none of its own.
    pub default: Quota,
    /// Of some, by name.
    pub named: HashMap<String, Quota>,
}

/// All quotas.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// Of tenants.
    pub tenants: QuotaGroup,
    /// Of users.
    pub users: QuotaGroup,
    /// Of stored API keys.
    pub keys: QuotaGroup,
}

/// The user or the stored API key that creates a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// [`QuotaSubjectKind::User`] or [`QuotaSubjectKind::ApiKey`].
    kind: QuotaSubjectKind,
    id: String,
    name: String,
}

impl Owner {
    /// A user.
    #[must_use]
    pub fn user(id: &str, name: &str) -> Self {
        Self::new(QuotaSubjectKind::User, id, name)
    }

    /// A stored API key.
    #[must_use]
    pub fn key(id: &str, name: &str) -> Self {
        Self::new(QuotaSubjectKind::ApiKey, id, name)
    }

    fn new(kind: QuotaSubjectKind, id: &str, name: &str) -> Self {
        Self {
            kind,
            id: id.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The owner that a principal is; `None` for one without quotas of its own.
    #[must_use]
    pub fn of(principal: &Principal) -> Option<Self> {
        match principal.kind {
            PrincipalKind::User => Some(Self::user(&principal.id, &principal.name)),
            PrincipalKind::ApiKey => Some(Self::key(&principal.id, &principal.name)),
            PrincipalKind::Anonymous | PrincipalKind::ConfiguredKey | PrincipalKind::TenantKey => {
                None
            }
        }
    }

    /// What a sandbox remembers of its owner.
    #[must_use]
    pub fn tag(&self) -> Arc<str> {
        let kind = match self.kind {
            QuotaSubjectKind::User => "user",
            _ => "api_key",
        };
        format!("{kind}:{}", self.id).into()
    }
}

/// Whose sandboxes a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QuotaSubject {
    /// Those of a tenant, by its name.
    Tenant(Arc<str>),
    /// Those that a user or an API key created.
    Owner(Owner),
}

impl QuotaSubject {
    fn kind(&self) -> QuotaSubjectKind {
        match self {
            Self::Tenant(_) => QuotaSubjectKind::Tenant,
            Self::Owner(owner) => owner.kind,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Tenant(name) => name,
            Self::Owner(owner) => &owner.name,
        }
    }
}

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            QuotaSubjectKind::Tenant => "the tenant",
            QuotaSubjectKind::User => "the user",
            QuotaSubjectKind::ApiKey => "the API key",
        };
        write!(f, "{kind} {}", self.name())
    }
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
    /// Writable layers.
    Disk,
}

impl QuotaResource {
    /// An amount with its unit.
    fn show(self, amount: i64) -> String {
        match self {
            Self::Sandboxes => amount.to_string(),
            // Decimals of a core and of a MiB that matter to a reader.
            Self::Cpu => format!("{}m", amount / 1_000_000),
            Self::Memory | Self::Disk => format!("{} MiB", amount / (1024 * 1024)),
        }
    }
}

impl fmt::Display for QuotaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "sandboxes",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
        })
    }
}

/// Why a quota does not allow a create.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// It would exceed the quota.
    #[error(
        "{subject} has a quota of {} for {resource}: {} in use, {} asked for",
        .resource.show(*.limit), .resource.show(*.used), .resource.show(*.wanted)
    )]
    Exceeded {
        /// Whose quota.
        subject: QuotaSubject,
        /// Which quota.
        resource: QuotaResource,
        /// The quota.
        limit: i64,
        /// What the sandboxes have.
        used: i64,
        /// What the create asked for.
        wanted: i64,
    },
    /// The sandboxes that there are have used it up.
    #[error(
        "{subject} has a quota of {} for disk: {} in use; delete files or sandboxes",
        QuotaResource::Disk.show(*.limit), QuotaResource::Disk.show(*.used)
    )]
    DiskFull {
        /// Whose quota.
        subject: QuotaSubject,
        /// The quota, in bytes.
        limit: i64,
        /// What the sandboxes have, in bytes.
        used: i64,
    },
    /// It has no limit for a resource with a quota.
    #[error("resourceLimits.{resource}: is required, because {subject} has a quota for it")]
    Unlimited {
        /// Whose quota.
        subject: QuotaSubject,
        /// Which quota.
        resource: QuotaResource,
    },
}

/// Sizes of writable layers, in bytes, as they were measured last.
pub(super) type LayerSizes = HashMap<SandboxId, u64>;

/// What sandboxes use together.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    sandboxes: i64,
    nano_cpus: i64,
    memory_bytes: i64,
    disk_bytes: i64,
}

impl Use {
    fn add(&mut self, facts: &Facts, sizes: &LayerSizes) {
        self.sandboxes += 1;
        let size = sizes.get(&facts.origin.id).copied().unwrap_or_default();
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.disk_bytes = self.disk_bytes.saturating_add(size);
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

/// A quota of a subject with what is used of it.
struct Account {
    subject: QuotaSubject,
    quota: Quota,
    /// What the subject's sandboxes remember.
    tag: Arc<str>,
    used: Use,
}

impl Account {
    fn of(subject: QuotaSubject, quotas: &Quotas) -> Self {
        Self {
            quota: quotas.of(&subject),
            tag: match &subject {
                QuotaSubject::Tenant(name) => Arc::clone(name),
                QuotaSubject::Owner(owner) => owner.tag(),
            },
            subject,
            used: Use::default(),
        }
    }

    fn count(&mut self, facts: &Facts, sizes: &LayerSizes) {
        let origin = &facts.origin;
        let tag = match self.subject {
            QuotaSubject::Tenant(_) => &origin.tenant,
            QuotaSubject::Owner(_) => &origin.owner,
        };
        if tag.as_ref() == Some(&self.tag) {
            self.used.add(facts, sizes);
        }
    }

    fn check(&self, spec: &CreateSpec) -> Result<(), QuotaError> {
        let Self {
            subject,
            quota,
            used,
            ..
        } = self;
        let (cpus, memory) = (spec.limits.nano_cpus, spec.limits.memory_bytes);
        for (resource, limit, wanted) in [
            (QuotaResource::Cpu, quota.nano_cpus, cpus),
            (QuotaResource::Memory, quota.memory_bytes, memory),
        ] {
            if limit.is_some() && wanted.is_none() {
                let subject = subject.clone();
                return Err(QuotaError::Unlimited { subject, resource });
            }
        }
        if let Some(limit) = quota.disk_bytes
            && used.disk_bytes >= limit
        {
            return Err(QuotaError::DiskFull {
                subject: subject.clone(),
                limit,
                used: used.disk_bytes,
            });
        }
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
                    subject: subject.clone(),
                    resource,
                    limit,
                    used,
                    wanted,
                });
            }
        }
        Ok(())
    }

    fn show(self, is_measured: bool) -> QuotaUse {
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        let millis = |nanos: i64| number(nanos) / 1_000_000;
        let Self {
            subject,
            quota,
            used,
            ..
        } = self;
        QuotaUse {
            kind: subject.kind(),
            name: subject.name().to_owned(),
            limits: QuotaAmounts {
                sandboxes: quota.sandboxes,
                cpu_millis: quota.nano_cpus.map(millis),
                memory_bytes: quota.memory_bytes.map(number),
                disk_bytes: quota.disk_bytes.map(number),
            },
            used: QuotaAmounts {
                sandboxes: Some(number(used.sandboxes)),
                cpu_millis: Some(millis(used.nano_cpus)),
                memory_bytes: Some(number(used.memory_bytes)),
                disk_bytes: is_measured.then(|| number(used.disk_bytes)),
            },
            id: match subject {
                QuotaSubject::Tenant(_) => None,
                QuotaSubject::Owner(owner) => Some(owner.id),
            },
        }
    }
}

impl QuotaGroup {
    pub(super) fn of(&self, name: &str) -> Quota {
        self.named.get(name).copied().unwrap_or(self.default)
    }

    fn limits_disk(&self) -> bool {
        let mut all = self.named.values().chain([&self.default]);
        all.any(|quota| quota.disk_bytes.is_some())
    }
}

impl Quotas {
    fn of(&self, subject: &QuotaSubject) -> Quota {
        let group = match subject.kind() {
            QuotaSubjectKind::Tenant => &self.tenants,
            QuotaSubjectKind::User => &self.users,
            QuotaSubjectKind::ApiKey => &self.keys,
        };
        group.of(subject.name())
    }

    /// Whether any quota is for disk.
    pub(super) fn limit_disk(&self) -> bool {
        [&self.tenants, &self.users, &self.keys]
            .into_iter()
            .any(QuotaGroup::limits_disk)
    }

    /// The quotas of subjects that have one.
    fn accounts(&self, subjects: impl IntoIterator<Item = QuotaSubject>) -> Vec<Account> {
        let accounts = subjects.into_iter();
        let accounts = accounts.map(|subject| Account::of(subject, self));
        accounts
            .filter(|account| account.quota != Quota::default())
            .collect()
    }

    /// Checks a create against the sandboxes that exist.
    pub(super) fn check<'a>(
        &self,
        spec: &CreateSpec,
        owner: Option<&Owner>,
        sizes: &LayerSizes,
        all: impl Iterator<Item = &'a Arc<Record>>,
    ) -> Result<(), QuotaError> {
        let tenant = spec.origin.tenant.clone().map(QuotaSubject::Tenant);
        let owner = owner.cloned().map(QuotaSubject::Owner);
        let mut accounts = self.accounts(tenant.into_iter().chain(owner));
        if accounts.is_empty() {
            return Ok(());
        }
        for record in all {
            for account in &mut accounts {
                account.count(&record.facts, sizes);
            }
        }
        accounts.iter().try_for_each(|account| account.check(spec))
    }
}

impl Service {
    /// The same domain for a user or an API key, whose sandboxes count together.
    #[must_use]
    pub fn owned_by(self, owner: Option<Owner>) -> Self {
        Self { owner, ..self }
    }

    /// What subjects with quotas use of them.
    #[must_use]
    pub fn quota_use(&self, subjects: impl IntoIterator<Item = QuotaSubject>) -> Vec<QuotaUse> {
        let sizes = self.inner.layers.sizes();
        let is_measured = sizes.is_some();
        let measured = sizes.unwrap_or_default();
        let mut accounts = self.inner.limits.quotas.accounts(subjects);
        if !accounts.is_empty() {
            for record in &self.inner.registry.snapshot().0 {
                for account in &mut accounts {
                    account.count(&record.facts, &measured);
                }
            }
        }
        accounts
            .into_iter()
            .map(|account| account.show(is_measured))
            .collect()
    }

    /// Every tenant with a quota of its own or with sandboxes.
    #[must_use]
    pub fn known_tenants(&self) -> Vec<Arc<str>> {
        let named = self.inner.limits.quotas.tenants.named.keys();
        let mut tenants: Vec<Arc<str>> = named.map(|name| name.as_str().into()).collect();
        let (records, _) = self.inner.registry.snapshot();
        tenants.extend(
            records
                .iter()
                .filter_map(|it| it.facts.origin.tenant.clone()),
        );
        tenants.sort();
        tenants.dedup();
        tenants
    }
}

#[cfg(test)]
mod tests {
    use osb_runtime::{Origin, Source, Vocabulary};

    use super::*;
    use crate::sandbox::state::tests::at;

    const GIB: i64 = 1 << 30;

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

    fn owned(mut spec: CreateSpec, owner: &Owner) -> CreateSpec {
        spec.origin.owner = Some(owner.tag());
        spec
    }

    fn record(spec: &CreateSpec, phase: Phase) -> Arc<Record> {
        let mut facts = Facts::accepted(spec);
        facts.set_phase(phase, at(2));
        Arc::new(Record::derive(facts, 1, &Vocabulary::CONTAINERS.reasons))
    }

    fn quota() -> Quota {
        Quota {
            sandboxes: Some(3),
            nano_cpus: Some(2_000_000_000),
            memory_bytes: Some(GIB),
            disk_bytes: Some(GIB),
        }
    }

    fn free(name: &str, default: Quota) -> QuotaGroup {
        QuotaGroup {
            default,
            named: HashMap::from([(name.to_owned(), Quota::default())]),
        }
    }

    #[test]
    fn each_resource_is_counted_for_its_subject() {
        let quotas = Quotas {
            tenants: free("free", quota()),
            users: free("free", quota()),
            keys: free("free", quota()),
        };
        let (user, key) = (Owner::user("1", "zoe"), Owner::key("1", "ci"));
        let half = spec(None, "1", "512Mi");
        let double = spec(None, "2", "1Gi");
        for (whose, tenant, owner, other) in [
            ("the tenant a", Some("a"), None, Owner::user("9", "other")),
            ("the user zoe", None, Some(user.clone()), key.clone()),
            ("the API key ci", None, Some(key), user),
        ] {
            let of_subject = |spec: &CreateSpec| {
                let mut spec = spec.clone();
                spec.origin.tenant = tenant.map(Arc::from);
                spec.origin.owner = owner.as_ref().map(Owner::tag);
                spec
            };
            let mut foreign = owned(double.clone(), &other);
            foreign.origin.tenant = Some("b".into());
            let mut all = vec![
                record(&of_subject(&half), Phase::Paused),
                record(&of_subject(&double), Phase::Exited(0)),
                record(&foreign, Phase::Running),
            ];
            let check = |all: &[Arc<Record>], wanted: &CreateSpec, bytes: i64| {
                let bytes = u64::try_from(bytes).unwrap();
                let sizes = HashMap::from([(SandboxId::from("new"), bytes)]);
                let checked = quotas.check(&of_subject(wanted), owner.as_ref(), &sizes, all.iter());
                checked.map_err(|error| error.to_string())
            };
            assert_eq!(check(&all, &half, 0), Ok(()), "{whose}");
            let refused =
                format!("{whose} has a quota of 2000m for cpu: 1000m in use, 1001m asked for");
            let wanted = spec(None, "1001m", "512Mi");
            assert_eq!(check(&all, &wanted, 0), Err(refused));
            let refused = format!(
                "{whose} has a quota of 1024 MiB for memory: 512 MiB in use, 513 MiB asked for"
            );
            let wanted = spec(None, "1", "513Mi");
            assert_eq!(check(&all, &wanted, 0), Err(refused));
            for (cpu, memory, field) in [("", "1Mi", "cpu"), ("1", "", "memory")] {
                let refused = format!(
                    "resourceLimits.{field}: is required, because {whose} has a quota for it"
                );
                assert_eq!(check(&all, &spec(None, cpu, memory), 0), Err(refused));
            }
            // Both sandboxes have the id whose layer was measured.
            assert_eq!(check(&all, &half, GIB / 2 - 1), Ok(()), "{whose}");
            let refused = format!(
                "{whose} has a quota of 1024 MiB for disk: 1024 MiB in use; delete files or sandboxes"
            );
            assert_eq!(check(&all, &half, GIB / 2), Err(refused));
            all.push(record(&of_subject(&spec(None, "", "")), Phase::Running));
            let refused = format!("{whose} has a quota of 3 for sandboxes: 3 in use, 1 asked for");
            assert_eq!(check(&all, &spec(None, "10m", "6Mi"), 0), Err(refused));
        }
        let nothing = std::iter::empty();
        let check = |tenant, owner: &Owner| {
            let wanted = spec(tenant, "", "");
            quotas.check(&wanted, Some(owner), &HashMap::new(), nothing.clone())
        };
        assert_eq!(check(Some("free"), &Owner::user("2", "free")), Ok(()));
        assert_eq!(check(None, &Owner::key("2", "free")), Ok(()));
        assert!(
            check(Some("free"), &Owner::key("2", "ci")).is_err(),
            "both count"
        );
    }
}

//! Quotas for disk, as far as they are about what is kept without a sandbox: snapshots and templates.

use std::sync::Arc;

use osb_store::StoredFor;

use super::{Error, Service, disk_full::DiskFull, quota::QuotaSubject};

impl Service {
    /// Looks for a quota for disk that is used up: of the tenant that something would be stored for, or
    /// of the user or API key that asks for it. Counts sandboxes, and the snapshots and templates whose
    /// size is known.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn full_quota(
        &self,
        tenant: Option<&Arc<str>>,
    ) -> Result<Option<DiskFull>, Error> {
        let tenant = tenant.cloned().map(QuotaSubject::Tenant);
        let owner = self.owner.clone().map(QuotaSubject::Owner);
        for subject in tenant.into_iter().chain(owner) {
            let whose = subject.to_string();
            let (tag, is_tenant) = match &subject {
                QuotaSubject::Tenant(name) => (Arc::clone(name), true),
                QuotaSubject::Owner(owner) => (owner.tag(), false),
            };
            let Some(quota) = self.quota_use([subject]).pop() else {
                continue;
            };
            let Some(limit) = quota.limits.disk_bytes else {
                continue;
            };
            let of = if is_tenant {
                StoredFor::Tenant(&tag)
            } else {
                StoredFor::Owner(&tag)
            };
            let store = &self.inner.store;
            let snapshots = store.snapshot_bytes(of).await?;
            let templates = store.template_bytes(of).await?;
            let sandboxes = quota.used.disk_bytes.unwrap_or_default();
            let used = sandboxes
                .saturating_add(snapshots)
                .saturating_add(templates);
            if used >= limit {
                return Ok(Some(DiskFull { whose, limit, used }));
            }
        }
        Ok(None)
    }
}

//! Quotas: what the sandboxes of a tenant, a user or a stored API key may use together. The route is an
//! addition of this server.

use serde::{Deserialize, Serialize};

/// Whose sandboxes a quota is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuotaSubjectKind {
    /// Those of a tenant.
    Tenant,
    /// Those that a user created.
    User,
    /// Those that were created with a stored API key.
    ApiKey,
}

/// Amounts of the resources that have quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuotaAmounts {
    /// Number of sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u64>,
    /// Thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of writable layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// A quota and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaUse {
    /// Whose sandboxes it is for.
    pub kind: QuotaSubjectKind,
    /// Id of the user or key; absent for a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the tenant, user or key.
    pub name: String,
    /// What they may use together; an absent amount is unlimited.
    pub limits: QuotaAmounts,
    /// What they use. Disk is absent until it was measured, which is done only where it is limited.
    pub used: QuotaAmounts,
}

/// Quotas that apply to the caller or, for a service administrator, those of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaList {
    /// By kind and name.
    pub items: Vec<QuotaUse>,
}

//! The actor of a request.

use std::sync::Arc;

use osb_protocol::identity::{Identity, PrincipalKind, Role};
use tokio_util::sync::CancellationToken;

/// Who a request acts as. Authentication makes it once and puts it into the request's extensions, as
/// `Arc<Principal>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// What proved the identity.
    pub kind: PrincipalKind,
    /// Stable id within its kind: of a stored key or user, or the name of a tenant.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Which sandboxes exist for it.
    pub scope: Scope,
    /// Ends when another principal, or none, takes the place of this one.
    pub validity: Validity,
}

/// Ends when what proved an identity is withdrawn or stands for another principal. What lasts longer
/// than a request, such as a tunnel, ends with it. Clones end together.
#[derive(Clone, Debug, Default)]
pub struct Validity(CancellationToken);

impl Validity {
    /// Ends it.
    pub(super) fn end(&self) {
        self.0.cancel();
    }

    /// Cancelled at the end.
    #[must_use]
    pub fn ended(&self) -> &CancellationToken {
        &self.0
    }
}

impl PartialEq for Validity {
    /// Principals are compared by what they may do, not by how long.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Validity {}

/// Which sandboxes exist for a principal. All others are as if they did not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    #[default]
    All,
    /// Those of one tenant.
    Tenant(Arc<str>),
}

/// Why a key opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// None was sent.
    Missing,
    /// It is not a key of this server.
    Wrong,
    /// The provider of the tenants' keys does not answer.
    Unavailable,
    /// The client has sent too many wrong ones.
    Throttled,
}

impl Scope {
    /// The scope of a principal that may be limited to a tenant.
    #[must_use]
    pub fn of(tenant: Option<&str>) -> Self {
        tenant.map_or(Self::All, |tenant| Self::Tenant(tenant.into()))
    }

    /// The tenant that it is limited to; what is created within the scope belongs to it.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }

    /// Whether something of this tenant, or of none, is within the scope.
    #[must_use]
    pub fn contains(&self, tenant: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Tenant(own) => tenant == Some(&**own),
        }
    }
}

impl Principal {
    /// The holder of the server's configured key.
    #[must_use]
    pub fn configured_key() -> Self {
        Self::service(PrincipalKind::ConfiguredKey, "server.api_key")
    }

    /// Any client of a server without authentication, for as long as it is one.
    #[must_use]
    pub fn anonymous(validity: Validity) -> Self {
        Self {
            validity,
            ..Self::service(PrincipalKind::Anonymous, "anonymous")
        }
    }

    /// A tenant by one of its keys.
    #[must_use]
    pub fn tenant(name: &str) -> Self {
        Self {
            kind: PrincipalKind::TenantKey,
            id: name.to_owned(),
            name: name.to_owned(),
            role: Role::Operator,
            scope: Scope::of(Some(name)),
            validity: Validity::default(),
        }
    }

    fn service(kind: PrincipalKind, name: &str) -> Self {
        Self {
            kind,
            id: name.to_owned(),
            name: name.to_owned(),
            role: Role::ServiceAdmin,
            scope: Scope::All,
            validity: Validity::default(),
        }
    }

    /// As clients see it.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            kind: self.kind,
            id: self.id.clone(),
            name: self.name.clone(),
            role: self.role,
            tenant: self.scope.tenant().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_contains_its_own_only() {
        let team = Scope::of(Some("a"));
        assert!(team.contains(Some("a")));
        assert!(!team.contains(Some("b")) && !team.contains(None) && !team.contains(Some("")));
        for tenant in [None, Some("a")] {
            assert!(Scope::All.contains(tenant));
        }
        assert_eq!((team.tenant(), Scope::All.tenant()), (Some("a"), None));
    }
}

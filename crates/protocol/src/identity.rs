//! Who calls the API: roles, users, stored API keys and sign-ins (contract: clients §5). The routes
//! are additions of this server.

use serde::{Deserialize, Serialize};

use crate::WireTime;

/// What a principal may do. Each role includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Lists and reads sandboxes, without credentials for them.
    #[default]
    ReadOnly,
    /// Also creates, changes, enters and deletes sandboxes.
    Operator,
    /// Everything, in every tenant.
    ServiceAdmin,
}

impl Role {
    /// All roles, least first.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::Operator, Self::ServiceAdmin];

    /// The name on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Operator => "operator",
            Self::ServiceAdmin => "service_admin",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not the name of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of read_only, operator, service_admin")]
pub struct NotARole;

impl std::str::FromStr for Role {
    type Err = NotARole;

    fn from_str(name: &str) -> Result<Self, NotARole> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == name)
            .ok_or(NotARole)
    }
}

/// What proves the identity of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// Nothing: the server runs without authentication.
    Anonymous,
    /// The server's configured API key.
    ConfiguredKey,
    /// An API key of the store.
    ApiKey,
    /// A key of the tenant provider.
    TenantKey,
    /// A user's password.
    User,
}

/// Who a request acts as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Identity {
    /// What proved it.
    pub kind: PrincipalKind,
    /// Stable id within its kind.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The tenant that it is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A user of the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Id, never used again.
    #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
    pub id: String,
    /// Name to sign in with.
    pub name: String,
    /// What the user may do.
    pub role: Role,
    /// The tenant that the user is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether the user may not sign in.
    pub disabled: bool,
    /// When the user was added.
    pub created_at: WireTime,
    /// When the password was set.
    pub password_changed_at: WireTime,
}

/// All users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserList {
    /// By name.
    pub items: Vec<User>,
}

/// A user to add.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewUser {
    /// Name to sign in with: 1 to 64 of `a-z 0-9 . _ @ -`, the first a letter or digit.
    pub name: String,
    /// At least 12 characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 12, max_length = 1024))]
    pub password: String,
    /// `read_only` when absent.
    #[serde(default)]
    pub role: Role,
    /// The tenant that the user is limited to; none for `service_admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A change of a user. Absent members stay.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UserPatch {
    /// A new password, which ends the user's sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// A new role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// A new tenant; null for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether the user may not sign in, which ends the user's sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// A stored API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Id, never used again.
    #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Beginning of the secret, to recognise it by.
    pub prefix: String,
    /// What the key may do.
    pub role: Role,
    /// The tenant that the key is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// When the key was made.
    pub created_at: WireTime,
    /// When the key stops working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WireTime>,
    /// When the key was used last, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<WireTime>,
    /// When the key was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<WireTime>,
}

/// All stored API keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiKeyList {
    /// Newest first, revoked and expired ones included.
    pub items: Vec<ApiKey>,
}

/// An API key to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewApiKey {
    /// Name for people.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// `read_only` when absent.
    #[serde(default)]
    pub role: Role,
    /// The tenant that the key is limited to; none for `service_admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// When the key stops working; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WireTime>,
}

/// A new API key with its secret, which no other answer contains.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssuedApiKey {
    /// The key.
    #[serde(rename = "apiKey")]
    pub key: ApiKey,
    /// Value of the header `OPEN-SANDBOX-API-KEY`.
    pub secret: String,
}

/// An open session of the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConsoleSession {
    /// Public id, which opens nothing.
    pub id: String,
    /// What opened it.
    pub kind: PrincipalKind,
    /// Name of the user or key that opened it.
    pub name: String,
    /// When it was opened.
    pub created_at: WireTime,
    /// When it was used last, to ten minutes.
    pub last_used_at: WireTime,
    /// When it ends unless it is used.
    pub expires_at: WireTime,
    /// Address that it was opened from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// All open sessions of the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConsoleSessionList {
    /// Newest first.
    pub items: Vec<ConsoleSession>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_named() {
        assert!(Role::ReadOnly < Role::Operator && Role::Operator < Role::ServiceAdmin);
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
            let json = serde_json::to_string(&role).unwrap();
            assert_eq!(json, format!("\"{role}\""));
        }
        assert_eq!("admin".parse::<Role>(), Err(NotARole));
    }
}

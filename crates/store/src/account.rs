//! Rows of users and API keys as types.

use std::fmt;

use osb_protocol::{WireTime, identity::Role};
use tracing::warn;

/// A password as an argon2id hash in PHC form. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(pub String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// A user of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    /// Id, never used again.
    pub id: String,
    /// Name to sign in with; no two users share one.
    pub name: String,
    /// The password.
    pub password: PasswordHash,
    /// What the user may do.
    pub role: Role,
    /// The tenant that the user is limited to.
    pub tenant: Option<String>,
    /// Whether the user may not sign in.
    pub disabled: bool,
    /// When the user was added.
    pub created_at: WireTime,
    /// When the password was set.
    pub password_changed_at: WireTime,
}

/// A change of a user. `None` keeps a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserChange {
    /// A new password, and when it was set.
    pub password: Option<(PasswordHash, WireTime)>,
    /// A new role.
    pub role: Option<Role>,
    /// A new tenant, or none.
    pub tenant: Option<Option<String>>,
    /// Whether the user may not sign in.
    pub disabled: Option<bool>,
}

/// An API key. The secret itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyRow {
    /// Id, never used again.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// SHA-256 digest of the secret.
    pub digest: [u8; 32],
    /// Beginning of the secret, to recognise it by.
    pub prefix: String,
    /// What the key may do.
    pub role: Role,
    /// The tenant that the key is limited to.
    pub tenant: Option<String>,
    /// When the key was made.
    pub created_at: WireTime,
    /// When the key stops working.
    pub expires_at: Option<WireTime>,
    /// When the key was used last.
    pub last_used_at: Option<WireTime>,
    /// When the key was revoked.
    pub revoked_at: Option<WireTime>,
}

/// All users and API keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountRows {
    /// Number of changes so far. The rows are at least as new.
    pub revision: i64,
    /// Users by name.
    pub users: Vec<UserRow>,
    /// API keys, newest first.
    pub keys: Vec<ApiKeyRow>,
}

/// The role of a row. An unknown one, of a later release, may do the least.
pub(crate) fn stored_role(name: &str, owner: &str) -> Role {
    name.parse().unwrap_or_else(|_| {
        warn!(
            id = owner,
            "its stored role is unknown, so it may do the least; see store check"
        );
        Role::default()
    })
}

/// The digest of a row. One of another length is that of no secret.
pub(crate) fn stored_digest(digest: Vec<u8>, owner: &str) -> [u8; 32] {
    digest.try_into().unwrap_or_else(|_| {
        warn!(
            id = owner,
            "its stored digest is damaged, so it opens nothing; see store check"
        );
        [0; 32]
    })
}

//! What a session was opened with. A session lasts no longer than its credential.

use std::collections::HashMap;

use osb_protocol::identity::PrincipalKind;
use serde::{Deserialize, Serialize};

/// What a session was opened with, without any secret: it is stored with the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Credential {
    /// The configured key, or nothing on a server without authentication. Sessions of releases before
    /// users were all opened with it, and have its digest elsewhere.
    #[default]
    Configured,
    /// A stored key.
    ApiKey {
        /// Its id.
        id: String,
    },
    /// A tenant's key from a file.
    TenantKey {
        /// Its digest.
        digest: [u8; 32],
    },
    /// A password.
    User {
        /// Id of the user.
        id: String,
        /// Changes with the password.
        password_epoch: i64,
    },
}

/// Member of a stored session that has its login, of which the credential is a member.
pub const LOGIN: &str = "login";

/// What a stored session was opened with; `None` for one without a login.
pub(super) fn of_session(data: &[u8]) -> Option<Credential> {
    #[derive(Deserialize)]
    struct Login {
        #[serde(default)]
        credential: Credential,
    }
    let mut members: HashMap<String, serde_json::Value> = serde_json::from_slice(data).ok()?;
    let login: Login = serde_json::from_value(members.remove(LOGIN)?).ok()?;
    Some(login.credential)
}

impl Credential {
    /// Whether it is the password of this user.
    pub(super) fn is_of_user(&self, user: &str) -> bool {
        matches!(self, Self::User { id, .. } if id == user)
    }

    /// The kind of principal that has it. An anonymous session counts as one of the configured key.
    #[must_use]
    pub fn kind(&self) -> PrincipalKind {
        match self {
            Self::Configured => PrincipalKind::ConfiguredKey,
            Self::ApiKey { .. } => PrincipalKind::ApiKey,
            Self::TenantKey { .. } => PrincipalKind::TenantKey,
            Self::User { .. } => PrincipalKind::User,
        }
    }
}

//! What a session was opened with. A session lasts no longer than its credential.

use std::sync::Arc;

use osb_protocol::identity::PrincipalKind;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Authenticator, Denied, Principal, password::HashError, secret};

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

impl Credential {
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

impl Authenticator {
    /// Opens a session with a key; an empty one is none.
    ///
    /// # Errors
    /// See [`Denied`]. A key of an HTTP tenant provider opens no session: it could not be checked
    /// again without keeping the key.
    pub async fn sign_in_with_key(
        &self,
        key: &[u8],
    ) -> Result<(Credential, Arc<Principal>), Denied> {
        let principal = self.identify(key).await?;
        let credential = match principal.kind {
            PrincipalKind::Anonymous | PrincipalKind::ConfiguredKey => Credential::Configured,
            PrincipalKind::ApiKey | PrincipalKind::User => Credential::ApiKey {
                id: principal.id.clone(),
            },
            PrincipalKind::TenantKey => Credential::TenantKey {
                digest: secret::digest(key),
            },
        };
        let principal = self.resume(&credential).ok_or(Denied::Wrong)?;
        Ok((credential, principal))
    }

    /// Opens a session with a password. `None` for a wrong one.
    ///
    /// # Errors
    /// When the password cannot be hashed.
    pub async fn sign_in_with_password(
        &self,
        name: &str,
        password: SecretString,
    ) -> Result<Option<(Credential, Arc<Principal>)>, HashError> {
        let user = self.accounts().sign_in(name, password).await?;
        Ok(user.map(|user| {
            let credential = Credential::User {
                id: user.principal.id.clone(),
                password_epoch: user.password_epoch,
            };
            (credential, Arc::clone(&user.principal))
        }))
    }

    /// The principal of a session as it is now; `None` when the session has ended.
    #[must_use]
    pub fn resume(&self, credential: &Credential) -> Option<Arc<Principal>> {
        match credential {
            Credential::Configured => self.holder().map(Arc::clone),
            Credential::ApiKey { id } => self.accounts().key_by_id(id),
            Credential::TenantKey { digest } => self.tenant_by_digest(digest),
            Credential::User { id, password_epoch } => {
                let user = self.accounts().user(id)?;
                (user.password_epoch == *password_epoch).then(|| Arc::clone(&user.principal))
            }
        }
    }

    /// Digest of the configured key with a new salt, to be kept with a session.
    #[must_use]
    pub fn salted_digest(&self) -> (Uuid, [u8; 32]) {
        let salt = Uuid::new_v4();
        (salt, self.digest(salt.as_bytes()))
    }
}

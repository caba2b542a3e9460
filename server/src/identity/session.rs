//! Sessions of the console: opened with a credential, and resumed as long as it counts.

use std::sync::Arc;

use osb_protocol::identity::PrincipalKind;
use secrecy::SecretString;
use uuid::Uuid;

use super::{Authenticator, Credential, Denied, Principal, password::HashError, secret};

impl Authenticator {
    /// Opens a session with a key; an empty one is none.
    ///
    /// # Errors
    /// See [`Denied`]. A key of an HTTP tenant provider opens no session: it could not be checked
    /// again without keeping the key. The provider is not asked for it.
    pub fn sign_in_with_key(&self, key: &[u8]) -> Result<(Credential, Arc<Principal>), Denied> {
        let principal = self.recognise(key)?;
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

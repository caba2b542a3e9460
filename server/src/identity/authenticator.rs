//! Which principal an API key belongs to (contract: lifecycle §2, A7).

use std::sync::Arc;

use http::HeaderMap;
use osb_protocol::headers;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Accounts, Denied, Principal, Tenants};

/// All that opens the server: the configured key, stored keys and users, keys of tenants.
#[derive(Debug)]
pub struct Authenticator {
    configured: Option<SecretString>,
    /// The holder of the configured key.
    holder: Arc<Principal>,
    anonymous: Arc<Principal>,
    accounts: Accounts,
    tenants: Option<Tenants>,
}

impl Authenticator {
    /// Keys of these kinds.
    #[must_use]
    pub fn new(
        configured: Option<SecretString>,
        accounts: Accounts,
        tenants: Option<Tenants>,
    ) -> Self {
        Self {
            configured,
            holder: Arc::new(Principal::configured_key()),
            anonymous: Arc::new(Principal::anonymous(accounts.no_account().clone())),
            accounts,
            tenants,
        }
    }

    /// Whether requests need a key.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.configured.is_some() || self.tenants.is_some() || self.accounts.are_used()
    }

    /// Whether tenants have keys, so that proxied requests need one, too.
    #[must_use]
    pub fn has_tenants(&self) -> bool {
        self.tenants.is_some()
    }

    /// Users and stored keys.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Who sends a request with these headers.
    ///
    /// # Errors
    /// See [`Denied`]. `may_ask` is called before another service is asked about the key; where it
    /// returns `false`, the key is [`Denied::Throttled`].
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        may_ask: impl FnOnce() -> bool + Send,
    ) -> Result<Arc<Principal>, Denied> {
        let key = headers
            .get(headers::API_KEY)
            .map(http::HeaderValue::as_bytes);
        let key = key.unwrap_or_default();
        match (self.recognise(key), &self.tenants) {
            // Most requests do not get here; the others' futures stay small.
            (Err(Denied::Wrong), Some(Tenants::Http(http))) => {
                Box::pin(http.find(key, may_ask)).await
            }
            (verdict, _) => verdict,
        }
    }

    /// Whose key this is, as far as the server knows by itself; an empty one is none.
    ///
    /// # Errors
    /// [`Denied::Missing`] and [`Denied::Wrong`].
    pub fn recognise(&self, key: &[u8]) -> Result<Arc<Principal>, Denied> {
        if !self.is_required() {
            return Ok(Arc::clone(&self.anonymous));
        }
        if key.is_empty() {
            return Err(Denied::Missing);
        }
        let is_configured = self.configured.as_ref().is_some_and(|own| equal(key, own));
        if is_configured {
            return Ok(Arc::clone(&self.holder));
        }
        let found = self.accounts.key(key);
        let found = found.or_else(|| self.tenants.as_ref()?.find_in_file(key));
        found.ok_or(Denied::Wrong)
    }

    /// The tenant of a file's key, by the digest of the key.
    pub(super) fn tenant_by_digest(&self, digest: &[u8; 32]) -> Option<Arc<Principal>> {
        self.tenants.as_ref()?.find_by_digest(digest)
    }

    /// The holder of the configured key, or any client of a server without authentication.
    #[must_use]
    pub fn holder(&self) -> Option<&Arc<Principal>> {
        match &self.configured {
            Some(_) => Some(&self.holder),
            None if !self.is_required() => Some(&self.anonymous),
            None => None,
        }
    }

    /// Digest of the configured key. It reveals nothing about it and changes with it and with the salt.
    #[must_use]
    pub fn digest(&self, salt: &[u8; 16]) -> [u8; 32] {
        let key = self
            .configured
            .as_ref()
            .map(|key| key.expose_secret().as_bytes());
        Sha256::new()
            .chain_update(salt)
            .chain_update(key.unwrap_or_default())
            .finalize()
            .into()
    }
}

/// Compares in a time that does not depend on where the keys differ.
fn equal(given: &[u8], key: &SecretString) -> bool {
    given.ct_eq(key.expose_secret().as_bytes()).into()
}

#[cfg(test)]
pub(crate) mod tests {
    use osb_protocol::identity::{NewApiKey, PrincipalKind, Role};
    use osb_store::Location;

    use super::*;

    /// Keys of a server whose store is empty, and the folder of the store.
    pub(crate) async fn with_key(key: Option<&str>) -> (Authenticator, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("s.db"));
        let store = osb_store::open(&location).await.unwrap();
        let accounts = Accounts::open(store).await.unwrap();
        (
            Authenticator::new(key.map(SecretString::from), accounts, None),
            folder,
        )
    }

    #[tokio::test]
    async fn only_the_exact_key_is_admitted() {
        let (keys, _folder) = with_key(Some("k1 ")).await;
        let kind = async |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(headers::API_KEY, value.parse().unwrap());
            }
            let found = keys.authenticate(&headers, || true).await;
            found.map(|found| found.kind)
        };
        assert_eq!(kind(None).await, Err(Denied::Missing));
        assert_eq!(kind(Some("")).await, Err(Denied::Missing));
        assert_eq!(kind(Some("k1")).await, Err(Denied::Wrong));
        assert_eq!(kind(Some("k1 ")).await, Ok(PrincipalKind::ConfiguredKey));
        let digest = keys.digest(&[1; 16]);
        assert_eq!(digest, keys.digest(&[1; 16]));
        assert_ne!(digest, keys.digest(&[2; 16]), "as the salt differs");
        let (open, _folder) = with_key(None).await;
        assert_ne!(digest, open.digest(&[1; 16]));
    }

    #[tokio::test]
    async fn a_server_without_a_key_is_open_until_it_has_one() {
        let (keys, _folder) = with_key(None).await;
        let anonymous = keys.recognise(b"").unwrap();
        assert_eq!(anonymous.role, Role::ServiceAdmin);
        assert!(!keys.is_required() && keys.holder().is_some());
        let new = NewApiKey {
            name: "ci".into(),
            role: Role::ReadOnly,
            tenant: None,
            expires_at: None,
        };
        let issued = keys.accounts().add_key(new).await.unwrap();
        assert_eq!(keys.recognise(b""), Err(Denied::Missing));
        assert_eq!(keys.recognise(b"x"), Err(Denied::Wrong));
        assert!(keys.holder().is_none());
        let found = keys.recognise(issued.secret.as_bytes()).unwrap();
        assert_eq!(
            (found.role, found.kind),
            (Role::ReadOnly, PrincipalKind::ApiKey)
        );
    }
}

//! Creates that must not happen twice: the same `Idempotency-Key` gets the first one's sandbox.
//!
//! The store has the key before there is a sandbox, so that it also holds after a crash. A key whose
//! sandbox never came to be is free again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use osb_protocol::{FieldError, SandboxId, WireTime};
use osb_runtime::CreateSpec;
use osb_service::ErrorChain;
use osb_store::{CreateKey, Outcome};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::warn;

use super::{Error, Record, Service, lifecycle::now, pools::instead_of_member};

/// How long a key is kept, in seconds.
pub(super) const KEPT_SECONDS: i64 = 24 * 3600;
/// Longest key, in bytes.
const LONGEST: usize = 255;
/// Name of the header, for messages.
const HEADER: &str = "Idempotency-Key";

/// A key, within the API key and the tenant that it came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey([u8; 32]);

impl IdempotencyKey {
    /// Reads the header's value. Other API keys have keys of their own, and so has another tenant to
    /// which an API key was moved.
    ///
    /// # Errors
    /// [`Error::Rule`] that names the header.
    pub fn new(api_key: &[u8], tenant: Option<&str>, value: &[u8]) -> Result<Self, Error> {
        let printable = |byte: &u8| matches!(byte, b' '..=b'~');
        if value.is_empty() || value.len() > LONGEST || !value.iter().all(printable) {
            let rule = format!("must be 1 to {LONGEST} printable ASCII characters");
            return Err(Error::rule(HEADER, rule));
        }
        let mut digest = Sha256::new().chain_update(Sha256::digest(api_key));
        if let Some(tenant) = tenant {
            // No value begins with this byte.
            digest.update([0]);
            digest.update(Sha256::digest(tenant));
        }
        digest.update(value);
        Ok(Self(digest.finalize().into()))
    }
}

/// The creates with a key that are under way.
#[derive(Debug, Default)]
pub(super) struct KeyedCreates(Mutex<HashMap<IdempotencyKey, FirstRequest>>);

/// The first request with a key.
#[derive(Debug)]
struct FirstRequest {
    body: [u8; 32],
    end: watch::Receiver<Option<End>>,
}

type End = Result<Arc<Record>, Arc<Error>>;

impl KeyedCreates {
    fn locked(&self) -> MutexGuard<'_, HashMap<IdempotencyKey, FirstRequest>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the turn of the first request, also when it panics.
struct FirstRequestGuard {
    service: Service,
    key: IdempotencyKey,
}

impl Drop for FirstRequestGuard {
    fn drop(&mut self) {
        self.service.inner.under_way.locked().remove(&self.key);
    }
}

impl Service {
    /// Makes a sandbox unless the key has one: then that is the answer, also when it is being made
    /// just now. The sandbox stays when the caller is dropped: it may ask again.
    ///
    /// # Errors
    /// As those of [`Service::create_for_answer`]; also when the key was used for another body, or its sandbox
    /// is gone.
    pub async fn create_once(
        &self,
        body: Value,
        key: IdempotencyKey,
    ) -> Result<Arc<Record>, Error> {
        let text = serde_json::to_vec(&body).expect("maps have string keys, so this serialises");
        let body_digest: [u8; 32] = Sha256::digest(text).into();
        // A request that breaks a rule uses up no key.
        let spec = self.check(body)?;
        let (mut end, is_first) = {
            let mut under_way = self.inner.under_way.locked();
            match under_way.get(&key) {
                Some(first) if first.body != body_digest => return Err(reused()),
                Some(first) => {
                    // What the runtime has begun for it serves other creates meanwhile.
                    drop(spec);
                    (first.end.clone(), false)
                }
                None => {
                    let (sender, end) = watch::channel(None);
                    let first = FirstRequest {
                        body: body_digest,
                        end: end.clone(),
                    };
                    under_way.insert(key, first);
                    let turn = FirstRequestGuard {
                        service: self.clone(),
                        key,
                    };
                    self.inner.tasks.spawn("create once", async move {
                        let made = turn.service.create_first(spec, key, body_digest).await;
                        // The store has its outcome by now.
                        drop(turn);
                        sender.send_replace(Some(made.map_err(Arc::new)));
                    });
                    (end, true)
                }
            }
        };
        match end.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(record))) => {
                if !is_first {
                    self.note_replay(&record.facts.origin.id);
                }
                Ok(Arc::clone(record))
            }
            Ok(Some(Err(error))) => Err(Error::Joined(Arc::clone(error))),
            Ok(None) | Err(_) => Err(Error::ShuttingDown),
        }
    }

    async fn create_first(
        &self,
        mut spec: CreateSpec,
        key: IdempotencyKey,
        body: [u8; 32],
    ) -> Result<Arc<Record>, Error> {
        let mut claim = CreateKey {
            key: key.0,
            body,
            sandbox_id: spec.id().clone(),
            used_at: now(),
        };
        // It needs no sandbox of a pool then, and does not wait for one.
        if let Some(record) = self.made_with(&claim).await? {
            return Ok(record);
        }
        let mut plain = self.acquire(&mut spec).await?;
        loop {
            claim.sandbox_id = spec.id().clone();
            match self.create_with(spec, &claim).await {
                Ok(record) => return Ok(record),
                Err(error) => spec = instead_of_member(error, plain.take())?,
            }
        }
    }

    /// The sandbox that a key has. A key whose sandbox never came to be is free again.
    async fn made_with(&self, claim: &CreateKey) -> Result<Option<Arc<Record>>, Error> {
        let store = &self.inner.store;
        while let Some(first) = store.create_key(&claim.key, expired(claim)).await? {
            if first.body != claim.body {
                return Err(reused());
            }
            if let Some(record) = self.made_before(&first.sandbox_id).await? {
                self.note_replay(&first.sandbox_id);
                return Ok(Some(record));
            }
            store.free_key(&claim.key, &first.sandbox_id).await?;
        }
        Ok(None)
    }

    /// Creates a sandbox whose key is kept before it.
    async fn create_with(
        &self,
        mut spec: CreateSpec,
        claim: &CreateKey,
    ) -> Result<Arc<Record>, Error> {
        let store = &self.inner.store;
        let prepared = spec.prepared.clone();
        // The key may lead to the id from now on, and then no other sandbox may get it.
        let commit = || prepared.iter().for_each(|prepared| prepared.commit());
        let claim_key = async || {
            let claimed = store.claim_key(claim, expired(claim)).await;
            claimed.inspect_err(|_| commit())
        };
        while claim_key().await?.is_some() {
            if let Some(record) = self.made_with(claim).await? {
                return Ok(record);
            }
        }
        let made = match self.resolve_source(&mut spec).await {
            Ok(()) => {
                let id_source = super::lifecycle::IdSource::IdempotencyKey;
                self.provision(spec, id_source).await
            }
            Err(error) => Err(error),
        };
        if made.is_err()
            && let Err(error) = store.free_key(&claim.key, &claim.sandbox_id).await
        {
            commit();
            // Its history says the same to the next request.
            warn!(error = %ErrorChain(&error), "the idempotency key of a failed create stays");
        }
        made
    }

    /// The sandbox that a key had; `None` when it never came to be.
    async fn made_before(&self, id: &SandboxId) -> Result<Option<Arc<Record>>, Error> {
        let gone = || Error::WrongState {
            id: id.clone(),
            state: "gone".to_owned(),
            needs: "its Idempotency-Key cannot create another sandbox; use a new key",
        };
        if let Some(record) = self.inner.registry.get(id) {
            // The key is the tenant's, and so is its sandbox.
            if !self.scope.contains(record.facts.origin.tenant.as_deref()) {
                return Err(gone());
            }
            let is_going = record.facts.is_deleted();
            return if is_going {
                Err(gone())
            } else {
                Ok(Some(record))
            };
        }
        match self.history(id).await?.map(|entry| entry.outcome) {
            None | Some(Outcome::CreateFailed | Outcome::Abandoned) => Ok(None),
            Some(Outcome::Deleted | Outcome::Expired | Outcome::Vanished) => Err(gone()),
        }
    }
}

/// Before this, keys are free again.
fn expired(claim: &CreateKey) -> WireTime {
    let expired = claim.used_at.plus_seconds(-KEPT_SECONDS);
    expired.unwrap_or(claim.used_at)
}

fn reused() -> Error {
    let rule = "was used for a request with another body";
    Error::Invalid(vec![FieldError::header(
        "idempotency_key_reused",
        HEADER,
        rule,
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded_and_belong_to_an_api_key() {
        let key = |api: &[u8], value: &[u8]| IdempotencyKey::new(api, None, value);
        assert_eq!(key(b"k", b"a b~").unwrap(), key(b"k", b"a b~").unwrap());
        assert_ne!(key(b"k", b"a").unwrap(), key(b"l", b"a").unwrap());
        assert_ne!(key(b"k", b"a").unwrap(), key(b"k", b"b").unwrap());
        let of = |tenant| IdempotencyKey::new(b"k", tenant, b"a").unwrap();
        assert_eq!(of(Some("a")), of(Some("a")));
        assert_ne!(of(Some("a")), of(Some("b")));
        assert_ne!(of(Some("a")), of(None));
        assert!(key(b"", &[b'x'; LONGEST]).is_ok());
        for bad in [&b""[..], &[b'x'; LONGEST + 1], b"a\tb", "é".as_bytes()] {
            let error = key(b"k", bad).unwrap_err().to_string();
            assert!(error.starts_with("Idempotency-Key: must be"), "{error}");
        }
    }
}

//! Tenants of an HTTP service, which is asked for each key and whose answers are remembered for a while.
//!
//! ```text
//!  key ─▶ cache ─┬─ fresh, refused or the service is away ─▶ answer
//!                └─ else one question per key, in a task of its own ─▶ service ─▶ cache ─▶ answer
//! ```
//!
//! Any client can send keys that no cache has, so questions are bounded in number, end by themselves
//! when their clients are gone, and are not asked for addresses that sent many wrong keys. A service
//! that fails is left alone for some seconds, in which expired answers serve where there are any.

mod cache;
mod provider;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_service::Supervisor;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout, timeout_at},
};
use tracing::warn;

use self::{
    cache::{Cache, Digest, Lookup, Question, Verdict},
    provider::{Answer, Provider, ProviderFailure},
};
use super::{
    super::{Denied, Principal, secret},
    HttpOptions, TenantError,
};

/// Questions that the service is asked at once.
const AT_ONCE: usize = 32;
/// How long a request waits for an answer while an expired one could serve.
const PATIENCE: Duration = Duration::from_millis(250);
/// Longest key that the service is asked for, in bytes.
const KEY_MAX: usize = 16 << 10;

/// Tenants of an HTTP service. Clones share them.
#[derive(Clone, Debug)]
pub struct HttpTenants(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: Provider,
    max_stale: Duration,
    cache: Mutex<Cache>,
    room: Semaphore,
    tasks: Supervisor,
}

/// A question that waits for its answer, until this is dropped.
struct Asking {
    tenants: HttpTenants,
    digest: Digest,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.tenants.cache().end(&self.digest);
    }
}

impl HttpTenants {
    pub(super) fn new(options: HttpOptions, tasks: &Supervisor) -> Result<Self, TenantError> {
        Ok(Self(Arc::new(Inner {
            max_stale: options.max_stale,
            provider: Provider::new(options)?,
            cache: Mutex::default(),
            room: Semaphore::new(AT_ONCE),
            tasks: tasks.clone(),
        })))
    }

    /// The tenant of a key. `may_ask` is called before the service is asked about a key of which
    /// nothing is known; where it returns `false`, the key is [`Denied::Throttled`].
    pub(in super::super) async fn find(
        &self,
        key: &[u8],
        may_ask: impl FnOnce() -> bool + Send,
    ) -> Verdict {
        // A stored key that works was found before; no other service needs to learn one that does not.
        if key.starts_with(secret::PREFIX.as_bytes()) || key.len() > KEY_MAX {
            return Err(Denied::Wrong);
        }
        let digest = secret::digest(key);
        let found = self.cache().look_up(&digest, Instant::now());
        let (question, stale) = match found {
            Lookup::Settled(verdict) => return verdict,
            Lookup::Asked(question, stale) => (question, stale),
            Lookup::Unknown(stale) => {
                if stale.is_none() && !may_ask() {
                    return Err(Denied::Throttled);
                }
                match self.ask(key, digest) {
                    Some(question) => (question, stale),
                    None => return stale.ok_or(Denied::Unavailable),
                }
            }
        };
        wait(question, stale).await
    }

    /// Asks the service in a task of its own, which goes on when the client is gone: the next request
    /// with the key finds the answer. `None` when too many questions wait.
    fn ask(&self, key: &[u8], digest: Digest) -> Option<Question> {
        let mut cache = self.cache();
        let now = Instant::now();
        // Another request may have asked since.
        if let Lookup::Asked(question, _) = cache.look_up(&digest, now) {
            return Some(question);
        }
        let (sender, verdict) = watch::channel(None);
        let question = Question {
            began: now,
            verdict,
        };
        if !cache.begin(digest, question.clone()) {
            return None;
        }
        drop(cache);
        let asking = Asking {
            tenants: self.clone(),
            digest,
        };
        let key = key.to_vec();
        self.0.tasks.spawn_abortable("tenant question", async move {
            let inner = &asking.tenants.0;
            let answer = inner.answer(&key).await;
            let verdict = asking.tenants.settle(digest, &answer);
            drop(asking);
            sender.send_replace(Some(verdict));
        });
        Some(question)
    }

    fn settle(&self, digest: Digest, answer: &Result<Answer, ProviderFailure>) -> Verdict {
        let (max_stale, now) = (self.0.max_stale, Instant::now());
        let mut cache = self.cache();
        let verdict = cache.settle(digest, answer, max_stale, now);
        if let Err(reason) = answer
            && let Some(failures) = cache.count_failure(now)
        {
            drop(cache);
            warn!(%reason, failures, "the tenant provider failed");
        }
        verdict
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache()
    }
}

impl Inner {
    async fn answer(&self, key: &[u8]) -> Result<Answer, ProviderFailure> {
        let Ok(room) = timeout(self.provider.timeout(), self.room.acquire()).await else {
            let reason = "too many questions wait for it".to_owned();
            return Err(ProviderFailure::BadAnswer(reason));
        };
        let _room = room;
        // It may have turned out while this question waited.
        if self.cache().is_away(Instant::now()) {
            return Err(ProviderFailure::Away("it is left alone".to_owned()));
        }
        self.provider.ask(key).await
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // Whole after every operation.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for an answer, but not for long where an expired one serves.
async fn wait(question: Question, stale: Option<Arc<Principal>>) -> Verdict {
    let Question { began, mut verdict } = question;
    let answered = async {
        match verdict.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(verdict)) => verdict.clone(),
            // The server stops.
            Ok(None) | Err(_) => Err(Denied::Unavailable),
        }
    };
    match stale {
        None => answered.await,
        Some(stale) => match timeout_at(began + PATIENCE, answered).await {
            Ok(verdict) => verdict,
            Err(_) => Ok(stale),
        },
    }
}

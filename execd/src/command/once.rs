//! Idempotent requests: the same `Idempotency-Key` joins the first run.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use http::HeaderMap;
use osb_protocol::headers::IDEMPOTENCY_KEY;

use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Keys of the last ten minutes and their runs.
#[derive(Debug, Default)]
pub(super) struct Keys {
    state: Mutex<State>,
    /// Signals that the start of a run succeeded or failed.
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    runs: HashMap<String, First>,
    /// Started runs in the order of their starts.
    order: VecDeque<(Instant, String)>,
}

#[derive(Debug)]
struct First {
    /// Fingerprint of the body: a key must not be reused for another request.
    fingerprint: u64,
    /// Id of the run; `None` while it is being started.
    id: Option<String>,
}

/// Idempotency key of a request, if any.
///
/// # Errors
/// 400 when the key is invalid.
pub(super) fn key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > limits::IDEMPOTENCY_KEY {
        let message = format!(
            "Idempotency-Key must be 1 to {} printable ASCII characters",
            limits::IDEMPOTENCY_KEY
        );
        return Err(ApiError::invalid(message));
    }
    Ok(Some(text.to_owned()))
}

impl Keys {
    fn state(&self) -> MutexGuard<'_, State> {
        // The map is consistent even if a holder of the lock panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a run with `start`, which returns its id, unless the key already has a run to join.
    /// Requests with the same key wait for each other's `start`, but not for `plan`, which runs
    /// before it. Requests with other keys wait for neither: a start may hang in a file system.
    ///
    /// # Errors
    /// 422 when the body differs from the key's first one, and the errors of both functions. A key
    /// whose start failed is free again.
    pub(super) fn once<P, T>(
        &self,
        key: String,
        body: &[u8],
        plan: impl FnOnce() -> ApiResult<P>,
        start: impl FnOnce(P) -> ApiResult<(String, T)>,
        join: impl FnOnce(&str) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let fingerprint = hasher.finish();
        // A key that has a run needs no plan.
        if let (_, Some(id)) = self.settled(&key, fingerprint)? {
            return join(&id);
        }
        let plan = plan()?;
        let (mut state, known) = self.settled(&key, fingerprint)?;
        if let Some(id) = known {
            drop(state);
            return join(&id);
        }
        let first = First {
            fingerprint,
            id: None,
        };
        state.runs.insert(key.clone(), first);
        drop(state);
        let claim = Claim { keys: self, key };
        let (id, run) = start(plan)?;
        claim.settle(id);
        Ok(run)
    }

    /// Waits while a run of this key is being started; its id, if there is a run.
    ///
    /// # Errors
    /// 422 when the body differs from the key's first one.
    fn settled(
        &self,
        key: &str,
        fingerprint: u64,
    ) -> ApiResult<(MutexGuard<'_, State>, Option<String>)> {
        let mut state = self.state();
        state.expire();
        loop {
            match state.runs.get(key) {
                None => return Ok((state, None)),
                Some(first) if first.fingerprint != fingerprint => return Err(ApiError::KeyReused),
                Some(First { id: Some(id), .. }) => {
                    let id = id.clone();
                    return Ok((state, Some(id)));
                }
                Some(First { id: None, .. }) => {
                    state = self
                        .settled
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// A key whose run is being started. Dropping it frees the key, unless the start succeeded.
struct Claim<'a> {
    keys: &'a Keys,
    key: String,
}

impl Claim<'_> {
    fn settle(self, id: String) {
        let mut state = self.keys.state();
        let State { runs, order } = &mut *state;
        if let Some(first) = runs.get_mut(&self.key) {
            first.id = Some(id);
            order.push_back((Instant::now(), self.key.clone()));
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.keys.state();
        if state
            .runs
            .get(&self.key)
            .is_some_and(|first| first.id.is_none())
        {
            state.runs.remove(&self.key);
        }
        drop(state);
        self.keys.settled.notify_all();
    }
}

impl State {
    fn expire(&mut self) {
        while self.order.front().is_some_and(|(at, _)| {
            at.elapsed() >= limits::IDEMPOTENCY || self.order.len() > limits::IDEMPOTENCY_KEYS
        }) {
            if let Some((_, key)) = self.order.pop_front() {
                self.runs.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn headers(key: &[u8]) -> HeaderMap {
        let value = http::HeaderValue::from_bytes(key).unwrap();
        HeaderMap::from_iter([(http::HeaderName::from_static(IDEMPOTENCY_KEY), value)])
    }

    #[test]
    fn keys_are_short_and_printable() {
        assert_eq!(key(&HeaderMap::new()).unwrap(), None);
        assert_eq!(key(&headers(b"a-1")).unwrap().as_deref(), Some("a-1"));
        let long = vec![b'a'; limits::IDEMPOTENCY_KEY + 1];
        for bad in [b"".as_slice(), "é".as_bytes(), &long] {
            let error = key(&headers(bad)).unwrap_err();
            assert!(matches!(error, ApiError::Invalid(_)), "{error:?}");
            assert!(error.to_string().starts_with("Idempotency-Key"), "{error}");
        }
        assert!(key(&headers(&long[1..])).unwrap().is_some());
    }

    #[test]
    fn a_key_starts_one_run() {
        let keys = Keys::default();
        let never = |()| panic!("a second run");
        let plan = || Ok(());
        let start = |id: &'static str| move |()| Ok((id.to_owned(), id.to_owned()));
        let join = |id: &str| Ok(format!("again {id}"));
        let once = |key: &str, id| {
            keys.once(key.to_owned(), b"x", plan, start(id), join)
                .unwrap()
        };
        assert_eq!(once("k", "1"), "1");
        assert_eq!(once("l", "2"), "2");
        let again = keys.once(
            "k".to_owned(),
            b"x",
            || panic!("a second plan"),
            never,
            join,
        );
        assert_eq!(again.unwrap(), "again 1");
        let other = keys
            .once("k".to_owned(), b"y", plan, never, join)
            .unwrap_err();
        assert_eq!(other, ApiError::KeyReused);
        let fails = |()| Err(ApiError::invalid("no"));
        assert!(keys.once("m".to_owned(), b"x", plan, fails, join).is_err());
        assert_eq!(once("m", "3"), "3");
    }

    #[test]
    fn only_the_same_key_waits_for_a_start() {
        let keys = Keys::default();
        let (started, is_started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let join = |id: &str| Ok(format!("again {id}"));
        std::thread::scope(|scope| {
            let keys = &keys;
            scope.spawn(move || {
                let start = |()| {
                    started.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(("1".to_owned(), "1".to_owned()))
                };
                let first = keys.once("slow".to_owned(), b"x", || Ok(()), start, join);
                assert_eq!(first.unwrap(), "1");
            });
            is_started.recv().unwrap();
            let second = scope.spawn(move || {
                let never = |()| panic!("a second run");
                keys.once("slow".to_owned(), b"x", || Ok(()), never, join)
            });
            let other = keys.once("slow".to_owned(), b"y", || Ok(()), |()| panic!(), join);
            assert_eq!(other.unwrap_err(), ApiError::KeyReused);
            let start = |()| Ok(("2".to_owned(), "2".to_owned()));
            let other = keys.once("other".to_owned(), b"x", || Ok(()), start, join);
            assert_eq!(other.unwrap(), "2");
            release.send(()).unwrap();
            assert_eq!(second.join().unwrap().unwrap(), "again 1");
        });
    }

    #[test]
    fn the_oldest_keys_make_room() {
        let keys = Keys::default();
        for index in 0..limits::IDEMPOTENCY_KEYS + 2 {
            let key = index.to_string();
            let start = |()| Ok((String::new(), true));
            let once = keys.once(key, b"", || Ok(()), start, |_| Ok(false));
            assert!(once.unwrap());
        }
        let state = keys.state.lock().unwrap();
        assert_eq!(state.runs.len(), limits::IDEMPOTENCY_KEYS + 1);
        assert!(!state.runs.contains_key("0") && state.runs.contains_key("1"));
    }
}

//! Idempotent requests: the same `Idempotency-Key` joins the first run.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
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
}

#[derive(Debug, Default)]
struct State {
    runs: HashMap<String, First>,
    /// In order of arrival.
    order: VecDeque<(Instant, String)>,
}

#[derive(Clone, Debug)]
struct First {
    /// Fingerprint of the body: a key must not be reused for another request.
    fingerprint: u64,
    id: String,
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
    /// Concurrent requests wait for each other's `start`, but not for `plan`, which runs before it.
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
        let known = self.state().find(&key, fingerprint)?;
        if let Some(id) = known {
            return join(&id);
        }
        let plan = plan()?;
        let mut state = self.state();
        if let Some(id) = state.find(&key, fingerprint)? {
            drop(state);
            return join(&id);
        }
        let (id, run) = start(plan)?;
        state.order.push_back((Instant::now(), key.clone()));
        state.runs.insert(key, First { fingerprint, id });
        Ok(run)
    }
}

impl State {
    /// Run of a key.
    fn find(&mut self, key: &str, fingerprint: u64) -> ApiResult<Option<String>> {
        self.expire();
        match self.runs.get(key) {
            Some(first) if first.fingerprint != fingerprint => Err(ApiError::KeyReused),
            first => Ok(first.map(|first| first.id.clone())),
        }
    }

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

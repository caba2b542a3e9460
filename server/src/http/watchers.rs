//! How many places each principal, or another subject, takes at once: of streams, which last for as long as
//! their clients like and take a place among the API requests, and of logs in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Most streams of one principal.
pub(super) const WATCHERS_MAX: usize = 64;

/// Counts the places of each subject. Clones share the counts.
#[derive(Clone, Debug)]
pub(super) struct Watchers {
    /// Most places of one subject.
    most: usize,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Watching {
    watchers: Watchers,
    principal: String,
}

impl Watchers {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    /// One more place; `None` when the subject has as many as it may.
    pub(super) fn enter(&self, principal: &str) -> Option<Watching> {
        let mut counts = self.counts();
        let count = counts.entry(principal.to_owned()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Watching {
            watchers: self.clone(),
            principal: principal.to_owned(),
        })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // The counts are whole after every operation, so a panic elsewhere does not spoil them.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut counts = self.watchers.counts();
        if let Some(count) = counts.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_has_its_own_bound_and_room_comes_back() {
        let watchers = Watchers::new(WATCHERS_MAX);
        let mut held: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.enter("a")).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(watchers.enter("a").is_none());
        assert!(watchers.enter("b").is_some());
        held.pop();
        held.push(watchers.enter("a"));
        assert!(held.iter().all(Option::is_some));
        drop(held);
        assert!(watchers.counts().is_empty());
    }
}

//! One operation at a time on each of many objects.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

type Turn = tokio::sync::Mutex<()>;

/// The objects that have an operation in progress or waiting.
#[derive(Debug)]
pub(super) struct Turns<K>(Mutex<HashMap<K, Weak<Turn>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Turns<K> {
    /// Returns the lock of an object.
    pub(super) fn of(&self, object: &K) -> Arc<Turn> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(object).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::<Turn>::default();
        turns.insert(object.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn operations_on_one_object_take_turns() {
        let turns = Turns::default();
        let (first, same, other) = (turns.of(&"a"), turns.of(&"a"), turns.of(&"b"));
        let _held = first.lock().await;
        assert!(same.try_lock().is_err());
        assert!(other.try_lock().is_ok());
        drop(other);
        let _third = turns.of(&"c");
        let kept = turns.0.lock().unwrap().len();
        assert_eq!(kept, 2, "one without a user is dropped");
    }
}

//! Since when this process knows that what the runtime keeps has no snapshot, or no template.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What is kept and not needed, by id, and when each was first seen so. It can be
/// old and yet unknown only since now: the store may be an older one that an operator put back.
#[derive(Debug, Default)]
pub(super) struct Unneeded(Mutex<HashMap<String, Instant>>);

impl Unneeded {
    /// Notes all that is not needed at `now`, and returns those that were not needed since `kept`
    /// or longer. One that is not among them is forgotten.
    pub(super) fn note(&self, ids: Vec<String>, now: Instant, kept: Duration) -> HashSet<String> {
        // The map is replaced as a whole, so a panic elsewhere does not spoil it.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |id: String| {
            let first = known.get(&id).copied().unwrap_or(now);
            (id, first)
        };
        let noted: HashMap<String, Instant> = ids.into_iter().map(since).collect();
        let due = noted
            .iter()
            .filter(|(_, first)| now.duration_since(**first) >= kept);
        let due = due.map(|(id, _)| id.clone()).collect();
        *known = noted;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_unneeded_is_due() {
        let (unneeded, begun) = (Unneeded::default(), Instant::now());
        let note = |ids: &[&str], seconds: u64| {
            let ids = ids.iter().map(|id| (*id).to_owned()).collect();
            let now = begun + Duration::from_secs(seconds);
            let due = unneeded.note(ids, now, Duration::from_secs(60));
            let mut due: Vec<String> = due.into_iter().collect();
            due.sort();
            due
        };
        assert_eq!(note(&["a", "b"], 0), [""; 0]);
        // The newer store was back for a moment.
        assert_eq!(note(&["a", "c"], 30), [""; 0]);
        assert_eq!(note(&["a", "b", "c"], 59), [""; 0]);
        assert_eq!(note(&["a", "b", "c"], 60), ["a"]);
        assert_eq!(note(&["a", "b", "c"], 119), ["a", "b", "c"]);
    }
}

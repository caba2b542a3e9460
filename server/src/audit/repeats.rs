//! Equal entries as one: a program with an old key, or one that guesses, must not fill the trail, nor
//! must a client that runs a command every second.
//!
//! The first is recorded at once. Those that follow within a window are counted and recorded together
//! when it ends.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use osb_protocol::audit::AuditEntry;

/// How long equal refusals are counted as one entry.
pub(super) const DENIALS: Duration = Duration::from_secs(60);
/// How long a client's use of a sandbox is counted as one entry.
pub(super) const USES: Duration = Duration::from_secs(3_600);
/// Most entries that are distinguished; more are counted together by their action.
const DISTINCT: usize = 4_096;

/// What makes entries equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Likeness {
    action: String,
    /// Address, code, actor and object; empty for those that are not distinguished.
    rest: String,
}

impl Likeness {
    fn of(entry: &AuditEntry) -> Self {
        let parts = [
            entry.address.as_deref().unwrap_or_default(),
            entry.code.as_deref().unwrap_or_default(),
            &entry.actor.id,
            &entry.actor.name,
            &entry.object.id,
        ];
        Self {
            action: entry.action.clone(),
            rest: parts.join("\0"),
        }
    }

    fn of_others(entry: &AuditEntry) -> Self {
        Self {
            action: entry.action.clone(),
            rest: String::new(),
        }
    }
}

/// Entries that are counted.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<Likeness, Window>);

#[derive(Debug)]
struct Window {
    ends: Instant,
    /// The last one, if there was another one after the first; `count` has all but the first.
    last: Option<AuditEntry>,
}

impl Repeats {
    /// Counts an entry; returns it if it is to be recorded now. A new window ends at `ends`.
    pub(super) fn count(&mut self, entry: AuditEntry, ends: Instant) -> Option<AuditEntry> {
        let mut likeness = Likeness::of(&entry);
        let is_full = self.0.len() >= DISTINCT && !self.0.contains_key(&likeness);
        if is_full {
            likeness = Likeness::of_others(&entry);
        }
        let Some(window) = self.0.get_mut(&likeness) else {
            self.0.insert(likeness, Window { ends, last: None });
            return Some(entry);
        };
        let before = window.last.take().map_or(0, |last| last.count);
        let mut last = entry;
        last.count = before + 1;
        if is_full {
            // It stands for others as well.
            last.address = None;
            last.request_id = None;
            last.tenant = None;
            last.actor = super::unknown("");
            last.object.id = String::new();
        }
        window.last = Some(last);
        None
    }

    /// Ends the windows that are over at `now`, or all. Returns their entries in the order of time.
    pub(super) fn end(&mut self, now: Option<Instant>) -> Vec<AuditEntry> {
        let mut ended = Vec::new();
        self.0.retain(|_, window| {
            let is_over = now.is_none_or(|now| now >= window.ends);
            if is_over {
                ended.extend(window.last.take());
            }
            !is_over
        });
        ended.sort_by_key(|entry| entry.at);
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::audit::AuditOutcome;

    use super::{
        super::{Action, entry, unknown},
        *,
    };

    fn denied(address: &str, name: &str) -> AuditEntry {
        let mut denied = entry(Action::AccessDenied, unknown(name), AuditOutcome::Denied);
        denied.address = Some(address.to_owned());
        denied
    }

    #[test]
    fn the_first_is_recorded_and_the_rest_of_a_window_is_counted() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let end = start + DENIALS;
        assert!(repeats.count(denied("10.0.0.1", "a"), end).is_some());
        assert!(repeats.count(denied("10.0.0.1", "b"), end).is_some());
        assert!(repeats.count(denied("10.0.0.2", "a"), end).is_some());
        for _ in 0..5 {
            assert!(repeats.count(denied("10.0.0.1", "a"), end).is_none());
        }
        assert!(repeats.end(Some(start)).is_empty());
        let ended = repeats.end(Some(end));
        assert_eq!((ended.len(), ended[0].count), (1, 5));
        assert_eq!(ended[0].address.as_deref(), Some("10.0.0.1"));
        assert!(repeats.is_empty());
        assert!(repeats.count(denied("10.0.0.1", "a"), end).is_some());
    }

    #[test]
    fn memory_is_bounded_and_none_is_uncounted() {
        let (mut repeats, end) = (Repeats::default(), Instant::now() + DENIALS);
        let many = 3 * DISTINCT;
        let mut recorded = 0;
        for number in 0..many {
            let entry = repeats.count(denied("10.0.0.1", &number.to_string()), end);
            recorded += entry.map_or(0, |entry| entry.count);
        }
        assert!(repeats.0.len() <= DISTINCT + 1);
        let ended = repeats.end(None);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].address, None);
        recorded += ended[0].count;
        assert_eq!(recorded, u64::try_from(many).unwrap());
    }
}

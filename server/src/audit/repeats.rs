//! Equal entries as one: a program with an old key, or one that guesses, must not fill the trail, nor
//! must a client that runs a command every second.
//!
//! The first is recorded at once. Those that follow within a window are counted and recorded together
//! when it ends.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use osb_protocol::audit::{AuditActorKind, AuditEntry, AuditOutcome};

/// How long equal refusals are counted as one entry.
pub(super) const DENIALS: Duration = Duration::from_secs(60);
/// How long a client's use of a sandbox is counted as one entry.
pub(super) const USES: Duration = Duration::from_secs(3_600);
/// Most entries of a table that are distinguished by everything.
const DISTINCT: usize = 4_096;
/// Most entries of a table that are distinguished by actor and action only.
const COARSE: usize = 4_096;

/// What makes entries equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Likeness {
    action: String,
    outcome: AuditOutcome,
    actor: AuditActorKind,
    /// The rest of what counts.
    rest: String,
}

impl Likeness {
    fn of(entry: &AuditEntry) -> Self {
        // A client without a key may invent any number of objects.
        let object = match is_keyless_denial(entry) {
            true => "",
            false => entry.object.id.as_str(),
        };
        let parts = [
            entry.address.as_deref().unwrap_or_default(),
            entry.code.as_deref().unwrap_or_default(),
            &entry.actor.id,
            &entry.actor.name,
            object,
        ];
        Self::with(entry, parts.join("\0"))
    }

    /// Leaves out what one client can vary. An actor that proved its identity stays.
    fn coarse(entry: &AuditEntry) -> Self {
        let rest = match is_keyless(entry) {
            true => String::new(),
            false => [entry.actor.id.as_str(), &entry.actor.name].join("\0"),
        };
        Self::with(entry, rest)
    }

    fn with(entry: &AuditEntry, rest: String) -> Self {
        Self {
            action: entry.action.clone(),
            outcome: entry.outcome,
            actor: entry.actor.kind,
            rest,
        }
    }
}

fn is_keyless(entry: &AuditEntry) -> bool {
    entry.actor.kind == AuditActorKind::Unknown
}

fn is_keyless_denial(entry: &AuditEntry) -> bool {
    is_keyless(entry) && entry.outcome == AuditOutcome::Denied
}

/// Entries that are counted. Clients without a key fill tables of their own, so that they take none of
/// the detail of others.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    keyless_denials: Table,
    keyless_uses: Table,
    known: Table,
}

impl Repeats {
    /// Counts an entry; returns it if it is to be recorded now. A new window ends at `ends`.
    pub(super) fn count(&mut self, entry: AuditEntry, ends: Instant) -> Option<AuditEntry> {
        let table = match (is_keyless(&entry), is_keyless_denial(&entry)) {
            (_, true) => &mut self.keyless_denials,
            (true, false) => &mut self.keyless_uses,
            (false, false) => &mut self.known,
        };
        table.count(entry, ends)
    }

    /// Ends the windows that are over at `now`, or all. Returns their entries in the order of time.
    pub(super) fn end(&mut self, now: Option<Instant>) -> Vec<AuditEntry> {
        let mut ended = Vec::new();
        for table in [
            &mut self.keyless_denials,
            &mut self.keyless_uses,
            &mut self.known,
        ] {
            table.end(now, &mut ended);
        }
        ended.sort_by_key(|entry| entry.at);
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        let tables = [&self.keyless_denials, &self.keyless_uses, &self.known];
        tables.iter().all(|table| table.0.is_empty())
    }
}

#[derive(Debug, Default)]
struct Table(HashMap<Likeness, Window>);

#[derive(Debug)]
struct Window {
    ends: Instant,
    /// The object of all entries so far; `None` if they have several.
    object: Option<String>,
    /// The last one, if there was another one after the first; `count` has all but the first.
    last: Option<AuditEntry>,
}

impl Table {
    fn count(&mut self, entry: AuditEntry, ends: Instant) -> Option<AuditEntry> {
        let has_room = |windows: &HashMap<_, _>, likeness: &Likeness, most| {
            windows.len() < most || windows.contains_key(likeness)
        };
        let mut likeness = Likeness::of(&entry);
        let is_coarse = !has_room(&self.0, &likeness, DISTINCT);
        if is_coarse {
            likeness = Likeness::coarse(&entry);
            // One by one rather than under the name of another.
            if !has_room(&self.0, &likeness, DISTINCT + COARSE) {
                return Some(entry);
            }
        }
        let Some(window) = self.0.get_mut(&likeness) else {
            let object = Some(entry.object.id.clone());
            let window = Window {
                ends,
                object,
                last: None,
            };
            self.0.insert(likeness, window);
            return Some(entry);
        };
        let before = window.last.take().map_or(0, |last| last.count);
        let mut last = entry;
        last.count = before + 1;
        if is_coarse {
            forget(&mut last);
        }
        if window.object.as_ref() != Some(&last.object.id) {
            window.object = None;
            last.object.id = String::new();
        }
        window.last = Some(last);
        None
    }

    fn end(&mut self, now: Option<Instant>, ended: &mut Vec<AuditEntry>) {
        self.0.retain(|_, window| {
            let is_over = now.is_none_or(|now| now >= window.ends);
            if is_over {
                ended.extend(window.last.take());
            }
            !is_over
        });
    }
}

/// Removes what the entry does not share with the others that it stands for.
fn forget(entry: &mut AuditEntry) {
    entry.address = None;
    entry.request_id = None;
    entry.changes.clear();
    entry.object.id = String::new();
    if is_keyless(entry) {
        entry.actor = super::unknown("");
    }
    entry.tenant = entry.actor.tenant.clone();
}

#[cfg(test)]
mod tests {
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

    /// What a client that may use sandboxes leaves.
    fn entered(actor: &str, object: usize) -> AuditEntry {
        let mut actor = unknown(actor);
        actor.kind = AuditActorKind::ApiKey;
        actor.id = format!("id-of-{}", actor.name);
        let mut entered = entry(Action::SandboxEnter, actor, AuditOutcome::Succeeded);
        entered.object.id = object.to_string();
        entered
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
        assert!(repeats.keyless_denials.0.len() <= DISTINCT + 1);
        let ended = repeats.end(None);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].address, None);
        recorded += ended[0].count;
        assert_eq!(recorded, u64::try_from(many).unwrap());
    }

    #[test]
    fn objects_that_a_client_without_a_key_invents_are_counted_together() {
        let (mut repeats, end) = (Repeats::default(), Instant::now() + DENIALS);
        let denied = |object: usize| {
            let mut denied = denied("10.0.0.1", "");
            denied.object.id = object.to_string();
            denied
        };
        let first = repeats.count(denied(0), end).unwrap();
        assert_eq!(first.object.id, "0");
        for object in 1..1_000 {
            assert_eq!(repeats.count(denied(object), end), None);
        }
        let ended = repeats.end(None);
        assert_eq!((ended.len(), ended[0].count), (1, 999));
        assert_eq!(ended[0].object.id, "", "there were several");
        assert!(repeats.count(denied(0), end).is_some());
        assert!(repeats.count(denied(0), end).is_none());
        assert_eq!(repeats.end(None)[0].object.id, "0");
    }

    #[test]
    fn who_proved_an_identity_keeps_it_however_many_entries_there_are() {
        let (mut repeats, end) = (Repeats::default(), Instant::now() + USES);
        for number in 0..2 * DISTINCT {
            let _ = repeats.count(denied("10.0.0.1", &number.to_string()), end);
        }
        // Not anonymous, although the table of those without a key is full.
        assert!(repeats.count(entered("a", 1), end).is_some());
        assert!(repeats.count(entered("a", 1), end).is_none());
        let mut recorded = 2;
        for object in 0..3 * DISTINCT {
            recorded += usize::from(repeats.count(entered("a", object), end).is_some());
            recorded += usize::from(repeats.count(entered("b", object), end).is_some());
        }
        assert!(recorded < 2 * DISTINCT, "{recorded}");
        let ended = repeats.end(None);
        let of = |name: &str| ended.iter().filter(|it| it.actor.name == name).count();
        assert!(of("a") > 0 && of("b") > 0);
        let known = ended.iter().filter(|it| it.action == "sandbox.enter");
        for entry in known {
            assert_eq!(entry.actor.id, format!("id-of-{}", entry.actor.name));
        }
    }

    #[test]
    fn an_actor_beyond_all_bounds_is_recorded_one_by_one() {
        let (mut repeats, end) = (Repeats::default(), Instant::now() + USES);
        for number in 0..DISTINCT + COARSE {
            let entry = entered(&number.to_string(), number);
            assert!(repeats.count(entry, end).is_some());
        }
        for _ in 0..2 {
            let late = repeats.count(entered("late", 1), end).unwrap();
            assert_eq!((late.actor.name.as_str(), late.count), ("late", 1));
        }
    }

    #[test]
    fn a_failure_is_not_counted_as_a_success() {
        let (mut repeats, end) = (Repeats::default(), Instant::now() + USES);
        let failed = AuditEntry {
            outcome: AuditOutcome::Failed,
            ..entered("a", 1)
        };
        assert!(repeats.count(entered("a", 1), end).is_some());
        assert!(repeats.count(failed, end).is_some());
    }
}

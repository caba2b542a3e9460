//! What was decided, by destination: a bounded memory that says what the sandbox asked for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    limits,
    policy::{Action, Decision},
};

/// The default decided.
const DEFAULT: &str = "default";

/// Decisions about names.
#[derive(Debug, Default)]
pub struct Decisions(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    names: HashMap<Arc<str>, Entry>,
    number: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    action: Action,
    rule: Arc<str>,
    count: u64,
    first: Timestamp,
    last: Timestamp,
    number: u64,
    existence: Existence,
}

/// Sum of what name servers answered for a name, over all its queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existence {
    /// Nothing: it was refused, or none answered.
    Unknown,
    /// Each answer said that it does not exist.
    Missing,
    Exists,
}

impl Existence {
    /// Adds what a later answer says.
    fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::Exists, _) | (_, Self::Unknown) => self,
            _ => later,
        }
    }
}

/// A decision about a name, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// What happened to the last query.
    pub action: Action,
    /// Name that was asked for.
    pub name: String,
    /// Rule that decided, or `default`, or why an answer was withheld.
    pub rule: String,
    /// Number of queries.
    pub count: u64,
    /// Time of the first query that is remembered.
    pub first: Timestamp,
    /// Time of the last query.
    pub last: Timestamp,
    /// Number of the last change. Later ones have higher numbers.
    pub number: u64,
    /// Whether each answer of a name server said that the name does not exist.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nonexistent: bool,
}

impl Decisions {
    /// Notes what a policy said about a name.
    pub fn note(&self, name: &str, decision: Decision<'_>) {
        let rule = decision.rule.map(ToString::to_string);
        self.note_reason(name, decision.action, rule.as_deref().unwrap_or(DEFAULT));
    }

    /// Notes a decision for another reason than a rule.
    pub fn note_reason(&self, name: &str, action: Action, reason: &str) {
        self.enter(name, action, reason, Existence::Unknown);
    }

    /// Notes what a policy said about a name, and whether the name exists by the answer of a name server.
    /// `withheld` is the reason why the client gets none of its addresses.
    pub fn note_answer(
        &self,
        name: &str,
        decision: Decision<'_>,
        exists: bool,
        withheld: Option<&str>,
    ) {
        let rule = decision.rule.map(ToString::to_string);
        let reason = withheld.or(rule.as_deref()).unwrap_or(DEFAULT);
        let existence = match exists {
            true => Existence::Exists,
            false => Existence::Missing,
        };
        self.enter(name, decision.action, reason, existence);
    }

    fn enter(&self, name: &str, action: Action, reason: &str, existence: Existence) {
        let now = Timestamp::now();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.note(name, action, reason, existence, now);
    }

    /// Decisions after a change, in the order of their changes, and the number of the last one.
    #[must_use]
    pub fn since(&self, number: u64) -> (Vec<Shown>, u64) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = seen.names.iter().filter(|(_, entry)| entry.number > number);
        let mut shown: Vec<Shown> = newer
            .map(|(name, entry)| Shown {
                action: entry.action,
                name: name.to_string(),
                rule: entry.rule.to_string(),
                count: entry.count,
                first: entry.first,
                last: entry.last,
                number: entry.number,
                nonexistent: entry.existence == Existence::Missing,
            })
            .collect();
        shown.sort_unstable_by_key(|it| it.number);
        (shown, seen.number)
    }
}

impl Seen {
    fn note(
        &mut self,
        name: &str,
        action: Action,
        reason: &str,
        existence: Existence,
        now: Timestamp,
    ) {
        self.number += 1;
        let number = self.number;
        if let Some(entry) = self.names.get_mut(name) {
            if *entry.rule != *reason {
                entry.rule = reason.into();
            }
            entry.action = action;
            entry.count += 1;
            entry.last = now;
            entry.number = number;
            entry.existence = entry.existence.and(existence);
            return;
        }
        if self.names.len() == limits::DECISIONS {
            self.forget_oldest();
        }
        let entry = Entry {
            action,
            rule: reason.into(),
            count: 1,
            first: now,
            last: now,
            number,
            existence,
        };
        self.names.insert(name.into(), entry);
    }

    /// Forgets the eighth of the names that was not asked for longest, so that a flood of new names
    /// does not search for the oldest each time.
    fn forget_oldest(&mut self) {
        let mut numbers: Vec<u64> = self.names.values().map(|entry| entry.number).collect();
        let position = numbers.len() / 8;
        let (_, limit, _) = numbers.select_nth_unstable(position);
        let limit = *limit;
        self.names.retain(|_, entry| entry.number > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_for_a_name_are_counted_together() {
        let decisions = Decisions::default();
        decisions.note_reason("a.example", Action::Deny, DEFAULT);
        decisions.note_reason("b.example", Action::Allow, "allow *.example");
        decisions.note_reason("a.example", Action::Allow, "allow a.example");
        let (shown, number) = decisions.since(0);
        assert_eq!(number, 3);
        let short: Vec<_> = shown
            .iter()
            .map(|it| (&*it.name, it.action, &*it.rule, it.count))
            .collect();
        assert_eq!(
            short,
            [
                ("b.example", Action::Allow, "allow *.example", 1),
                ("a.example", Action::Allow, "allow a.example", 2),
            ]
        );
        assert!(shown[1].first <= shown[1].last);
        assert_eq!(decisions.since(2).0.len(), 1);
        assert_eq!(decisions.since(3).0, []);
    }

    #[test]
    fn a_name_is_nonexistent_if_each_answer_says_so() {
        const ALLOWED: Decision<'static> = Decision {
            action: Action::Allow,
            rule: None,
        };
        let decisions = Decisions::default();
        let unanswered = |name: &str| decisions.note(name, ALLOWED);
        let answered = |name: &str, exists| decisions.note_answer(name, ALLOWED, exists, None);
        unanswered("unanswered.example");
        answered("missing.example", false);
        unanswered("missing.example");
        answered("missing.example", false);
        answered("late.example", false);
        answered("late.example", true);
        answered("gone.example", true);
        answered("gone.example", false);
        decisions.note_reason("refused.example", Action::Deny, DEFAULT);
        let shown = decisions.since(0).0.into_iter();
        let missing: Vec<String> = shown
            .filter(|it| it.nonexistent)
            .map(|it| it.name)
            .collect();
        assert_eq!(missing, ["missing.example"]);
    }

    #[test]
    fn an_answer_that_is_withheld_is_one_for_an_allowed_name() {
        let decisions = Decisions::default();
        let allowed = Decision {
            action: Action::Allow,
            rule: None,
        };
        decisions.note_answer("a.example", allowed, true, Some("near"));
        decisions.note_answer("b.example", allowed, true, None);
        let shown = decisions.since(0).0.into_iter();
        let rules: Vec<_> = shown.map(|it| (it.action, it.rule)).collect();
        let [near, default] = ["near", DEFAULT].map(|rule| (Action::Allow, rule.to_owned()));
        assert_eq!(rules, [near, default]);
    }

    #[test]
    fn memory_is_bounded_and_the_latest_stay() {
        let decisions = Decisions::default();
        for n in 0..limits::DECISIONS * 3 {
            decisions.note_reason(&format!("n{n}.example"), Action::Deny, DEFAULT);
            decisions.note_reason("always.example", Action::Allow, DEFAULT);
        }
        let (shown, _) = decisions.since(0);
        assert!(shown.len() <= limits::DECISIONS, "{}", shown.len());
        assert!(shown.len() > limits::DECISIONS / 2, "{}", shown.len());
        let last = &shown[shown.len() - 1];
        assert_eq!(
            (&*last.name, last.count),
            ("always.example", limits::DECISIONS as u64 * 3)
        );
    }
}

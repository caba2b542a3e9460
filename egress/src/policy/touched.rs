//! What a change of the policy may decide in another way than before, so that only this is judged
//! again: tens of thousands of names may have led to open addresses.

use std::collections::HashMap;

use osb_protocol::network_policy::Target;

use super::{Effective, EffectiveRule, index::NameIndex};

/// Names about which two policies may differ.
#[derive(Debug)]
pub enum Touched {
    /// All: networks or the default differ, too, or rules changed their order.
    All,
    /// Those that these targets cover.
    Covered(NameIndex),
}

impl Touched {
    /// Compares two policies.
    ///
    /// The first rule that covers a name decides. So two policies agree about a name if the rules
    /// that only one of them has do not cover it, and the others are in the same order.
    #[must_use]
    pub fn between(old: &Effective, new: &Effective) -> Self {
        if old.networks() != new.networks() || old.default_action() != new.default_action() {
            return Self::All;
        }
        let (old, new) = without_ends(old.rules(), new.rules());
        let (old, new) = (first_of_each(old), first_of_each(new));
        if old.in_both(&new) != new.in_both(&old) {
            return Self::All;
        }
        let rules = old.without(&new).chain(new.without(&old));
        Self::Covered(NameIndex::new(rules.map(|it| &it.rule.target)))
    }

    /// Whether the policies may differ about a name. The name is in lower case and has no final dot.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Covered(index) => index.first(name).is_some(),
        }
    }
}

/// Two lists without their common beginning and end: usually few rules remain.
fn without_ends<'a>(
    mut old: &'a [EffectiveRule],
    mut new: &'a [EffectiveRule],
) -> (&'a [EffectiveRule], &'a [EffectiveRule]) {
    let same = |(one, other): &(&EffectiveRule, &EffectiveRule)| one == other;
    let begin = old.iter().zip(new).take_while(same).count();
    (old, new) = (&old[begin..], &new[begin..]);
    let pairs = old.iter().rev().zip(new.iter().rev());
    let end = pairs.take_while(same).count();
    (&old[..old.len() - end], &new[..new.len() - end])
}

/// The rules for names that decide: of those with equal targets, only the first one does.
struct Firsts<'a> {
    in_order: Vec<&'a EffectiveRule>,
    by_target: HashMap<&'a Target, &'a EffectiveRule>,
}

impl<'a> Firsts<'a> {
    fn has(&self, rule: &EffectiveRule) -> bool {
        let own = self.by_target.get(&rule.rule.target);
        own.is_some_and(|own| *own == rule)
    }

    /// Rules that another list has, too.
    fn in_both(&self, other: &Firsts<'_>) -> Vec<&'a EffectiveRule> {
        let own = self.in_order.iter().copied();
        own.filter(|rule| other.has(rule)).collect()
    }

    /// Rules that another list lacks.
    fn without(&self, other: &Firsts<'_>) -> impl Iterator<Item = &'a EffectiveRule> {
        let own = self.in_order.iter().copied();
        own.filter(|rule| !other.has(rule))
    }
}

fn first_of_each(rules: &[EffectiveRule]) -> Firsts<'_> {
    let mut firsts = Firsts {
        in_order: Vec::new(),
        by_target: HashMap::new(),
    };
    for rule in rules {
        let target = &rule.rule.target;
        if matches!(target, Target::Network(_)) || firsts.by_target.contains_key(target) {
            continue;
        }
        firsts.by_target.insert(target, rule);
        firsts.in_order.push(rule);
    }
    firsts
}

#[cfg(test)]
mod tests {
    use osb_protocol::network_policy::{Action, Policy, Rule};
    use proptest::prelude::*;

    use super::*;
    use crate::policy::overlay::Overlay;

    fn policy(rules: &[(Action, String)]) -> Effective {
        let rules = rules.iter();
        let user = Policy {
            rules: rules
                .map(|(action, target)| Rule::new(*action, target).unwrap())
                .collect(),
            default_action: Action::Deny,
        };
        Effective::new(&user, &Overlay::default())
    }

    fn parsed(text: &str) -> Effective {
        let user = Policy::parse(text.as_bytes()).unwrap();
        Effective::new(&user, &Overlay::default())
    }

    #[test]
    fn a_patch_touches_its_names_only() {
        let old = parsed(
            r#"{"egress":[{"action":"allow","target":"*.a.example"},
            {"action":"deny","target":"b.example"},{"action":"allow","target":"10.0.0.0/8"}]}"#,
        );
        let new = parsed(
            r#"{"egress":[{"action":"allow","target":"b.example"},
            {"action":"allow","target":"*.a.example"},{"action":"allow","target":"10.0.0.0/8"}]}"#,
        );
        let touched = Touched::between(&old, &new);
        assert!(touched.covers("b.example"));
        for other in ["x.a.example", "a.example", "x.b.example", "c.example"] {
            assert!(!touched.covers(other), "{other}");
        }
        assert!(!Touched::between(&old, &old).covers("b.example"));
    }

    #[test]
    fn networks_and_the_default_touch_everything() {
        let old = parsed(r#"{"egress":[{"action":"allow","target":"a.example"}]}"#);
        for other in [
            r#"{"defaultAction":"allow","egress":[{"action":"allow","target":"a.example"}]}"#,
            r#"{"egress":[{"action":"allow","target":"a.example"},{"action":"deny","target":"10.0.0.1"}]}"#,
        ] {
            assert!(matches!(
                Touched::between(&old, &parsed(other)),
                Touched::All
            ));
        }
    }

    fn rules() -> impl Strategy<Value = Vec<(Action, String)>> {
        let action = prop_oneof![Just(Action::Allow), Just(Action::Deny)];
        prop::collection::vec((action, r"(\*\.)?([ab]\.){0,2}[ab]"), 0..7)
    }

    proptest! {
        /// What is not touched is decided by an equal rule.
        #[test]
        fn what_is_not_touched_is_decided_as_before(
            begin in rules(), old in rules(), new in rules(), end in rules(),
            name in r"([ab]\.){0,3}[ab]",
        ) {
            let old = policy(&[begin.clone(), old, end.clone()].concat());
            let new = policy(&[begin, new, end].concat());
            if !Touched::between(&old, &new).covers(&name) {
                prop_assert_eq!(old.decide(&name).rule, new.decide(&name).rule);
            }
        }
    }
}

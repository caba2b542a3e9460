//! Changes of a policy. The server and the page check them with the sidecar's own parser.

use osb_protocol::{
    lifecycle::{NetworkPolicy, NetworkRule},
    network_policy::{Action, Target},
};
use serde::{Deserialize, Serialize};

/// A change of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyChange {
    /// Puts a rule in front. It replaces those with the same target, in whatever spelling.
    Add(NetworkRule),
    /// Removes the rules with this target, in whatever spelling.
    Remove(String),
    /// Moves the rule with this target by one place.
    Move {
        /// Target of the rule.
        target: String,
        /// Whether it goes up.
        up: bool,
    },
    /// Sets what happens to everything without a rule.
    Default(String),
    /// Takes another policy.
    Replace(NetworkPolicy),
    /// Takes an earlier policy, unless it was changed by others meanwhile.
    Restore {
        /// The earlier policy.
        policy: NetworkPolicy,
        /// The policy that is to be taken back.
        expected: NetworkPolicy,
    },
}

impl PolicyChange {
    /// A rule that allows a destination.
    pub(super) fn allow(target: &str) -> Self {
        Self::Add(NetworkRule {
            action: Action::Allow.word().to_owned(),
            target: target.to_owned(),
        })
    }

    /// The policy after this change.
    ///
    /// # Errors
    /// What is wrong with the change, in words.
    pub fn apply(&self, policy: &NetworkPolicy) -> Result<NetworkPolicy, String> {
        let mut next = policy.clone();
        match self {
            Self::Add(rule) => {
                let rule = checked(rule)?;
                let own = meaning(&rule.target);
                next.egress.retain(|it| meaning(&it.target) != own);
                next.egress.insert(0, rule);
            }
            Self::Remove(target) => {
                let _place = place_of(policy, target)?;
                let removed = meaning(target);
                next.egress.retain(|it| meaning(&it.target) != removed);
            }
            Self::Move { target, up } => {
                let place = place_of(policy, target)?;
                let other = match up {
                    true => place.checked_sub(1),
                    false => Some(place + 1).filter(|other| *other < next.egress.len()),
                };
                // At the end of the list there is nothing to do.
                if let Some(other) = other {
                    next.egress.swap(place, other);
                }
            }
            Self::Default(action) => {
                next.default_action = Some(word(action)?.to_owned());
            }
            Self::Replace(other) => {
                next.default_action = match &other.default_action {
                    Some(action) => Some(word(action)?.to_owned()),
                    None => None,
                };
                next.egress = other.egress.iter().map(checked).collect::<Result<_, _>>()?;
            }
            Self::Restore {
                policy: earlier,
                expected,
            } => {
                if !is_same(expected, policy) {
                    let why =
                        "The policy was changed meanwhile, which taking it back would undo, too.";
                    return Err(why.to_owned());
                }
                return Self::Replace(earlier.clone()).apply(policy);
            }
        }
        Ok(next)
    }

    /// The change that takes this one back, which is made to this policy. `None` if it cannot be made
    /// to it: the policy has changed then.
    pub(super) fn undo(&self, policy: &NetworkPolicy) -> Option<Self> {
        let changed = self.apply(policy).ok()?;
        Some(match self {
            // Leaves what others change meanwhile.
            Self::Add(rule) if place_of(policy, &rule.target).is_err() => {
                Self::Remove(rule.target.trim().to_owned())
            }
            _ => Self::Restore {
                policy: policy.clone(),
                expected: changed,
            },
        })
    }
}

/// Whether two policies say the same, in whatever words.
fn is_same(one: &NetworkPolicy, other: &NetworkPolicy) -> bool {
    let default = |policy: &NetworkPolicy| {
        let action = policy.default_action.as_deref().unwrap_or_default();
        Action::parse(action)
    };
    let (rules, others) = (one.egress.iter(), other.egress.iter());
    default(one) == default(other) && rules.map(meaning_of).eq(others.map(meaning_of))
}

/// What a rule says, whatever its spelling.
pub(super) type Meaning<'a> = (Option<Action>, Result<Target, &'a str>);

/// What a rule says.
pub(super) fn meaning_of(rule: &NetworkRule) -> Meaning<'_> {
    (Action::parse(&rule.action), meaning(&rule.target))
}

/// What a target means, whatever its spelling. A text that is no target stands for itself.
fn meaning(target: &str) -> Result<Target, &str> {
    Target::parse(target).map_err(|_| target.trim())
}

/// Place of the rule with this target: in the same spelling, or else in another one.
fn place_of(policy: &NetworkPolicy, target: &str) -> Result<usize, String> {
    let (target, wanted) = (target.trim(), meaning(target));
    let mut rules = policy.egress.iter();
    let place = rules.position(|rule| rule.target.trim() == target);
    let place = place.or_else(|| {
        let mut rules = policy.egress.iter();
        rules.position(|rule| meaning(&rule.target) == wanted)
    });
    place.ok_or_else(|| format!("There is no rule for {target} any more."))
}

fn word(action: &str) -> Result<&'static str, String> {
    let parsed = Action::parse(action).filter(|_| !action.trim().is_empty());
    let parsed = parsed.ok_or_else(|| "The action is allow or deny.".to_owned())?;
    Ok(parsed.word())
}

/// A rule that the sidecar accepts, without surrounding blanks.
fn checked(rule: &NetworkRule) -> Result<NetworkRule, String> {
    target_problem(&rule.target).map_or(Ok(()), Err)?;
    Ok(NetworkRule {
        action: word(&rule.action)?.to_owned(),
        target: rule.target.trim().to_owned(),
    })
}

/// What is wrong with a target, in words.
pub(super) fn target_problem(text: &str) -> Option<String> {
    let error = Target::parse(text).err()?;
    Some(format!("The target {error}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: &str, target: &str) -> NetworkRule {
        NetworkRule {
            action: action.to_owned(),
            target: target.to_owned(),
        }
    }

    fn policy(rules: &[(&str, &str)]) -> NetworkPolicy {
        NetworkPolicy {
            default_action: Some("deny".to_owned()),
            egress: rules
                .iter()
                .map(|(action, target)| rule(action, target))
                .collect(),
        }
    }

    #[test]
    fn changes_are_made_and_taken_back() {
        let before = policy(&[
            ("allow", "a.example"),
            ("deny", "*.b.example"),
            ("allow", "10.0.0.0/8"),
        ]);
        let moved = |target: &str, up| PolicyChange::Move {
            target: target.to_owned(),
            up,
        };
        for (change, after) in [
            (
                PolicyChange::allow(" c.example "),
                policy(&[
                    ("allow", "c.example"),
                    ("allow", "a.example"),
                    ("deny", "*.b.example"),
                    ("allow", "10.0.0.0/8"),
                ]),
            ),
            (
                PolicyChange::Add(rule("Allow", "*.B.example")),
                policy(&[
                    ("allow", "*.B.example"),
                    ("allow", "a.example"),
                    ("allow", "10.0.0.0/8"),
                ]),
            ),
            (
                PolicyChange::Remove("A.example".to_owned()),
                policy(&[("deny", "*.b.example"), ("allow", "10.0.0.0/8")]),
            ),
            (
                moved("10.0.0.0/8", true),
                policy(&[
                    ("allow", "a.example"),
                    ("allow", "10.0.0.0/8"),
                    ("deny", "*.b.example"),
                ]),
            ),
            (
                moved("a.example", false),
                policy(&[
                    ("deny", "*.b.example"),
                    ("allow", "a.example"),
                    ("allow", "10.0.0.0/8"),
                ]),
            ),
            (moved("a.example", true), before.clone()),
            (moved("10.0.0.0/8", false), before.clone()),
            (
                PolicyChange::Default("ALLOW".to_owned()),
                NetworkPolicy {
                    default_action: Some("allow".to_owned()),
                    ..before.clone()
                },
            ),
            (PolicyChange::Replace(policy(&[])), policy(&[])),
            (
                PolicyChange::Add(rule("deny", "10.1.2.3/8")),
                policy(&[
                    ("deny", "10.1.2.3/8"),
                    ("allow", "a.example"),
                    ("deny", "*.b.example"),
                ]),
            ),
            (
                PolicyChange::Remove("*.B.example.".to_owned()),
                policy(&[("allow", "a.example"), ("allow", "10.0.0.0/8")]),
            ),
            (moved("::ffff:10.0.0.0/104", false), before.clone()),
        ] {
            let changed = change.apply(&before).unwrap();
            assert_eq!(changed, after, "{change:?}");
            let undo = change.undo(&before).unwrap();
            assert_eq!(undo.apply(&changed).unwrap(), before, "{change:?}");
        }
    }

    #[test]
    fn a_rule_is_found_in_its_own_spelling_first_and_removed_in_all() {
        let twice = policy(&[("allow", "a.example"), ("deny", "A.example.")]);
        let move_up = PolicyChange::Move {
            target: "A.example.".to_owned(),
            up: true,
        };
        let moved = policy(&[("deny", "A.example."), ("allow", "a.example")]);
        assert_eq!(move_up.apply(&twice), Ok(moved));
        let remove = PolicyChange::Remove("a.example".to_owned());
        assert_eq!(remove.apply(&twice), Ok(policy(&[])));
        assert!(is_same(
            &policy(&[("allow", "bücher.example"), ("deny", "::1/128")]),
            &policy(&[("Allow", "xn--bcher-kva.example."), ("deny", "0:0::1")]),
        ));
    }

    #[test]
    fn the_undo_of_a_new_rule_leaves_the_rest() {
        let undo = PolicyChange::allow("c.example").undo(&policy(&[("allow", "a.example")]));
        assert_eq!(undo, Some(PolicyChange::Remove("c.example".to_owned())));
    }

    #[test]
    fn what_others_changed_meanwhile_is_not_undone() {
        let before = policy(&[("allow", "a.example"), ("allow", "b.example")]);
        let change = PolicyChange::Remove("a.example".to_owned());
        let undo = change.undo(&before).unwrap();
        let mut after = change.apply(&before).unwrap();
        // The same policy in other words.
        after.egress[0] = rule("Allow", "B.example");
        after.default_action = None;
        assert_eq!(undo.apply(&after), Ok(before.clone()));
        let others = PolicyChange::Add(rule("deny", "bad.example"));
        let why = undo.apply(&others.apply(&after).unwrap()).unwrap_err();
        assert!(why.contains("changed meanwhile"), "{why}");
        let refusing = PolicyChange::Default("allow".to_owned());
        assert!(undo.apply(&refusing.apply(&after).unwrap()).is_err());
        // The rule that is removed is not known here.
        assert_eq!(
            PolicyChange::Remove("c.example".to_owned()).undo(&before),
            None
        );
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let known = policy(&[("allow", "a.example")]);
        for (change, part) in [
            (PolicyChange::allow("a.example:443"), "has a port"),
            (PolicyChange::allow(" "), "must not be empty"),
            (
                PolicyChange::Add(rule("drop", "b.example")),
                "allow or deny",
            ),
            (PolicyChange::Add(rule("", "b.example")), "allow or deny"),
            (
                PolicyChange::Remove("b.example".to_owned()),
                "no rule for b.example",
            ),
            (PolicyChange::Default("permit".to_owned()), "allow or deny"),
            (
                PolicyChange::Replace(policy(&[("allow", "*")])),
                "* may only be",
            ),
        ] {
            let why = change.apply(&known).unwrap_err();
            assert!(why.contains(part), "{change:?}: {why}");
        }
    }
}

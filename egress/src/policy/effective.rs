//! The policy that is enforced: the user's with the operator's rules around it.

use std::net::IpAddr;

use ipnet::IpNet;
use osb_protocol::network_policy::{Action, AddressKind, Policy, Rule, Target};

use super::{index::NameIndex, overlay::Overlay};

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The operator's file of refused destinations.
    DenyAlways,
    /// The operator's file of allowed destinations.
    AllowAlways,
    /// The policy of the sandbox.
    User,
}

/// A rule and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveRule {
    /// The rule.
    pub rule: Rule,
    /// Where it comes from.
    pub origin: Origin,
}

impl std::fmt::Display for EffectiveRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.origin {
            Origin::User => write!(f, "{}", self.rule),
            Origin::DenyAlways => write!(f, "{} (deny.always)", self.rule),
            Origin::AllowAlways => write!(f, "{} (allow.always)", self.rule),
        }
    }
}

/// Networks by what happens to them, in the order in which the packet filter asks them: the
/// operator's refusals, the operator's permissions, the user's refusals, the addresses of allowed
/// names, the user's permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Refused by the operator.
    pub deny_always: Vec<IpNet>,
    /// Allowed by the operator.
    pub allow_always: Vec<IpNet>,
    /// Refused by the user.
    pub deny: Vec<IpNet>,
    /// Allowed by the user.
    pub allow: Vec<IpNet>,
}

/// The enforced policy. Immutable: a change makes a new one.
#[derive(Debug)]
pub struct Effective {
    rules: Box<[EffectiveRule]>,
    index: NameIndex,
    networks: Networks,
    default_action: Action,
}

/// What happens to a name, and why.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// What happens.
    pub action: Action,
    /// The rule that decided. `None` if the default did.
    pub rule: Option<&'a EffectiveRule>,
}

impl Effective {
    /// The user's policy below the operator's rules.
    #[must_use]
    pub fn new(user: &Policy, overlay: &Overlay) -> Self {
        let of = |rules: &[Rule], origin| {
            let with_origin = move |rule: &Rule| EffectiveRule {
                rule: rule.clone(),
                origin,
            };
            rules.iter().map(with_origin).collect::<Vec<_>>()
        };
        let mut rules = of(&overlay.deny, Origin::DenyAlways);
        rules.extend(of(&overlay.allow, Origin::AllowAlways));
        rules.extend(of(&user.rules, Origin::User));
        Self {
            index: NameIndex::new(rules.iter().map(|it| &it.rule.target)),
            networks: networks(&rules),
            rules: rules.into(),
            default_action: user.default_action,
        }
    }

    /// What happens to a domain name. The name is in lower case and has no final dot.
    #[must_use]
    pub fn decide(&self, name: &str) -> Decision<'_> {
        let rule = self.index.first(name).map(|position| &self.rules[position]);
        Decision {
            action: rule.map_or(self.default_action, |it| it.rule.action),
            rule,
        }
    }

    /// The rule that refuses a name. `None` if it is allowed, and if only the default refuses it:
    /// this serves for names that an allowed name is an alias of.
    #[must_use]
    pub fn refusing_rule(&self, name: &str) -> Option<&EffectiveRule> {
        let decision = self.decide(name);
        decision.rule.filter(|_| decision.action == Action::Deny)
    }

    /// What the rules of networks say about an address that no allowed name leads to. `None` if no
    /// rule covers it.
    #[must_use]
    pub fn decide_address(&self, address: IpAddr) -> Option<Action> {
        let Networks {
            deny_always,
            allow_always,
            deny,
            allow,
        } = &self.networks;
        let order = [
            (deny_always, Action::Deny),
            (allow_always, Action::Allow),
            (deny, Action::Deny),
            (allow, Action::Allow),
        ];
        let found = order.into_iter().find(|(list, _)| covers(list, address));
        found.map(|(_, action)| action)
    }

    /// Whether an address in the answer for an allowed name may be used.
    ///
    /// An allowed name must not open what is near the sandbox (DNS rebinding): its owner chooses the
    /// addresses. Under default deny, addresses of this machine, of its link (which has the cloud's
    /// metadata service) and groups need a rule of their own. Private addresses do, too, unless the
    /// user named exactly this host: companies have such hosts, and a wildcard often covers names
    /// that other parties control.
    #[must_use]
    pub fn admits_answer(&self, address: IpAddr, decision: Decision<'_>) -> bool {
        match self.decide_address(address) {
            Some(action) => action == Action::Allow,
            None if self.default_action == Action::Allow => true,
            None => match AddressKind::of(address) {
                AddressKind::Near => false,
                AddressKind::Private => decision
                    .rule
                    .is_some_and(|it| matches!(it.rule.target, Target::Name(_))),
                AddressKind::Public => true,
            },
        }
    }

    /// The rules in order, those of the operator first.
    #[must_use]
    pub fn rules(&self) -> &[EffectiveRule] {
        &self.rules
    }

    /// Networks of the rules.
    #[must_use]
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// What happens to everything without a rule.
    #[must_use]
    pub fn default_action(&self) -> Action {
        self.default_action
    }

    /// Number of rules, those of the operator included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// Whether one of the networks of a list has an address. They are in order and do not overlap, see
/// [`networks`], so that only one can have it: policies have thousands.
fn covers(list: &[IpNet], address: IpAddr) -> bool {
    let after = list.partition_point(|network| network.network() <= address);
    let last = after.checked_sub(1).map(|position| &list[position]);
    last.is_some_and(|network| network.contains(&address))
}

/// Networks of rules in order, without what others of the same list contain.
fn networks(rules: &[EffectiveRule]) -> Networks {
    let of = |origin, action| {
        let mut found = Vec::new();
        for it in rules {
            if let Target::Network(network) = it.rule.target
                && it.origin == origin
                && it.rule.action == action
            {
                found.push(network);
            }
        }
        IpNet::aggregate(&found)
    };
    Networks {
        deny_always: of(Origin::DenyAlways, Action::Deny),
        allow_always: of(Origin::AllowAlways, Action::Allow),
        deny: of(Origin::User, Action::Deny),
        allow: of(Origin::User, Action::Allow),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(list: &[(Action, &str)]) -> Vec<Rule> {
        let rules = list
            .iter()
            .map(|(action, target)| Rule::new(*action, target).unwrap());
        rules.collect()
    }

    fn effective(default_action: Action, list: &[(Action, &str)]) -> Effective {
        let user = Policy {
            rules: rules(list),
            default_action,
        };
        Effective::new(&user, &Overlay::default())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_operators_rules_come_first_and_the_default_stays() {
        let user = Policy {
            rules: rules(&[
                (Action::Allow, "never.example"),
                (Action::Deny, "always.example"),
                (Action::Allow, "both.example"),
                (Action::Allow, "192.0.2.0/24"),
                (Action::Deny, "198.51.100.7"),
            ]),
            default_action: Action::Allow,
        };
        let overlay = Overlay {
            deny: rules(&[
                (Action::Deny, "never.example"),
                (Action::Deny, "both.example"),
                (Action::Deny, "192.0.2.1"),
            ]),
            allow: rules(&[
                (Action::Allow, "always.example"),
                (Action::Allow, "both.example"),
                (Action::Allow, "198.51.100.0/24"),
            ]),
        };
        let effective = Effective::new(&user, &overlay);
        let action = |name: &str| effective.decide(name).action;
        assert_eq!(action("never.example"), Action::Deny);
        assert_eq!(action("always.example"), Action::Allow);
        assert_eq!(action("both.example"), Action::Deny);
        assert_eq!(action("other.example"), Action::Allow);
        let rule = effective.decide("never.example").rule.unwrap();
        assert_eq!(rule.to_string(), "deny never.example (deny.always)");
        let of = |text: &str| effective.decide_address(address(text));
        assert_eq!(of("192.0.2.1"), Some(Action::Deny));
        assert_eq!(of("192.0.2.2"), Some(Action::Allow));
        assert_eq!(of("198.51.100.7"), Some(Action::Allow));
        assert_eq!(of("203.0.113.1"), None);
        assert_eq!(effective.len(), 11);
    }

    #[test]
    fn networks_within_others_are_left_out() {
        let effective = effective(
            Action::Deny,
            &[
                (Action::Allow, "100.64.0.0/10"),
                (Action::Allow, "100.100.2.136"),
                (Action::Allow, "100.100.2.136"),
                (Action::Allow, "2001:db8::1"),
                (Action::Deny, "100.100.0.0/16"),
            ],
        );
        let texts = |list: &[IpNet]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let networks = effective.networks();
        assert_eq!(texts(&networks.allow), ["100.64.0.0/10", "2001:db8::1/128"]);
        assert_eq!(texts(&networks.deny), ["100.100.0.0/16"]);
        assert_eq!(
            effective.decide_address(address("100.100.2.136")),
            Some(Action::Deny)
        );
    }

    proptest! {
        /// The search finds what a walk over the list finds.
        #[test]
        fn networks_are_found_as_by_a_walk(
            list in prop::collection::vec((any::<bool>(), any::<u8>(), 0_u8..=32), 0..12),
            asked in (any::<bool>(), any::<u8>()),
        ) {
            // Few different addresses, so that networks meet.
            let near = |is_v4: bool, last: u8| match is_v4 {
                true => IpAddr::from([10, 0, 0, last]),
                false => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]),
            };
            let rules: Vec<_> = list
                .iter()
                .map(|(is_v4, last, length)| {
                    let length = if *is_v4 { *length } else { 96 + length };
                    (Action::Allow, format!("{}/{length}", near(*is_v4, *last)))
                })
                .collect();
            let rules: Vec<_> = rules.iter().map(|(action, it)| (*action, it.as_str())).collect();
            let effective = effective(Action::Deny, &rules);
            let address = near(asked.0, asked.1);
            let walk = effective.networks().allow.iter().any(|it| it.contains(&address));
            prop_assert_eq!(effective.decide_address(address).is_some(), walk);
        }
    }

    #[test]
    fn an_allowed_name_opens_nothing_near_the_sandbox() {
        let list = [
            (Action::Allow, "*.wild.example"),
            (Action::Allow, "host.example"),
            (Action::Allow, "10.1.0.0/16"),
            (Action::Deny, "203.0.113.0/24"),
        ];
        let strict = effective(Action::Deny, &list);
        let admits = |effective: &Effective, name: &str, text: &str| {
            effective.admits_answer(address(text), effective.decide(name))
        };
        for (name, text, expected) in [
            ("a.wild.example", "192.0.2.1", true),
            ("a.wild.example", "2001:db8::1", true),
            ("a.wild.example", "192.168.1.1", false),
            ("a.wild.example", "fd00::1", false),
            ("a.wild.example", "10.1.2.3", true),
            ("host.example", "192.168.1.1", true),
            ("host.example", "fd00::1", true),
            ("host.example", "169.254.169.254", false),
            ("host.example", "127.0.0.1", false),
            ("host.example", "::1", false),
            ("host.example", "fe80::1", false),
            ("host.example", "0.0.0.0", false),
            ("host.example", "224.0.0.1", false),
            ("host.example", "203.0.113.5", false),
        ] {
            assert_eq!(admits(&strict, name, text), expected, "{name} {text}");
        }
        // Everything is reachable by address, so that the name adds nothing.
        let open = effective(Action::Allow, &list);
        assert!(admits(&open, "other.example", "127.0.0.1"));
        assert!(!admits(&open, "other.example", "203.0.113.5"));
    }

    #[test]
    fn only_a_rule_refuses_an_alias() {
        let effective = effective(
            Action::Deny,
            &[
                (Action::Deny, "*.ads.example"),
                (Action::Allow, "cdn.example"),
            ],
        );
        assert!(effective.refusing_rule("x.ads.example").is_some());
        assert!(effective.refusing_rule("cdn.example").is_none());
        assert!(effective.refusing_rule("unknown.example").is_none());
    }
}

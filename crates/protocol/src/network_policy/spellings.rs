//! Targets are compared by what they mean: a rule is found by every spelling of its target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::{Action, Policy, Rule, Target};

/// Labels with letters beyond ASCII, and the form that name servers know.
const WORDS: [(&str, &str); 4] = [
    ("bücher", "xn--bcher-kva"),
    ("BÜCHER", "XN--Bcher-KVA"),
    ("例え", "xn--r8jz45g"),
    ("straße", "xn--strae-oqa"),
];

/// A target in two spellings.
fn twice() -> impl Strategy<Value = [String; 2]> {
    prop_oneof![names(), v4(), v6()]
}

fn names() -> impl Strategy<Value = [String; 2]> {
    let label = prop_oneof![
        "[a-z][a-z0-9]{0,3}".prop_map(|it| [it.clone(), it]),
        "[a-z_]{1,2}-?[a-z]".prop_map(|it| [it.clone(), it.to_uppercase()]),
        prop::sample::select(WORDS.to_vec())
            .prop_map(|(one, other)| [one, other].map(str::to_owned)),
    ];
    let end = || prop::sample::select(vec!["", ".", "。", " "]);
    let ends = (end(), end());
    let labels = prop::collection::vec(label, 1..4);
    (any::<bool>(), labels, ends).prop_map(|(is_wildcard, labels, ends)| {
        let begin = if is_wildcard { "*." } else { "" };
        let spelled = |which: usize, end: &str| {
            let labels: Vec<_> = labels.iter().map(|it| it[which].clone()).collect();
            format!("{begin}{}{end}", labels.join("."))
        };
        [spelled(0, ends.0), spelled(1, ends.1)]
    })
}

fn v4() -> impl Strategy<Value = [String; 2]> {
    // Few networks, so that they meet.
    let bits = prop_oneof![any::<u32>(), 0x0a00_0000..0x0a00_0004_u32];
    let length = prop_oneof![Just(32), 0..=32_u8];
    (bits, any::<u32>(), length, 0..5_u8, 0..5_u8).prop_map(|(bits, noise, length, one, other)| {
        let host = u32::MAX.checked_shr(length.into()).unwrap_or_default();
        let spelled = |noise: u32, form: u8| {
            let address = Ipv4Addr::from_bits(bits & !host | noise & host);
            let [a, b, c, d] = address.octets();
            let mapped = format!("::ffff:{:x}", address.to_ipv6_mapped().segments()[6]);
            let mapped = format!("{mapped}:{:x}", address.to_ipv6_mapped().segments()[7]);
            match form {
                0 if length == 32 => address.to_string(),
                1 => format!("::FFFF:{address}/{}", 96 + length),
                2 if length == 32 => mapped,
                3 => format!(
                    "0:0:0:0:0:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}/{}",
                    96 + length
                ),
                _ => format!("{address}/{length}"),
            }
        };
        [spelled(0, one), spelled(noise, other)]
    })
}

fn v6() -> impl Strategy<Value = [String; 2]> {
    let bits = prop_oneof![
        any::<u128>(),
        Just(1),
        Just(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).to_bits()),
    ];
    let length = prop_oneof![Just(128), 0..=128_u8];
    (bits, any::<u128>(), length, 0..3_u8, 0..3_u8).prop_map(|(bits, noise, length, one, other)| {
        let host = u128::MAX.checked_shr(length.into()).unwrap_or_default();
        let spelled = |noise: u128, form: u8| {
            let address = Ipv6Addr::from_bits(bits & !host | noise & host);
            let whole = address.segments().map(|it| format!("{it:04X}")).join(":");
            match form {
                0 if length == 128 => address.to_string(),
                1 => format!("{whole}/{length}"),
                _ => format!("{address}/{length}"),
            }
        };
        [spelled(0, one), spelled(noise, other)]
    })
}

fn rule(action: Action, target: &str) -> Rule {
    Rule::new(action, target).unwrap_or_else(|error| panic!("{target}: {error}"))
}

fn policy(rules: Vec<Rule>) -> Policy {
    Policy {
        rules,
        default_action: Action::Deny,
    }
}

proptest! {
    /// Deleting a rule by any spelling of its target removes it, and nothing else.
    #[test]
    fn a_rule_is_removed_by_every_spelling(
        own in twice(),
        others in prop::collection::vec(twice(), 0..5),
    ) {
        let [stored, named] = own;
        let meant = rule(Action::Allow, &stored);
        let rest: Vec<Rule> = others
            .iter()
            .map(|[other, _]| rule(Action::Allow, other))
            .filter(|it| it.target != meant.target)
            .collect();
        let mut rules = rest.clone();
        rules.push(meant.clone());
        let before = policy(rules);
        let removal = before.without(&[named.clone(), "unknown.test".to_owned()]);
        prop_assert_eq!(&removal.removed, &[meant], "{} by {}", stored, named);
        prop_assert_eq!(removal.policy, policy(rest));
        prop_assert_eq!(removal.unmatched, ["unknown.test"]);
    }

    /// A patch replaces the rule for its target, whatever the spelling of both, and is shown as it was
    /// given.
    #[test]
    fn a_patch_replaces_the_rule_in_every_spelling([stored, given] in twice()) {
        let before = policy(vec![rule(Action::Allow, &stored)]);
        let after = before.merged(&[rule(Action::Deny, &given), rule(Action::Allow, &stored)]);
        prop_assert_eq!(&after.rules, &[rule(Action::Deny, &given)]);
        prop_assert_eq!(&*after.rules[0].text, given.trim());
        let other = policy(vec![rule(Action::Deny, &stored)]);
        prop_assert!(after.says_same(&other), "{} and {}", stored, given);
    }
}

#[test]
fn other_targets_are_other_targets() {
    for (one, other) in [
        ("host.test", "*.host.test"),
        ("host.test", "hosts.test"),
        ("10.0.0.0/8", "10.0.0.0/9"),
        ("1.2.3.4", "1.2.3.5"),
        ("::1", "127.0.0.1"),
        ("::1.2.3.4", "1.2.3.4"),
        ("::/0", "0.0.0.0/0"),
        ("::ffff:0:0/95", "0.0.0.0/0"),
    ] {
        assert_ne!(Target::parse(one), Target::parse(other), "{one} {other}");
        let removal = policy(vec![rule(Action::Allow, one)]).without(&[other.to_owned()]);
        assert_eq!(
            (removal.removed, removal.unmatched),
            (vec![], vec![other.to_owned()])
        );
    }
}

#[test]
fn an_address_is_decided_alike_in_every_spelling() {
    let policy = policy(vec![rule(Action::Allow, "::ffff:10.1.2.3/104")]);
    for text in ["10.0.0.1", "::ffff:a00:1", "0:0:0:0:0:FFFF:0A00:0001"] {
        let address: IpAddr = text.parse().unwrap();
        for target in [text.to_owned(), address.to_string()] {
            let target = Target::parse(&target).unwrap();
            assert_eq!(policy.decide(&target).0, Action::Allow, "{text}");
        }
    }
}

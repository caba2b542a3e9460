//! The smallest policy for what a sandbox asked for. An addition to the contract.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    address::AddressKind,
    rule::{Action, Target},
    suffix::{is_below, may_be_shared},
};
use crate::lifecycle::{
    NetworkDecisions, NetworkPolicy, NetworkPolicyProposal, NetworkRule, ProposedRule,
};

/// Names directly below one domain that a wildcard replaces.
const SIBLINGS: usize = 3;

/// The smallest policy that allows what was allowed, and with `with_denied` also what was refused.
/// It refuses everything else.
///
/// Three or more names directly below one domain become a wildcard, unless names below that domain may
/// belong to different owners, or one of them was refused. A name that does not exist has no rule. An
/// address stays an address, and has a rule only if no allowed name opens it. The same decisions always
/// give the same policy.
#[must_use]
pub fn propose(decisions: &NetworkDecisions, with_denied: bool) -> NetworkPolicyProposal {
    let is_wanted = |action: &str| match Action::parse(action) {
        Some(Action::Allow) => true,
        Some(Action::Deny) => with_denied,
        None => false,
    };
    let mut wanted = BTreeSet::new();
    let mut refused = BTreeSet::new();
    let mut nonexistent = BTreeSet::new();
    for decision in &decisions.names {
        if let Some(name) = canonical_name(&decision.name) {
            let list = match (is_wanted(&decision.action), decision.nonexistent) {
                (true, false) => &mut wanted,
                (true, true) => &mut nonexistent,
                (false, _) => &mut refused,
            };
            list.insert(name);
        }
    }
    let mut names = Names::of(wanted, &refused);
    let mut addresses: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
    for decision in &decisions.destinations {
        let Ok(address) = decision.address.parse::<IpAddr>() else {
            continue;
        };
        let address = address.to_canonical();
        let is_opened = address.is_loopback() || names.open(&decision.names, address);
        if is_wanted(&decision.action) && !is_opened {
            let port = format!("{}/{}", decision.protocol, decision.port);
            addresses.entry(address).or_default().insert(port);
        }
    }
    names
        .rules
        .extend(addresses.into_iter().map(|(address, ports)| ProposedRule {
            target: address.to_string(),
            covers: ports.into_iter().collect(),
        }));
    let reasons = names.rules;
    let egress = reasons.iter().map(|rule| NetworkRule {
        action: Action::Allow.word().to_owned(),
        target: rule.target.clone(),
    });
    NetworkPolicyProposal {
        policy: NetworkPolicy {
            default_action: Some(Action::Deny.word().to_owned()),
            egress: egress.collect(),
        },
        reasons,
        nonexistent: nonexistent.into_iter().collect(),
    }
}

/// The form of a domain name that is compared; `None` for what no rule can name.
fn canonical_name(text: &str) -> Option<String> {
    match Target::parse(text) {
        Ok(Target::Name(name)) => Some(name.into()),
        _ => None,
    }
}

/// Rules for names.
struct Names {
    /// In the order of their domains.
    rules: Vec<ProposedRule>,
    /// Names with a rule of their own.
    exact: BTreeSet<String>,
    /// Domains with a wildcard.
    domains: Vec<String>,
}

impl Names {
    fn of(wanted: BTreeSet<String>, refused: &BTreeSet<String>) -> Self {
        let mut siblings: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &wanted {
            if let Some((_, domain)) = name.split_once('.') {
                *siblings.entry(domain).or_default() += 1;
            }
        }
        let is_clear = |domain: &str| {
            let mut strangers = refused.difference(&wanted);
            !may_be_shared(domain) && !strangers.any(|name| is_below(name, domain))
        };
        let merged: Vec<&str> = siblings
            .into_iter()
            .filter(|(domain, count)| *count >= SIBLINGS && is_clear(domain))
            .map(|(domain, _)| domain)
            .collect();
        let domains: Vec<String> = merged
            .iter()
            .filter(|domain| !merged.iter().any(|other| is_below(domain, other)))
            .map(|domain| (*domain).to_owned())
            .collect();
        let mut rules: Vec<ProposedRule> = domains
            .iter()
            .map(|domain| ProposedRule {
                target: format!("*.{domain}"),
                covers: Vec::new(),
            })
            .collect();
        let mut exact = BTreeSet::new();
        for name in wanted {
            match domains.iter().position(|domain| is_below(&name, domain)) {
                Some(position) => rules[position].covers.push(name),
                None => {
                    rules.push(ProposedRule {
                        target: name.clone(),
                        covers: vec![name.clone()],
                    });
                    exact.insert(name);
                }
            }
        }
        rules.sort_by(|a, b| by_domain(&a.target, &b.target));
        Self {
            rules,
            exact,
            domains,
        }
    }

    /// Whether one of these names, which led to an address, opens it. What is near the sandbox needs
    /// a rule for the address, and a private address one for exactly the name.
    fn open(&self, names: &[String], address: IpAddr) -> bool {
        let mut names = names.iter().filter_map(|name| canonical_name(name));
        match AddressKind::of(address) {
            AddressKind::Near => false,
            AddressKind::Private => names.any(|name| self.exact.contains(&name)),
            AddressKind::Public => names.any(|name| {
                let mut domains = self.domains.iter();
                self.exact.contains(&name) || domains.any(|domain| is_below(&name, domain))
            }),
        }
    }
}

/// Compares names from their last label on, so that those of one domain are together.
fn by_domain(a: &str, b: &str) -> Ordering {
    a.rsplit('.').cmp(b.rsplit('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        WireTime,
        lifecycle::{DestinationDecision, NameDecision},
    };

    fn name(action: &str, name: &str) -> NameDecision {
        let at = WireTime::from_unix_ms(0).unwrap();
        NameDecision {
            action: action.to_owned(),
            name: name.to_owned(),
            rule: "default".to_owned(),
            count: 1,
            first: at,
            last: at,
            number: 1,
            nonexistent: false,
        }
    }

    fn nonexistent(action: &str, name: &str) -> NameDecision {
        NameDecision {
            nonexistent: true,
            ..self::name(action, name)
        }
    }

    fn destination(action: &str, address: &str, port: u16, names: &[&str]) -> DestinationDecision {
        DestinationDecision {
            action: action.to_owned(),
            address: address.to_owned(),
            protocol: "tcp".to_owned(),
            port,
            count: 1,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn targets(names: &[NameDecision], destinations: &[DestinationDecision]) -> Vec<String> {
        proposed(names, destinations, false)
    }

    fn proposed(
        names: &[NameDecision],
        destinations: &[DestinationDecision],
        with_denied: bool,
    ) -> Vec<String> {
        let decisions = NetworkDecisions {
            names: names.to_vec(),
            next: 0,
            destinations: destinations.to_vec(),
        };
        let proposal = propose(&decisions, with_denied);
        assert_eq!(proposal.policy.default_action.as_deref(), Some("deny"));
        let rules = &proposal.policy.egress;
        assert!(rules.iter().all(|rule| rule.action == "allow"), "{rules:?}");
        let reasons = proposal.reasons.iter().map(|reason| &reason.target);
        assert!(reasons.eq(rules.iter().map(|rule| &rule.target)));
        for rule in rules {
            assert!(Target::parse(&rule.target).is_ok(), "{rule:?}");
        }
        rules.iter().map(|rule| rule.target.clone()).collect()
    }

    #[test]
    fn nothing_asked_for_is_nothing_allowed() {
        assert_eq!(targets(&[], &[]), [""; 0]);
        let proposal = propose(&NetworkDecisions::default(), true);
        assert_eq!(proposal.reasons, []);
    }

    #[test]
    fn names_keep_a_rule_each_in_the_order_of_their_domains() {
        let asked = [
            "pypi.org",
            "b.example.com",
            "Files.PyPI.org.",
            "a.example.com",
        ];
        let mut asked = asked.map(|it| name("allow", it));
        let sorted = [
            "a.example.com",
            "b.example.com",
            "pypi.org",
            "files.pypi.org",
        ];
        assert_eq!(targets(&asked, &[]), sorted);
        asked.reverse();
        assert_eq!(targets(&asked, &[]), sorted, "the order of decisions");
        let twice = [name("allow", "a.example"), name("allow", "A.example.")];
        assert_eq!(targets(&twice, &[]), ["a.example"]);
        let no_target = [
            name("allow", "a b"),
            name("allow", "1.2.3"),
            name("odd", "c.example"),
        ];
        assert_eq!(targets(&no_target, &[]), [""; 0]);
    }

    #[test]
    fn three_siblings_become_a_wildcard() {
        let siblings = [
            "a.cdn.example.org",
            "b.cdn.example.org",
            "c.cdn.example.org",
        ];
        let mut asked: Vec<_> = siblings.iter().map(|it| name("allow", it)).collect();
        asked.push(name("allow", "x.y.cdn.example.org"));
        asked.push(name("allow", "cdn.example.org"));
        let decisions = NetworkDecisions {
            names: asked.clone(),
            ..NetworkDecisions::default()
        };
        let proposal = propose(&decisions, false);
        assert_eq!(
            targets(&asked, &[]),
            ["cdn.example.org", "*.cdn.example.org"]
        );
        assert_eq!(proposal.reasons[1].covers.len(), 4, "{proposal:?}");
        assert_eq!(targets(&asked[..2], &[]).len(), 2, "two are no pattern");
        // One wildcard within another is left out.
        asked.extend(["d.example.org", "e.example.org"].map(|it| name("allow", it)));
        assert_eq!(targets(&asked, &[]), ["*.example.org"]);
    }

    #[test]
    fn no_wildcard_covers_strangers_or_what_was_refused() {
        for domain in ["com", "co.uk", "github.io", "s3.amazonaws.com"] {
            let asked: Vec<_> = ["aaaa", "bbbb", "cccc", "dddd"]
                .iter()
                .map(|label| name("allow", &format!("{label}.{domain}")))
                .collect();
            assert_eq!(targets(&asked, &[]).len(), 4, "{domain}");
        }
        let mut asked: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|label| name("allow", &format!("{label}.example.org")))
            .collect();
        asked.push(name("deny", "ads.example.org"));
        let single = ["a.example.org", "b.example.org", "c.example.org"];
        assert_eq!(targets(&asked, &[]), single);
        assert_eq!(
            proposed(&asked, &[], true),
            ["*.example.org"],
            "it is wanted"
        );
    }

    #[test]
    fn names_that_do_not_exist_are_listed_apart() {
        let names = [
            name("allow", "a.example.org"),
            name("allow", "b.example.org"),
            nonexistent("allow", "c.example.org"),
            nonexistent("allow", "pypi.org.corp.internal"),
            nonexistent("deny", "d.example.org"),
        ];
        let decisions = NetworkDecisions {
            names: names.to_vec(),
            ..NetworkDecisions::default()
        };
        assert_eq!(targets(&names, &[]), ["a.example.org", "b.example.org"]);
        let proposal = propose(&decisions, false);
        let missing = ["c.example.org", "pypi.org.corp.internal"];
        assert_eq!(proposal.nonexistent, missing);
        assert!(proposal.reasons.iter().all(|it| it.covers.len() == 1));
        let all = ["c.example.org", "d.example.org", "pypi.org.corp.internal"];
        assert_eq!(propose(&decisions, true).nonexistent, all);
        let known = [name("allow", "a.example.org")];
        let text = serde_json::to_value(propose(
            &NetworkDecisions {
                names: known.to_vec(),
                ..NetworkDecisions::default()
            },
            false,
        ));
        assert_eq!(text.unwrap().get("nonexistent"), None);
    }

    #[test]
    fn refused_destinations_are_proposed_only_if_they_are_wanted() {
        let names = [name("allow", "a.example"), name("deny", "b.example")];
        let destinations = [
            destination("allow", "198.51.100.2", 443, &[]),
            destination("deny", "198.51.100.1", 22, &[]),
        ];
        let usual = ["a.example", "198.51.100.2"];
        assert_eq!(proposed(&names, &destinations, false), usual);
        let all = ["a.example", "b.example", "198.51.100.1", "198.51.100.2"];
        assert_eq!(proposed(&names, &destinations, true), all);
    }

    #[test]
    fn an_address_has_a_rule_only_if_no_name_opens_it() {
        let mut names: Vec<_> = [
            "a.example",
            "x.deep.example",
            "y.deep.example",
            "z.deep.example",
        ]
        .iter()
        .map(|it| name("allow", it))
        .collect();
        names.push(name("deny", "no.example"));
        let destinations = [
            destination("allow", "203.0.113.1", 443, &["A.example."]),
            destination("allow", "203.0.113.2", 443, &["x.deep.example"]),
            destination("allow", "203.0.113.3", 443, &["no.example"]),
            destination("allow", "203.0.113.3", 80, &[]),
            destination("allow", "::ffff:203.0.113.4", 443, &[]),
            // A wildcard opens no private address, and no name what is near.
            destination("allow", "10.0.0.1", 443, &["a.example"]),
            destination("allow", "10.0.0.2", 443, &["x.deep.example"]),
            destination("allow", "169.254.169.254", 80, &["a.example"]),
            destination("allow", "127.0.0.1", 80, &[]),
            destination("allow", "2001:db8::1", 443, &[]),
            destination("allow", "no address", 443, &[]),
        ];
        let wanted = [
            "a.example",
            "*.deep.example",
            "10.0.0.2",
            "169.254.169.254",
            "203.0.113.3",
            "203.0.113.4",
            "2001:db8::1",
        ];
        assert_eq!(targets(&names, &destinations), wanted);
        let decisions = NetworkDecisions {
            destinations: destinations.to_vec(),
            ..NetworkDecisions::default()
        };
        let reasons = propose(&decisions, false).reasons;
        let of_port = reasons.iter().find(|it| it.target == "203.0.113.3");
        assert_eq!(of_port.unwrap().covers, ["tcp/443", "tcp/80"]);
    }
}

//! What a policy says about one destination, without the operator's rules and without addresses of
//! allowed names, which only the sidecar knows.

use ipnet::IpNet;

use super::{
    document::Policy,
    rule::{Action, Rule, Target},
    suffix::is_below,
};

impl Policy {
    /// What happens to a destination, and the rule that decides; without one, the default does. For a
    /// name that is the first rule that covers it, for an address a refusal before a permission
    /// (contract: egress §4).
    #[must_use]
    pub fn decide(&self, destination: &Target) -> (Action, Option<&Rule>) {
        let rule = match destination {
            Target::Name(name) => self.rules.iter().find(|rule| covers_name(rule, name)),
            Target::Network(network) => {
                let of_action = |action| {
                    let mut rules = self.rules.iter();
                    rules.find(|rule| rule.action == action && covers_network(rule, network))
                };
                of_action(Action::Deny).or_else(|| of_action(Action::Allow))
            }
            // Names below a domain may be decided differently.
            Target::Subdomains(_) => None,
        };
        let action = rule.map_or(self.default_action, |rule| rule.action);
        (action, rule)
    }
}

fn covers_name(rule: &Rule, name: &str) -> bool {
    match &rule.target {
        Target::Name(known) => **known == *name,
        Target::Subdomains(domain) => is_below(name, domain),
        Target::Network(_) => false,
    }
}

fn covers_network(rule: &Rule, network: &IpNet) -> bool {
    match &rule.target {
        Target::Network(known) => known.contains(network),
        Target::Name(_) | Target::Subdomains(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_for_a_name_decides_and_refusals_of_addresses_come_first() {
        let text = r#"{"defaultAction": "deny", "egress": [
            {"action": "deny", "target": "ads.example.org"},
            {"action": "allow", "target": "*.example.org"},
            {"action": "deny", "target": "late.example.org"},
            {"action": "allow", "target": "203.0.113.0/24"},
            {"action": "deny", "target": "203.0.113.7"}]}"#;
        let policy = Policy::parse(text.as_bytes()).unwrap();
        for (destination, action, rule) in [
            ("ads.example.org", Action::Deny, "deny ads.example.org"),
            ("ADS.example.org.", Action::Deny, "deny ads.example.org"),
            ("a.b.example.org", Action::Allow, "allow *.example.org"),
            ("late.example.org", Action::Allow, "allow *.example.org"),
            ("example.org", Action::Deny, "default"),
            ("203.0.113.1", Action::Allow, "allow 203.0.113.0/24"),
            ("203.0.113.7", Action::Deny, "deny 203.0.113.7"),
            ("198.51.100.1", Action::Deny, "default"),
            ("203.0.113.0/25", Action::Allow, "allow 203.0.113.0/24"),
        ] {
            let target = Target::parse(destination).unwrap();
            let (seen, by) = policy.decide(&target);
            let by = by.map_or_else(|| "default".to_owned(), ToString::to_string);
            assert_eq!((seen, &*by), (action, rule), "{destination}");
        }
    }
}

//! Fuzz target: policies, bodies of changes, and targets.

use std::collections::HashSet;

use super::{Effective, Policy, Target, overlay::Overlay, parse_rules, parse_targets};

/// Parses a text as a policy, as each body of a change, and as a target. What is accepted is written
/// and parsed again with the same result, and every rule for names covers its names.
pub fn policy(data: &[u8]) {
    if let Ok(policy) = Policy::parse(data) {
        check_policy(&policy);
    }
    if let Ok(rules) = parse_rules(data) {
        let merged = Policy::default().merged(&rules);
        let mut seen = HashSet::new();
        assert!(merged.rules.iter().all(|rule| seen.insert(&rule.target)));
        assert_eq!(merged.merged(&rules), merged);
        let texts: Vec<String> = rules.iter().map(|rule| rule.text.to_string()).collect();
        let removal = merged.without(&texts);
        assert_eq!(removal.policy.rules, []);
        assert_eq!(removal.removed, merged.rules);
        assert_eq!(removal.unmatched, [""; 0]);
        check_policy(&merged);
    }
    if let Ok(targets) = parse_targets(data) {
        assert_eq!(Policy::default().without(&targets).removed, []);
    }
    if let Ok(target) = Target::parse(&String::from_utf8_lossy(data)) {
        let text = match &target {
            Target::Name(name) => name.to_string(),
            Target::Subdomains(name) => format!("*.{name}"),
            Target::Network(network) => {
                assert_eq!(network.trunc(), *network);
                network.to_string()
            }
        };
        assert_eq!(Target::parse(&text).as_ref(), Ok(&target));
    }
}

fn check_policy(policy: &Policy) {
    let written = serde_json::to_vec(policy).expect("a policy is written as JSON");
    let again = Policy::parse(&written).expect("a written policy is one");
    assert_eq!(again, *policy);
    let effective = Effective::new(policy, &Overlay::default());
    assert_eq!(effective.len(), policy.rules.len());
    for rule in &policy.rules {
        let name = match &rule.target {
            Target::Name(name) => name.to_string(),
            Target::Subdomains(name) => format!("a.{name}"),
            Target::Network(_) => continue,
        };
        assert!(effective.decide(&name).rule.is_some(), "{rule}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn policies() {
        crate::fuzz::short_run("egress_policy", super::policy);
    }
}

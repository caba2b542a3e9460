//! The network policy of sandboxes whose request has none: the public Internet only. An addition to
//! the contract.
//!
//! Everything is allowed but what is not public. In the sidecar a refused network counts before an
//! allowed one, so what the operator allows is cut out of the refused networks.

use std::net::IpAddr;

use ipnet::IpNet;
use osb_protocol::{
    lifecycle::{NetworkPolicy, NetworkRule},
    network_policy::not_public,
};

use super::validate;

/// The policy does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the default network policy has too many rules: allow fewer networks, or larger ones")]
pub struct TooManyRules;

/// The policy that allows the public Internet and the networks in `allowed`, as JSON. `own` are
/// addresses of this host, which it refuses although they may be public.
///
/// # Errors
/// When it would have more rules than a policy may have.
pub fn public(allowed: &[IpNet], own: &[IpAddr]) -> Result<String, TooManyRules> {
    let allowed: Vec<IpNet> = allowed.iter().map(IpNet::trunc).collect();
    let mut refused = not_public();
    for address in own {
        let address = IpNet::from(address.to_canonical());
        if !refused.iter().any(|network| network.contains(&address)) {
            refused.push(address);
        }
    }
    for hole in &allowed {
        let cut = |network: IpNet| without(network, *hole);
        refused = refused.into_iter().flat_map(cut).collect();
    }
    let rule = |action: &str, network: &IpNet| NetworkRule {
        action: action.to_owned(),
        target: network.to_string(),
    };
    let allow = allowed.iter().map(|network| rule("allow", network));
    let deny = refused.iter().map(|network| rule("deny", network));
    let policy = NetworkPolicy {
        default_action: Some("allow".to_owned()),
        egress: allow.chain(deny).collect(),
    };
    validate::policy_text(&policy).map_err(|_| TooManyRules)
}

/// The parts of a network that are not in the other one: the half of the network that lacks it, that
/// half of the other half, and so on.
fn without(network: IpNet, hole: IpNet) -> Vec<IpNet> {
    if hole.contains(&network) {
        return Vec::new();
    }
    if !network.contains(&hole) {
        return vec![network];
    }
    let halves = network.subnets(network.prefix_len() + 1);
    let halves = halves.into_iter().flatten();
    halves.flat_map(|half| without(half, hole)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn cut(network: &str, hole: &str) -> Vec<String> {
        let parts = without(network.parse().unwrap(), hole.parse().unwrap());
        parts.iter().map(IpNet::to_string).collect()
    }

    /// Targets of a policy's rules with this action.
    fn targets(policy: &Value, action: &str) -> Vec<IpNet> {
        let rules = policy["egress"].as_array().unwrap().iter();
        let rules = rules.filter(|rule| rule["action"] == action);
        rules
            .map(|rule| rule["target"].as_str().unwrap().parse().unwrap())
            .collect()
    }

    fn policy(allowed: &[&str], own: &[&str]) -> Value {
        let own: Vec<IpAddr> = own.iter().map(|text| text.parse().unwrap()).collect();
        let text = public(&networks(allowed), &own).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn refuses(policy: &Value, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let refused = targets(policy, "deny");
        refused.iter().any(|network| network.contains(&address))
    }

    #[test]
    fn a_hole_is_cut_out_of_a_network() {
        assert_eq!(cut("10.0.0.0/8", "192.168.0.0/16"), ["10.0.0.0/8"]);
        assert_eq!(cut("10.0.0.0/8", "fd00::/8"), ["10.0.0.0/8"]);
        assert_eq!(cut("10.0.0.0/8", "10.0.0.0/8"), [""; 0]);
        assert_eq!(cut("10.0.0.0/8", "0.0.0.0/0"), [""; 0]);
        assert_eq!(
            cut("10.0.0.0/8", "10.64.0.0/10"),
            ["10.0.0.0/10", "10.128.0.0/9"]
        );
        assert_eq!(
            cut("10.0.0.0/30", "10.0.0.2/32"),
            ["10.0.0.0/31", "10.0.0.3/32"]
        );
        let parts = without("fc00::/7".parse().unwrap(), "fd12::1/128".parse().unwrap());
        assert_eq!(parts.len(), 121, "one network for each further bit");
        let hole: IpAddr = "fd12::1".parse().unwrap();
        assert!(!parts.iter().any(|part| part.contains(&hole)), "{parts:?}");
        let beside: IpAddr = "fd12::2".parse().unwrap();
        assert!(parts.iter().any(|part| part.contains(&beside)), "{parts:?}");
    }

    #[test]
    fn only_what_is_public_is_allowed() {
        let policy = policy(&[], &[]);
        assert_eq!(policy["defaultAction"], "allow");
        assert_eq!(targets(&policy, "allow"), []);
        for private in [
            "0.1.2.3",
            "10.255.255.255",
            "100.64.0.1",
            "169.254.169.254",
            "172.17.0.1",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2002:a00:1::1",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(refuses(&policy, private), "{private}");
        }
        for public in [
            "1.1.1.1",
            "100.63.255.255",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "64:ff9b::101:101",
            // The sandbox's own.
            "127.0.0.1",
            "::1",
        ] {
            assert!(!refuses(&policy, public), "{public}");
        }
    }

    #[test]
    fn what_the_operator_allows_is_not_refused() {
        let policy = policy(&["10.1.2.3/24", "192.168.0.0/16", "93.184.216.0/24"], &[]);
        for open in ["10.1.2.0", "10.1.2.255", "192.168.7.1"] {
            assert!(!refuses(&policy, open), "{open}");
        }
        for closed in ["10.1.1.255", "10.1.3.0", "10.0.0.1", "172.16.0.1"] {
            assert!(refuses(&policy, closed), "{closed}");
        }
        let rules = policy["egress"].as_array().unwrap();
        assert_eq!(
            rules[0],
            json!({"action": "allow", "target": "10.1.2.0/24"})
        );
        let allowed = networks(&["10.1.2.0/24", "192.168.0.0/16", "93.184.216.0/24"]);
        assert_eq!(targets(&policy, "allow"), allowed);
    }

    #[test]
    fn the_hosts_own_addresses_are_refused_unless_they_are_allowed() {
        let own = [
            "203.0.113.7",
            "10.0.0.5",
            "2001:db8::7",
            "::ffff:203.0.113.8",
        ];
        let refusing = policy(&[], &own);
        for address in ["203.0.113.7", "203.0.113.8", "2001:db8::7"] {
            assert!(refuses(&refusing, address), "{address}");
        }
        let named = targets(&refusing, "deny").len() - targets(&policy(&[], &[]), "deny").len();
        assert_eq!(named, 3, "one of them is private anyway");
        let allowing = policy(&["203.0.113.7/32"], &own);
        assert!(!refuses(&allowing, "203.0.113.7"));
        assert!(refuses(&allowing, "203.0.113.8"));
    }

    #[test]
    fn a_policy_with_too_many_rules_is_no_policy() {
        let many: Vec<IpNet> = (0..100_u16)
            .map(|n| format!("fd00:{n:x}::1/128").parse().unwrap())
            .collect();
        assert_eq!(public(&many, &[]), Err(TooManyRules));
    }
}

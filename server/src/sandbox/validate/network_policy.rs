//! Network policies of requests (contract: lifecycle §4.2, §A9). The parser is the sidecar's own, so
//! that what is accepted here is enforced there.

use std::collections::BTreeMap;

use osb_protocol::{
    Feature,
    lifecycle::{CredentialProxy, NetworkPolicy},
    network_policy::{Policy, PolicyError, RULES_MAX},
};
use osb_runtime::SecureKind;

use super::{ARGUMENT_MAX, Rules};
use crate::sandbox::Error;

/// Member of a create request with the policy.
const FIELD: &str = "networkPolicy";
/// Variable that brings the policy to the sidecar.
const RULES_ENV: &str = "OPENSANDBOX_EGRESS_RULES";
/// Prefix of the variables of the sidecar.
const EGRESS_ENV: &str = "OPENSANDBOX_EGRESS_";
/// Variable of the sidecar that the sandbox gets as well.
const TRANSPARENT: &str = "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT";
/// The other variables of the sidecar that a request may set (contract: lifecycle §A9).
const ALLOWED: [&str; 10] = [
    "OPENSANDBOX_EGRESS_LOG_LEVEL",
    "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT",
    "OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE",
    "OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS",
    "OPENSANDBOX_EGRESS_DENY_WEBHOOK",
    "OPENSANDBOX_EGRESS_METRICS_EXTRA_ATTRS",
    "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS",
    "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH",
    "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS",
    "OPENSANDBOX_EGRESS_POLICY_FILE",
];
/// Values of variables that mean yes (contract: lifecycle §A9).
const TRUE: [&str; 5] = ["1", "true", "yes", "y", "on"];
/// Why a request is refused that needs the sidecar to intercept connections.
const NO_INTERCEPTION: &str = "interception is not in this release";

/// The policy of a sandbox as the sidecar reads it: the request's, or else the server's default.
/// `None` without any, and when rules are broken, which `broken` gets.
pub(super) fn text(
    requested: Option<&NetworkPolicy>,
    rules: &Rules,
    broken: &mut Vec<Error>,
) -> Option<String> {
    match (requested, &rules.default_policy) {
        (Some(policy), _) => {
            if let Some(error) = refusal(rules) {
                broken.push(error);
                return None;
            }
            policy_text(policy)
                .map_err(|wrong| broken.extend(wrong))
                .ok()
        }
        (None, Some(_)) if !rules.features.contains(Feature::NetworkPolicy) => {
            let why = match rules.secure {
                Some(secure) => format!("a policy {}", unenforceable(secure)),
                None => format!(
                    "network policies are not available on the {} runtime",
                    rules.runtime
                ),
            };
            let rule = format!(
                "is missing, the server's default (egress.default_policy) takes its place, and {why}"
            );
            broken.push(Error::rule(FIELD, rule));
            None
        }
        (None, Some(default)) => Some(default.to_string()),
        (None, None) => None,
    }
}

/// Why no sandbox of the runtime can have a policy (contract: lifecycle §4.4).
fn refusal(rules: &Rules) -> Option<Error> {
    let unsupported = rules.require(Feature::NetworkPolicy, true).err()?;
    Some(match rules.secure {
        Some(secure) => Error::rule(FIELD, unenforceable(secure)),
        None => unsupported,
    })
}

/// What is said of policies under a secure runtime.
fn unenforceable(secure: SecureKind) -> String {
    format!(
        "cannot be enforced under {secure} (secure_runtime.type): packets of its sandboxes do not pass \
         the rules of the sidecar"
    )
}

/// A policy as the sidecar reads it: without nulls, and always with a list of rules.
///
/// # Errors
/// All rules that it breaks.
pub fn policy_text(policy: &NetworkPolicy) -> Result<String, Vec<Error>> {
    let text = serde_json::to_string(policy).expect("texts always serialise");
    if let Err(error) = Policy::parse(text.as_bytes()) {
        let wrong = wrong_members(&error).into_iter();
        let error = |(place, rule): (String, String)| {
            let field = match place.as_str() {
                "" => FIELD.to_owned(),
                place => format!("{FIELD}.{place}"),
            };
            Error::rule(field, rule)
        };
        return Err(wrong.map(error).collect());
    }
    let count = policy.egress.len();
    if count > RULES_MAX {
        let rule = format!("must have at most {RULES_MAX} rules");
        return Err(vec![Error::rule(format!("{FIELD}.egress"), rule)]);
    }
    let most = ARGUMENT_MAX - RULES_ENV.len() - "=".len();
    if text.len() > most {
        let rule = format!("must not be longer than {most} bytes as JSON");
        return Err(vec![Error::rule(FIELD, rule)]);
    }
    Ok(text)
}

/// What is wrong with a policy or a change of one: the dotted name of each member, empty for the
/// whole, and the rule that it breaks.
#[must_use]
pub fn wrong_members(error: &PolicyError) -> Vec<(String, String)> {
    match error {
        PolicyError::Members(texts) => texts.iter().map(|text| split_place(text)).collect(),
        whole => vec![(String::new(), whole.to_string())],
    }
}

/// Splits a text such as `egress[0].target must not be empty` into the member's dotted name and the
/// rule. A text that begins with no member is a rule about the whole.
fn split_place(text: &str) -> (String, String) {
    let whole = || (String::new(), text.to_owned());
    let Some((place, rule)) = text.split_once(' ') else {
        return whole();
    };
    let is_member =
        place.starts_with('[') || place.starts_with("egress") || place == "defaultAction";
    if !is_member {
        return whole();
    }
    let dotted = place.replace('[', ".").replace(']', "");
    (dotted.trim_start_matches('.').to_owned(), rule.to_owned())
}

/// What a request needs that this release's sidecar cannot do. `has_policy` says whether there is a
/// sidecar.
pub(super) fn interception(
    proxy: Option<CredentialProxy>,
    env: &BTreeMap<String, Option<String>>,
    has_policy: bool,
) -> Vec<Error> {
    let mut wrong = Vec::new();
    if proxy.is_some_and(|proxy| proxy.enabled) {
        wrong.push(Error::rule("credentialProxy.enabled", NO_INTERCEPTION));
    }
    let flag = env.get(TRANSPARENT).and_then(Option::as_deref);
    let is_true = |flag: &str| TRUE.iter().any(|word| flag.eq_ignore_ascii_case(word));
    let is_set = flag.is_some_and(|flag| is_true(flag.trim()));
    if has_policy && is_set {
        wrong.push(Error::Entry {
            map: "env",
            key: TRANSPARENT.to_owned(),
            rule: NO_INTERCEPTION.to_owned(),
        });
    }
    wrong
}

/// The variables of a request that the sidecar gets.
pub(super) fn variables(env: &BTreeMap<String, Option<String>>) -> BTreeMap<String, String> {
    let of_sidecar = env.iter().filter(|(name, _)| name.starts_with(EGRESS_ENV));
    of_sidecar
        .filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
        .collect()
}

/// Whether a variable is the sidecar's, and so does not reach the sandbox.
pub(super) fn is_of_sidecar(name: &str) -> bool {
    name.starts_with(EGRESS_ENV) && name != TRANSPARENT
}

/// Whether a variable of the sidecar is one that requests may set.
pub(super) fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(&name)
}

#[cfg(test)]
mod tests {
    use osb_protocol::{lifecycle::NetworkRule, network_policy::parse_rules};

    use super::*;

    fn policy(action: Option<&str>, targets: &[&str]) -> NetworkPolicy {
        let rule = |target: &&str| NetworkRule {
            action: "allow".to_owned(),
            target: (*target).to_owned(),
        };
        NetworkPolicy {
            default_action: action.map(str::to_owned),
            egress: targets.iter().map(rule).collect(),
        }
    }

    #[test]
    fn a_policy_is_written_without_nulls_and_with_its_list() {
        let text = |policy| policy_text(&policy).unwrap();
        assert_eq!(text(NetworkPolicy::default()), r#"{"egress":[]}"#);
        assert_eq!(
            text(policy(Some("deny"), &["*.example.org"])),
            r#"{"defaultAction":"deny","egress":[{"action":"allow","target":"*.example.org"}]}"#
        );
    }

    #[test]
    fn each_wrong_member_is_named() {
        let wrong = policy(Some("permit"), &["a.example", " ", "http://a.example/"]);
        let wrong = policy_text(&wrong).unwrap_err();
        let fields: Vec<String> = wrong
            .iter()
            .flat_map(Error::fields)
            .map(|field| field.field())
            .collect();
        assert_eq!(
            fields,
            [
                "networkPolicy.defaultAction",
                "networkPolicy.egress.1.target",
                "networkPolicy.egress.2.target",
            ]
        );
        let text = wrong[1].to_string();
        assert_eq!(text, "networkPolicy.egress.1.target: must not be empty");
        let many = vec!["*"; 1000];
        let wrong = policy_text(&policy(None, &many)).unwrap_err();
        let last = wrong.last().unwrap().to_string();
        assert!(last.starts_with("networkPolicy: and 99"), "{last}");
    }

    #[test]
    fn members_of_a_list_have_their_position() {
        let error = parse_rules(br#"[{"target": "a.example"}, {"target": ""}, 1]"#).unwrap_err();
        let places: Vec<String> = wrong_members(&error).into_iter().map(|it| it.0).collect();
        assert_eq!(places, ["1.target", "2"]);
        let error = parse_rules(b"{}").unwrap_err();
        assert_eq!(wrong_members(&error)[0].0, "");
    }

    #[test]
    fn a_policy_fits_into_a_variable_and_the_sidecar() {
        let names: Vec<String> = (0..=RULES_MAX).map(|n| format!("a{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let error = policy_text(&policy(None, &names)).unwrap_err();
        assert_eq!(
            error[0].to_string(),
            "networkPolicy.egress: must have at most 4096 rules"
        );
        let long = format!("{0}.{0}.{0}", "a".repeat(60));
        let long = vec![long.as_str(); 700];
        let error = policy_text(&policy(None, &long)).unwrap_err();
        let text = error[0].to_string();
        assert!(
            text.starts_with("networkPolicy: must not be longer"),
            "{text}"
        );
        assert!(policy_text(&policy(None, &long[..500])).is_ok());
    }
}

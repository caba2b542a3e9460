//! What a new sandbox may connect to: a choice, and a list of destinations for some of the choices.

use osb_protocol::{
    lifecycle::{NetworkPolicy, NetworkRule},
    network_policy::{Action, Target, not_public},
};
use serde_json::{Value, json};

/// No policy in the request: the server's default, if it has one.
pub(super) const USUAL: &str = "usual";
/// The policy of the sandbox that is copied is not known: the user has to choose.
pub(super) const UNKNOWN: &str = "unknown";
/// Everything is allowed, and recorded.
const OPEN: &str = "open";
/// Everything but private networks.
const PUBLIC: &str = "public";
/// Only the listed destinations.
const ONLY: &str = "only";
/// Everything but the listed destinations.
const EXCEPT: &str = "except";

/// Whether a choice has a list of destinations.
pub(super) fn has_list(choice: &str) -> bool {
    [ONLY, EXCEPT].contains(&choice)
}

/// Values and words of the choices of a server. `chosen` is offered in any case.
pub(super) fn choices(
    has_default: bool,
    enforces_addresses: bool,
    chosen: &str,
) -> Vec<(&'static str, &'static str)> {
    let usual = match has_default {
        true => "Public internet (default of this server)",
        false => "No restriction",
    };
    let all = [
        (UNKNOWN, "Choose …"),
        (USUAL, usual),
        (OPEN, "No restriction, but recorded"),
        (PUBLIC, "Public internet"),
        (ONLY, "Only these hosts"),
        (EXCEPT, "Everything but these"),
    ];
    // Where names only are enforced, private networks cannot be refused.
    let is_offered = |choice: &str| match choice {
        PUBLIC => enforces_addresses && !has_default,
        choice => choice != UNKNOWN,
    };
    let mut all = Vec::from(all);
    all.retain(|(choice, _)| is_offered(choice) || *choice == chosen);
    all
}

/// The member of the request; `None` if it has none.
///
/// # Errors
/// What is wrong with the list, in words.
pub(super) fn policy_of(choice: &str, list: &str) -> Result<Option<Value>, String> {
    let (default, rules) = match choice {
        USUAL | "" => return Ok(None),
        UNKNOWN => {
            let why = "The network policy of the original is not known: choose what the copy may connect to.";
            return Err(why.to_owned());
        }
        OPEN => (Action::Allow, Vec::new()),
        PUBLIC => (Action::Allow, private_networks()),
        ONLY => (Action::Deny, targets(list)?),
        EXCEPT => (Action::Allow, targets(list)?),
        _ => return Err("Choose from the list.".to_owned()),
    };
    let action = match default {
        Action::Allow => Action::Deny,
        Action::Deny => Action::Allow,
    };
    let rules = rules.into_iter();
    let rules: Vec<_> = rules
        .map(|target| json!({ "action": action.word(), "target": target }))
        .collect();
    Ok(Some(
        json!({ "defaultAction": default.word(), "egress": rules }),
    ))
}

/// The choice and the list that a member of a request means; `None` if no choice means it.
pub(super) fn form_of(policy: &Value) -> Option<(&'static str, String)> {
    if policy.is_null() {
        return Some((USUAL, String::new()));
    }
    // Anything else of it would be lost.
    let members = policy.as_object()?;
    let are_known = members
        .keys()
        .all(|name| ["defaultAction", "egress"].contains(&&**name));
    let policy: NetworkPolicy = serde_json::from_value(policy.clone())
        .ok()
        .filter(|_| are_known)?;
    let default = policy.default_action.as_deref().unwrap_or_default();
    let default = Action::parse(default)?;
    let is_other = |rule: &NetworkRule| {
        let action = Action::parse(&rule.action);
        action.is_some_and(|action| action != default) && Target::parse(&rule.target).is_ok()
    };
    if !policy.egress.iter().all(is_other) {
        return None;
    }
    let targets: Vec<String> = policy.egress.into_iter().map(|rule| rule.target).collect();
    match default {
        Action::Deny => Some((ONLY, targets.join("\n"))),
        Action::Allow if targets.is_empty() => Some((OPEN, String::new())),
        Action::Allow if are_private_networks(&targets) => Some((PUBLIC, String::new())),
        Action::Allow => Some((EXCEPT, targets.join("\n"))),
    }
}

fn private_networks() -> Vec<String> {
    not_public().iter().map(ToString::to_string).collect()
}

/// Whether targets are those of [`private_networks`], in whatever spelling.
fn are_private_networks(targets: &[String]) -> bool {
    let parsed = targets.iter().map(|target| Target::parse(target).ok());
    parsed.eq(not_public().into_iter().map(|it| Some(Target::Network(it))))
}

/// The targets of a list, one a line. Blank lines and lines that begin with `#` are skipped.
fn targets(list: &str) -> Result<Vec<String>, String> {
    let mut targets = Vec::new();
    for (number, line) in list.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err(error) = Target::parse(line) {
            return Err(format!("Line {}: the host {error}.", number + 1));
        }
        targets.push(line.to_owned());
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(has_default: bool, enforces_addresses: bool, chosen: &str) -> Vec<&'static str> {
        let choices = choices(has_default, enforces_addresses, chosen).into_iter();
        choices.map(|(value, _)| value).collect()
    }

    #[test]
    fn a_choice_is_a_policy_and_back() {
        let allow = |target: &str| json!({ "action": "allow", "target": target });
        let deny = |target: &str| json!({ "action": "deny", "target": target });
        for (choice, list, policy) in [
            (OPEN, "", json!({ "defaultAction": "allow", "egress": [] })),
            (
                ONLY,
                "*.example.org\n203.0.113.0/24",
                json!({ "defaultAction": "deny", "egress": [allow("*.example.org"), allow("203.0.113.0/24")] }),
            ),
            (ONLY, "", json!({ "defaultAction": "deny", "egress": [] })),
            (
                EXCEPT,
                "ads.example",
                json!({ "defaultAction": "allow", "egress": [deny("ads.example")] }),
            ),
        ] {
            assert_eq!(
                policy_of(choice, list),
                Ok(Some(policy.clone())),
                "{choice}"
            );
            assert_eq!(form_of(&policy), Some((choice, list.to_owned())));
        }
        let public = policy_of(PUBLIC, "ignored").unwrap().unwrap();
        assert_eq!(form_of(&public), Some((PUBLIC, String::new())));
        let rules = public["egress"].as_array().unwrap();
        assert!(rules.contains(&deny("169.254.0.0/16")), "{public}");
        let mut respelled = public.clone();
        respelled["egress"][1]["target"] = json!("10.1.2.3/8");
        assert_eq!(form_of(&respelled), Some((PUBLIC, String::new())));
        respelled["egress"][1]["target"] = json!("10.1.2.3/9");
        assert_eq!(form_of(&respelled).unwrap().0, EXCEPT);
        assert_eq!(policy_of(USUAL, "x y"), Ok(None));
        assert_eq!(form_of(&Value::Null), Some((USUAL, String::new())));
        assert_eq!(
            form_of(&json!({})),
            Some((ONLY, String::new())),
            "refuses all"
        );
    }

    #[test]
    fn comments_are_skipped_and_what_is_wrong_is_named_with_its_line() {
        let policy = policy_of(ONLY, "# mine\n\n a.example \r\n")
            .unwrap()
            .unwrap();
        assert_eq!(policy["egress"][0]["target"], "a.example");
        let why = policy_of(EXCEPT, "a.example\nhttp://b.example/").unwrap_err();
        assert!(why.starts_with("Line 2: the host "), "{why}");
        assert!(why.contains("write the host alone"), "{why}");
        assert!(policy_of("odd", "").is_err());
        let why = policy_of(UNKNOWN, "").unwrap_err();
        assert!(why.contains("not known"), "{why}");
    }

    #[test]
    fn a_policy_that_no_choice_means_is_left_alone() {
        for policy in [
            json!({ "defaultAction": "deny", "egress": [{ "action": "deny", "target": "a.example" }] }),
            json!({ "defaultAction": "permit" }),
            json!({ "egress": [{ "action": "allow", "target": "*" }] }),
            json!({ "egress": [], "more": 1 }),
            json!({ "egress": {} }),
            json!([]),
        ] {
            assert_eq!(form_of(&policy), None, "{policy}");
        }
    }

    #[test]
    fn choices_follow_the_server() {
        assert_eq!(
            values(false, true, USUAL),
            [USUAL, OPEN, PUBLIC, ONLY, EXCEPT]
        );
        assert_eq!(values(false, false, USUAL), [USUAL, OPEN, ONLY, EXCEPT]);
        assert_eq!(values(true, true, USUAL), [USUAL, OPEN, ONLY, EXCEPT]);
        assert!(
            values(false, false, PUBLIC).contains(&PUBLIC),
            "it is chosen"
        );
        assert_eq!(
            values(true, true, UNKNOWN),
            [UNKNOWN, USUAL, OPEN, ONLY, EXCEPT]
        );
        let (_, words) = choices(true, true, USUAL)[0];
        assert!(words.contains("default of this server"), "{words}");
    }
}

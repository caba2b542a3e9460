//! The policy of a sandbox as its users write it (contract: egress §4.1, §5.4–5.6).

use std::collections::HashSet;

use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::{Map, Value};

use super::rule::{Action, Rule, Target};

/// Errors that one answer lists. A policy with thousands of bad rules needs no longer answer.
const LISTED: usize = 10;

/// A policy: rules, and what happens to everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rules. The first one that matches a name decides.
    pub rules: Vec<Rule>,
    /// What happens to names and addresses without a rule.
    pub default_action: Action,
}

/// Refuses everything.
impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            default_action: Action::Deny,
        }
    }
}

/// Reason why a text is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is not JSON.
    #[error("the body is not JSON")]
    Json(#[source] serde_json::Error),
    /// It is JSON of another type.
    #[error("{0}")]
    Type(&'static str),
    /// Members are wrong. All are listed, up to a limit.
    #[error("{}", .0.join("; "))]
    Members(Vec<String>),
}

/// Summary of a policy that the API reports (contract: egress §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// Default deny without rules.
    DenyAll,
    /// Default allow without rules.
    AllowAll,
    /// Any other.
    Enforcing,
}

impl Policy {
    /// Parses a policy. A blank text, `null` and `{}` refuse everything.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn parse(text: &[u8]) -> Result<Self, PolicyError> {
        if text.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let members = match serde_json::from_slice(text).map_err(PolicyError::Json)? {
            Value::Null => return Ok(Self::default()),
            Value::Object(members) => members,
            _ => return Err(PolicyError::Type("a policy must be an object")),
        };
        let mut errors = Errors::default();
        let mut policy = Self::default();
        match member(&members, "defaultAction") {
            None | Some(Value::Null) => {}
            Some(value) => {
                policy.default_action = action(value, "defaultAction", &mut errors);
            }
        }
        match member(&members, "egress") {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => policy.rules = rules(list, "egress", &mut errors),
            Some(_) => errors.add("egress must be an array of rules".to_owned()),
        }
        errors.none_or(policy)
    }

    /// What the API calls this policy.
    #[must_use]
    pub fn mode(&self) -> PolicyMode {
        match (self.rules.is_empty(), self.default_action) {
            (true, Action::Deny) => PolicyMode::DenyAll,
            (true, Action::Allow) => PolicyMode::AllowAll,
            (false, _) => PolicyMode::Enforcing,
        }
    }

    /// Whether two policies say the same. The spelling of their targets does not matter.
    #[must_use]
    pub fn says_same(&self, other: &Self) -> bool {
        self.default_action == other.default_action && self.meanings().eq(other.meanings())
    }

    fn meanings(&self) -> impl Iterator<Item = (Action, &Target)> {
        self.rules.iter().map(|rule| (rule.action, &rule.target))
    }

    /// The policy with rules put in front. Of rules with the same target, in whatever spelling, the
    /// first one is kept, so that new rules replace older ones.
    #[must_use]
    pub fn merged(&self, patch: &[Rule]) -> Self {
        let mut seen = HashSet::new();
        let all = patch.iter().chain(&self.rules);
        let rules = all.filter(|rule| seen.insert(&rule.target));
        Self {
            rules: rules.cloned().collect(),
            default_action: self.default_action,
        }
    }

    /// Removes the rules that have one of these targets, in whatever spelling. Blank texts are ignored.
    #[must_use]
    pub fn without(&self, targets: &[String]) -> Removal {
        let given = targets.iter().map(|text| text.trim());
        let given = given.filter(|text| !text.is_empty());
        let given: Vec<_> = given.map(|text| (text, Target::parse(text).ok())).collect();
        let wanted: HashSet<&Target> = given.iter().filter_map(|it| it.1.as_ref()).collect();
        let is_removed = |rule: &Rule| wanted.contains(&rule.target);
        let (removed, rules): (Vec<Rule>, Vec<Rule>) =
            self.rules.iter().cloned().partition(is_removed);
        let matched: HashSet<&Target> = removed.iter().map(|rule| &rule.target).collect();
        let is_matched = |target: &Target| matched.contains(target);
        let unmatched = given
            .iter()
            .filter(|it| !it.1.as_ref().is_some_and(is_matched))
            .map(|it| it.0.to_owned())
            .collect();
        let default_action = self.default_action;
        Removal {
            policy: Self {
                rules,
                default_action,
            },
            removed,
            unmatched,
        }
    }
}

/// Result of a removal of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The policy without them.
    pub policy: Policy,
    /// Rules that it lost.
    pub removed: Vec<Rule>,
    /// Targets that no rule had, as they were given, without surrounding blanks.
    pub unmatched: Vec<String>,
}

/// Parses the body of a PATCH: a list of rules with at least one.
///
/// # Errors
/// See [`PolicyError`].
pub fn parse_rules(text: &[u8]) -> Result<Vec<Rule>, PolicyError> {
    const TYPE: &str = "the body must be an array of rules, with at least one";
    let list = non_empty_list(text, TYPE)?;
    let mut errors = Errors::default();
    let rules = rules(&list, "", &mut errors);
    errors.none_or(rules)
}

/// Parses the body of a DELETE: a list of targets with at least one. Targets that are no valid
/// target cannot name a rule, so they are accepted and match nothing.
///
/// # Errors
/// See [`PolicyError`].
pub fn parse_targets(text: &[u8]) -> Result<Vec<String>, PolicyError> {
    const TYPE: &str = "the body must be an array of targets, with at least one";
    let list = non_empty_list(text, TYPE)?;
    let mut errors = Errors::default();
    let mut targets = Vec::with_capacity(list.len());
    for (position, value) in list.into_iter().enumerate() {
        match value {
            Value::String(target) => targets.push(target),
            _ => errors.add(format!("[{position}] must be a string")),
        }
    }
    errors.none_or(targets)
}

fn non_empty_list(text: &[u8], expected: &'static str) -> Result<Vec<Value>, PolicyError> {
    if text.trim_ascii().is_empty() {
        return Err(PolicyError::Type(expected));
    }
    match serde_json::from_slice(text).map_err(PolicyError::Json)? {
        Value::Array(list) if !list.is_empty() => Ok(list),
        _ => Err(PolicyError::Type(expected)),
    }
}

/// Member of an object, whatever the case of its name. An exact name comes first.
fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    members.get(name).or_else(|| {
        let mut found = members.iter();
        found
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    })
}

fn action(value: &Value, place: &str, errors: &mut Errors) -> Action {
    let parsed = value.as_str().and_then(Action::parse);
    parsed.unwrap_or_else(|| {
        errors.add(format!("{place} must be allow or deny, not {value}"));
        Action::Deny
    })
}

fn rules(list: &[Value], place: &str, errors: &mut Errors) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(list.len());
    for (position, value) in list.iter().enumerate() {
        let place = format!("{place}[{position}]");
        let Value::Object(members) = value else {
            errors.add(format!("{place} must be an object with action and target"));
            continue;
        };
        let action = match member(members, "action") {
            None | Some(Value::Null) => Action::Deny,
            Some(value) => action(value, &format!("{place}.action"), errors),
        };
        let target = match member(members, "target") {
            None | Some(Value::Null) => "",
            Some(Value::String(target)) => target,
            Some(_) => {
                errors.add(format!("{place}.target must be a string"));
                continue;
            }
        };
        match Rule::new(action, target) {
            Ok(rule) => rules.push(rule),
            Err(error) => errors.add(format!("{place}.target {error}")),
        }
    }
    rules
}

/// Errors of members, up to a limit.
#[derive(Default)]
struct Errors {
    listed: Vec<String>,
    more: usize,
}

impl Errors {
    fn add(&mut self, error: String) {
        match self.listed.len() < LISTED {
            true => self.listed.push(error),
            false => self.more += 1,
        }
    }

    fn none_or<T>(mut self, parsed: T) -> Result<T, PolicyError> {
        if self.listed.is_empty() {
            return Ok(parsed);
        }
        if self.more > 0 {
            self.listed.push(format!("and {} more", self.more));
        }
        Err(PolicyError::Members(self.listed))
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rule = serializer.serialize_struct("Rule", 2)?;
        rule.serialize_field("action", &self.action)?;
        rule.serialize_field("target", &self.text)?;
        rule.end()
    }
}

/// The order of the members is the contract's.
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut policy = serializer.serialize_struct("Policy", 2)?;
        policy.serialize_field("egress", &self.rules)?;
        policy.serialize_field("defaultAction", &self.default_action)?;
        policy.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(value: Value) -> Policy {
        Policy::parse(value.to_string().as_bytes()).unwrap()
    }

    fn refused(value: Value) -> String {
        Policy::parse(value.to_string().as_bytes())
            .unwrap_err()
            .to_string()
    }

    fn written(policy: &Policy) -> Value {
        serde_json::to_value(policy).unwrap()
    }

    #[test]
    fn nothing_refuses_everything() {
        for text in [
            "",
            "  \n",
            "null",
            "{}",
            r#"{"defaultAction":null,"egress":null}"#,
        ] {
            let policy = Policy::parse(text.as_bytes()).unwrap();
            assert_eq!(policy, Policy::default(), "{text:?}");
            assert_eq!(policy.mode(), PolicyMode::DenyAll);
        }
        assert_eq!(
            serde_json::to_string(&Policy::default()).unwrap(),
            r#"{"egress":[],"defaultAction":"deny"}"#
        );
    }

    #[test]
    fn members_match_in_any_case_and_unknown_ones_are_ignored() {
        let policy = parsed(json!({
            "DEFAULTACTION": " Allow ",
            "Egress": [{"Action": "DENY", "TARGET": " Ads.Example "}, {"target": "10.0.0.0/8"}],
            "more": 1,
        }));
        assert_eq!(policy.default_action, Action::Allow);
        assert_eq!(policy.mode(), PolicyMode::Enforcing);
        assert_eq!(
            written(&policy),
            json!({"egress": [
                {"action": "deny", "target": "Ads.Example"},
                {"action": "deny", "target": "10.0.0.0/8"},
            ], "defaultAction": "allow"})
        );
        assert_eq!(
            parsed(json!({"defaultAction": "allow"})).mode(),
            PolicyMode::AllowAll
        );
    }

    #[test]
    fn every_wrong_member_is_named() {
        let error = refused(json!({
            "defaultAction": "permit",
            "egress": [{"action": "drop", "target": "a.example"}, {"target": ""}, 1, {"target": 2}],
        }));
        for part in [
            "defaultAction must be allow or deny, not \"permit\"",
            "egress[0].action must be allow or deny, not \"drop\"",
            "egress[1].target must not be empty",
            "egress[2] must be an object",
            "egress[3].target must be a string",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(refused(json!({"egress": {}})).contains("egress must be an array"));
        assert!(refused(json!([])).contains("must be an object"));
        assert!(
            Policy::parse(b"{")
                .unwrap_err()
                .to_string()
                .contains("not JSON")
        );
        let many: Vec<Value> = (0..1000).map(|_| json!({"target": "*"})).collect();
        assert!(refused(json!({"egress": many})).ends_with("and 990 more"));
    }

    #[test]
    fn a_patch_comes_first_and_replaces_rules_of_its_targets() {
        let base = parsed(json!({"egress": [
            {"action": "allow", "target": "packages.example.org"},
            {"action": "deny", "target": "*.corp.test"},
        ]}));
        let patch = json!([
            {"action": "deny", "target": "ads.test"},
            {"action": "allow", "target": "Packages.Example.org"},
            {"action": "allow", "target": "ads.test"},
        ]);
        let patch = parse_rules(patch.to_string().as_bytes()).unwrap();
        let merged = base.merged(&patch);
        let shown: Vec<String> = merged.rules.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "deny ads.test",
                "allow Packages.Example.org",
                "deny *.corp.test"
            ]
        );
        assert_eq!(merged.default_action, base.default_action);
    }

    #[test]
    fn rules_are_removed_by_target() {
        let base = parsed(json!({"egress": [
            {"action": "allow", "target": "A.example"},
            {"action": "deny", "target": "10.0.0.0/8"},
            {"action": "allow", "target": "b.example"},
        ], "defaultAction": "allow"}));
        let targets = parse_targets(br#"[" a.EXAMPLE ", "10.0.0.0/8", "", "unknown"]"#).unwrap();
        let removal = base.without(&targets);
        assert_eq!(removal.removed.len(), 2);
        assert_eq!(removal.unmatched, ["unknown"]);
        let rest = removal.policy;
        assert_eq!(
            written(&rest),
            json!({"egress": [{"action": "allow", "target": "b.example"}], "defaultAction": "allow"})
        );
        let none = rest.without(&targets);
        assert_eq!((none.policy, none.removed), (rest, vec![]));
        assert_eq!(none.unmatched, ["a.EXAMPLE", "10.0.0.0/8", "unknown"]);
    }

    #[test]
    fn policies_in_other_spellings_say_the_same() {
        let policy = |action: &str, targets: [&str; 2]| {
            let rules = targets.map(|target| json!({"action": action, "target": target}));
            parsed(json!({"egress": rules}))
        };
        let one = policy("allow", ["a.example", "10.0.0.0/8"]);
        let other = policy("Allow", ["A.example.", "10.1.2.3/8"]);
        assert!(one.says_same(&other) && one != other);
        for different in [
            policy("deny", ["a.example", "10.0.0.0/8"]),
            policy("allow", ["10.0.0.0/8", "a.example"]),
            policy("allow", ["a.example", "10.0.0.0/9"]),
            Policy {
                default_action: Action::Allow,
                ..one.clone()
            },
        ] {
            assert!(!one.says_same(&different), "{different:?}");
        }
    }

    #[test]
    fn lists_must_have_entries() {
        for text in ["", "[]", "{}", "null", "\"a\""] {
            assert!(parse_rules(text.as_bytes()).is_err(), "{text}");
            assert!(parse_targets(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse_targets(b"[1]").is_err());
        assert!(parse_rules(br#"[{"target":"*"}]"#).is_err());
    }
}

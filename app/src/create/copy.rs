//! A form that begins as a copy of a sandbox.

use std::collections::BTreeMap;

use osb_protocol::SandboxId;
use serde_json::{Map, Value, json};

use super::{CreateForm, lifetime, network, source, words};
use crate::view::{Original, OriginalPolicy};

/// Longest value of a label, in bytes.
const LABEL_MAX: usize = 63;
/// What is added to the name of the original.
const SUFFIX: &str = "-copy";

/// The form of a copy.
pub(super) fn form_of(id: &SandboxId, original: &Original) -> CreateForm {
    let (lifetime, ttl) = lifetime::of_seconds(original.timeout);
    let amount = |name: &str| original.resources.get(name).cloned().unwrap_or_default();
    let mut labels = original.metadata.clone();
    let name = labels.remove("name").unwrap_or_default();
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // A name with a line break cannot be typed either.
    let kept = original.variables.iter().flatten();
    let kept: Vec<_> = kept
        .filter(|name| !name.contains(['\n', '\r']))
        .map(String::as_str)
        .collect();
    let mut further = Map::new();
    let extensions = lines_of(&original.extensions, &mut further);
    let (network, network_rules) = network_of(&original.network_policy, &mut further);
    let source = match (&original.snapshot, &original.template) {
        (Some(_), _) => source::SNAPSHOT,
        (None, Some(_)) => source::TEMPLATE,
        (None, None) => source::IMAGE,
    };
    if !original.volumes.is_empty() {
        // Those of a bucket lack the key, which the server asks for by its fields.
        further.insert("volumes".to_owned(), json!(original.volumes));
    }
    CreateForm {
        name: copied(&name),
        source: source.to_owned(),
        snapshot: original.snapshot.clone().unwrap_or_default(),
        template: original.template.clone().unwrap_or_default(),
        image: original.image.clone().unwrap_or_default(),
        entrypoint: words::join(&original.entrypoint),
        lifetime,
        ttl,
        cpu: amount("cpu"),
        memory: amount("memory"),
        env: String::new(),
        metadata: labels.join("\n"),
        network: network.to_owned(),
        network_rules,
        extensions,
        secure_access: original.secure_access,
        more: text_of(further),
        from: id.to_string(),
        kept: kept.join("\n"),
        ..CreateForm::default()
    }
}

/// Extensions as the text of their field: names and values that lines cannot have, such as a value of
/// two lines, make them a further member.
fn lines_of(extensions: &BTreeMap<String, String>, further: &mut Map<String, Value>) -> String {
    let lines: Vec<_> = extensions
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let lines = lines.join("\n");
    if words::pairs(&lines).is_ok_and(|read| read == *extensions) {
        return lines;
    }
    further.insert("extensions".to_owned(), json!(extensions));
    String::new()
}

/// The choice and the list of hosts for the network policy of the original. A policy that no choice
/// means becomes a further member.
fn network_of(policy: &OriginalPolicy, further: &mut Map<String, Value>) -> (&'static str, String) {
    let policy = match policy {
        OriginalPolicy::Usual => return (network::USUAL, String::new()),
        OriginalPolicy::Unknown => return (network::UNKNOWN, String::new()),
        OriginalPolicy::InForce(policy) | OriginalPolicy::OfCreate(policy) => json!(policy),
    };
    if let Some(choice) = network::form_of(&policy) {
        return choice;
    }
    further.insert("networkPolicy".to_owned(), policy);
    (network::USUAL, String::new())
}

/// The text of further members; empty without any.
fn text_of(further: Map<String, Value>) -> String {
    match further.is_empty() {
        true => String::new(),
        false => serde_json::to_string_pretty(&further).unwrap_or_default(),
    }
}

/// What the note about a copy says of its network policy.
pub(super) fn network_note(policy: &OriginalPolicy) -> Option<&'static str> {
    match policy {
        OriginalPolicy::Usual => None,
        OriginalPolicy::InForce(_) => {
            Some("Its network policy, under “Advanced”, is the one that is in force there now.")
        }
        OriginalPolicy::OfCreate(_) => Some(
            "Its network policy, under “Advanced”, is the one that the original was created with: what was changed since is not known, because its sidecar does not answer.",
        ),
        OriginalPolicy::Unknown => Some(
            "The network policy of the original is not known, because its sidecar does not answer: choose one under “Advanced”.",
        ),
    }
}

/// The name of a copy, which is a label, too.
fn copied(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    // Labels are ASCII.
    let end = name.len().min(LABEL_MAX - SUFFIX.len());
    format!("{}{SUFFIX}", name.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use osb_protocol::lifecycle::NetworkPolicy;

    use super::*;

    fn map(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_copy_asks_for_what_the_original_asked_for() {
        let original = Original {
            image: Some("debian:12".to_owned()),
            snapshot: None,
            template: None,
            entrypoint: ["sh", "-c", "sleep 9"].map(str::to_owned).to_vec(),
            resources: map(&[("cpu", "500m"), ("gpu", "1")]),
            metadata: map(&[("name", "web"), ("team", "a"), ("x/y", "")]),
            extensions: map(&[("opensandbox.extensions.a", "x=y"), ("b", "")]),
            volumes: Vec::new(),
            secure_access: true,
            network_policy: OriginalPolicy::Usual,
            timeout: Some(3_600),
            variables: Some(vec!["B".to_owned(), "A".to_owned()]),
        };
        let mut form = form_of(&"1234".into(), &original);
        assert_eq!(form.request().problems, []);
        assert_eq!(
            form.request().body,
            json!({
                "image": { "uri": "debian:12" },
                "entrypoint": ["sh", "-c", "sleep 9"],
                "resourceLimits": { "cpu": "500m" },
                "timeout": 3600,
                "metadata": { "name": "web-copy", "team": "a", "x/y": "" },
                "extensions": { "opensandbox.extensions.a": "x=y", "b": "" },
                "secureAccess": true,
            })
        );
        assert_eq!(form.from, "1234");
        assert_eq!(form.kept_names(), ["B", "A"]);
        form.env = "A=2".to_owned();
        assert_eq!(form.kept_names(), ["B"], "the form sets the other itself");
    }

    #[test]
    fn a_copy_begins_with_the_snapshot_of_its_original() {
        let original = Original {
            snapshot: Some("s-1".to_owned()),
            entrypoint: vec!["sleep".to_owned()],
            ..Original::default()
        };
        let request = form_of(&"1234".into(), &original).request();
        assert_eq!(request.problems, []);
        assert_eq!(request.body["snapshotId"], "s-1");
        assert_eq!(request.body.get("image"), None);
    }

    #[test]
    fn a_copy_begins_with_the_template_of_its_original() {
        let original = Original {
            template: Some("tpl-1".to_owned()),
            entrypoint: vec!["sleep".to_owned()],
            resources: map(&[("cpu", "1"), ("memory", "512Mi")]),
            timeout: Some(3_600),
            ..Original::default()
        };
        let request = form_of(&"1234".into(), &original).request();
        assert_eq!(request.problems, []);
        assert_eq!(
            request.body,
            json!({ "templateId": "tpl-1", "timeout": 3600 })
        );
    }

    #[test]
    fn extensions_of_every_kind_are_copied() {
        for extensions in [
            map(&[]),
            map(&[("a", " x "), ("b", "#")]),
            map(&[("a", "one\ntwo")]),
            map(&[("a", "b"), ("#", "c")]),
            map(&[("a=b", "c")]),
            map(&[("a", "b\r")]),
        ] {
            let original = Original {
                extensions: extensions.clone(),
                ..Original::default()
            };
            let request = form_of(&"1234".into(), &original).request();
            assert_eq!(request.problems, [], "{extensions:?}");
            let copied = request.body.get("extensions").cloned();
            let expected = (!extensions.is_empty()).then(|| json!(extensions));
            assert_eq!(copied, expected);
        }
    }

    #[test]
    fn a_copy_has_the_network_policy_of_its_original() {
        let rule = |action: &str, target: &str| json!({ "action": action, "target": target });
        let only = json!({ "defaultAction": "deny", "egress": [rule("allow", "*.a.example")] });
        let open = json!({ "defaultAction": "allow", "egress": [] });
        let mixed = json!({
            "defaultAction": "deny",
            "egress": [rule("deny", "x.a.example"), rule("allow", "*.a.example")],
        });
        for (policy, choice, list) in [
            (&only, "only", "*.a.example"),
            (&open, "open", ""),
            // No choice means it: it is a further member.
            (&mixed, network::USUAL, ""),
        ] {
            let known: NetworkPolicy = serde_json::from_value(policy.clone()).unwrap();
            for network_policy in [
                OriginalPolicy::InForce(known.clone()),
                OriginalPolicy::OfCreate(known),
            ] {
                assert!(network_note(&network_policy).is_some());
                let original = Original {
                    network_policy,
                    ..Original::default()
                };
                let form = form_of(&"1234".into(), &original);
                assert_eq!((&*form.network, &*form.network_rules), (choice, list));
                let request = form.request();
                assert_eq!(request.problems, []);
                assert_eq!(request.body["networkPolicy"], *policy);
            }
        }
    }

    #[test]
    fn an_original_without_a_policy_has_copies_without_one() {
        let form = form_of(&"1234".into(), &Original::default());
        assert_eq!(form.network, network::USUAL);
        assert_eq!(form.request().body.get("networkPolicy"), None);
        assert_eq!(network_note(&OriginalPolicy::Usual), None);
    }

    #[test]
    fn the_network_of_a_copy_has_to_be_chosen_if_the_policy_is_not_known() {
        let original = Original {
            network_policy: OriginalPolicy::Unknown,
            ..Original::default()
        };
        let mut form = form_of(&"1234".into(), &original);
        let [problem] = &form.request().problems[..] else {
            panic!("{:?}", form.request());
        };
        assert_eq!(problem.field(), "networkPolicy");
        assert!(network_note(&original.network_policy).is_some());
        form.network = network::USUAL.to_owned();
        assert_eq!(form.request().problems, []);
    }

    #[test]
    fn the_volumes_of_a_copy_are_those_of_the_original() {
        let volumes = json!([
            { "name": "a", "mountPath": "/a", "readOnly": true, "host": { "path": "/srv/a" } },
            {
                "name": "b", "mountPath": "/b", "readOnly": false,
                "ossfs": { "bucket": "data", "endpoint": "https://oss.example", "version": "2.0" },
            },
        ]);
        let original = Original {
            volumes: serde_json::from_value(volumes.clone()).unwrap(),
            ..Original::default()
        };
        let request = form_of(&"1234".into(), &original).request();
        assert_eq!(request.problems, []);
        assert_eq!(request.body["volumes"], volumes);
    }

    #[test]
    fn what_no_field_has_becomes_one_object() {
        let policy = json!({ "egress": [{ "action": "deny", "target": "a.example" }] });
        let original = Original {
            extensions: map(&[("a", "one\ntwo")]),
            network_policy: OriginalPolicy::InForce(
                serde_json::from_value(policy.clone()).unwrap(),
            ),
            ..Original::default()
        };
        let request = form_of(&"1234".into(), &original).request();
        assert_eq!(request.problems, []);
        assert_eq!(request.body["extensions"], json!({ "a": "one\ntwo" }));
        assert_eq!(request.body["networkPolicy"], policy);
    }

    #[test]
    fn names_of_copies_stay_labels() {
        assert_eq!(copied(""), "");
        assert_eq!(copied("web"), "web-copy");
        assert_eq!(copied("web-copy"), "web-copy", "not longer each time");
        let long = copied(&"x".repeat(63));
        assert_eq!(long.len(), 63);
        assert!(long.ends_with("x-copy"), "{long}");
    }
}

//! Members of a create request that have no effect. The contract accepts them (contract: lifecycle
//! §1.3, §4.5, §5.2, §A2), and the log names them, so that an operator finds a typo.

use osb_protocol::resources::ResourceLimits;
use serde_json::Value;

use super::{rules, schema};

/// Members of named volumes that only Kubernetes has a use for.
const CLAIM_UNREAD: [&str; 3] = ["storageClass", "storage", "accessModes"];
/// Most names that are reported.
const NAMES_MAX: usize = 16;
/// Longest part of a name that is reported, in characters.
const NAME_LENGTH_MAX: usize = 64;

/// Dotted names of the members without effect, in a normalised request for a sandbox with a network
/// policy or without one.
pub(super) fn members(body: &Value, has_policy: bool) -> Vec<String> {
    let mut names = Vec::new();
    unknown(&schema::SCHEMA, body, "", &mut names);
    let mut in_map = |map: &str, is_read: fn(&str) -> bool| {
        let members = body.get(map).and_then(Value::as_object);
        for name in members.into_iter().flat_map(|members| members.keys()) {
            if !is_read(name) {
                names.push(format!("{map}.{name}"));
            }
        }
    };
    in_map("resourceLimits", |name| {
        ResourceLimits::KEYS.contains(&name)
    });
    in_map("extensions", rules::reads_extension);
    in_map(
        "env",
        match has_policy {
            true => rules::reads_variable_with_policy,
            false => rules::reads_variable,
        },
    );
    if body.get("resourceRequests").is_some() {
        names.push("resourceRequests".to_owned());
    }
    let volumes = body.get("volumes").and_then(Value::as_array);
    for (index, volume) in volumes.into_iter().flatten().enumerate() {
        let claim = volume.get("pvc");
        let given = CLAIM_UNREAD
            .iter()
            .filter(|name| claim.is_some_and(|claim| claim.get(**name).is_some()));
        names.extend(given.map(|name| format!("volumes.{index}.pvc.{name}")));
    }
    names.truncate(NAMES_MAX);
    for name in &mut names {
        if let Some((end, _)) = name.char_indices().nth(NAME_LENGTH_MAX) {
            name.truncate(end);
        }
    }
    names
}

/// Collects members that the schema does not list. In an object without listed members the names
/// are the user's.
fn unknown(schema: &Value, value: &Value, path: &str, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let Some(known) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            for (name, value) in members {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                match known.get(name) {
                    Some(schema) => unknown(schema, value, &path, names),
                    None => names.push(path),
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else {
                return;
            };
            for (index, item) in items.iter().enumerate() {
                unknown(schema, item, &format!("{path}.{index}"), names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_without_effect_are_named() {
        let body = json!({
            "image": {"uri": "debian:12", "pullPolicy": "Always"},
            "entrypoint": ["sleep", "infinity"],
            "timeot": 60,
            "env": {"ANY": "name"},
            "metadata": {"any": "name"},
            "resourceLimits": {"cpu": "1", "memroy": "1Gi"},
            "resourceRequests": {"cpu": "1"},
            "volumes": [{"name": "a", "mountPath": "/a", "pvc": {"claimName": "c", "storage": "1Gi"}}],
            "networkPolicy": {"egress": [{"action": "allow", "target": "a", "port": 1}]},
            "extensions": {
                "access.renew.extend.seconds": "300", "poolRef": "", "opensandbox.extensions.a": "1",
                "opensandbox.extension.a": "1", "bootstrap.execd.isolation": "enable",
                "bootstrap.execd.isolated": "enable",
            },
        });
        let mut names = members(&body, true);
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "extensions.bootstrap.execd.isolated",
                "extensions.opensandbox.extension.a",
                "image.pullPolicy",
                "networkPolicy.egress.0.port",
                "resourceLimits.memroy",
                "resourceRequests",
                "timeot",
                "volumes.0.pvc.storage",
            ]
        );
    }

    #[test]
    fn a_log_line_stays_a_line() {
        let mut body = serde_json::Map::new();
        for n in 0..1000 {
            body.insert(format!("{n:0>1000}"), json!(1));
        }
        let names = members(&Value::Object(body), false);
        assert_eq!(names.len(), NAMES_MAX);
        assert!(
            names.iter().all(|name| name.len() == NAME_LENGTH_MAX),
            "{names:?}"
        );
    }
}

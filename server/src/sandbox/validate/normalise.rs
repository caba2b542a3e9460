//! Normalises what clients may spell differently (contract: lifecycle §1.3): snake-case names,
//! numbers as strings, and `null` for absent members.

use std::num::IntErrorKind;

use serde_json::{Map, Value};

/// Integer members of structured objects.
const INTEGERS: [&str; 3] = ["timeout", "timeoutSeconds", "warmupSeconds"];
/// Objects whose members are fields of the API; the members of other objects are the user's.
const STRUCTURED: [&str; 15] = [
    "image",
    "auth",
    "platform",
    "networkPolicy",
    "egress",
    "credentialProxy",
    "volumes",
    "host",
    "pvc",
    "ossfs",
    "lifecycle",
    "preStart",
    "periodic",
    "readiness",
    "build",
];
/// Members of hooks whose blanks at both ends mean nothing (contract: lifecycle §A2).
const TRIMMED: [&str; 2] = ["name", "schedule"];

/// Normalises a request for a sandbox or a template to the spelling of its schema.
pub(super) fn create(body: Value) -> Value {
    match body {
        Value::Object(members) => {
            let mut members = fields(members);
            let lifecycle = members.get_mut("lifecycle");
            let hooks = lifecycle.and_then(|hooks| hooks.get_mut("periodic"));
            for hook in hooks.and_then(Value::as_array_mut).into_iter().flatten() {
                for name in TRIMMED {
                    if let Some(Value::String(text)) = hook.get_mut(name) {
                        *text = text.trim().to_owned();
                    }
                }
            }
            Value::Object(members)
        }
        other => other,
    }
}

/// Renames members and drops nulls, recursively in structured members.
fn fields(members: Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for (given, value) in members {
        let name = camel_case(&given);
        if value.is_null() {
            continue;
        }
        let value = match value {
            Value::Object(inner) if STRUCTURED.contains(&name.as_str()) => {
                Value::Object(fields(inner))
            }
            Value::Array(items) if STRUCTURED.contains(&name.as_str()) => {
                Value::Array(items.into_iter().map(item).collect())
            }
            mut value if INTEGERS.contains(&name.as_str()) => {
                integer(&mut value);
                value
            }
            // Entries of maps keep their names; a null has a meaning or is an error there.
            value => value,
        };
        // The proper spelling wins over its alias.
        if given == name || !out.contains_key(&name) {
            out.insert(name, value);
        }
    }
    out
}

fn item(value: Value) -> Value {
    match value {
        Value::Object(inner) => Value::Object(fields(inner)),
        other => other,
    }
}

/// Reads `"600"` and `600.0` as 600.
fn integer(value: &mut Value) {
    if let Some(read) = whole_number(value) {
        *value = read.into();
    }
}

/// A whole number, also as `"600"` and `600.0`. One out of range becomes the nearest bound, which breaks the
/// same rules.
#[expect(
    clippy::cast_possible_truncation,
    reason = "integral, and saturating at the bounds is what is wanted"
)]
pub fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => whole_number_in(text),
        Value::Number(number) => number.as_i64().or_else(|| {
            let number = number.as_f64().filter(|number| number.fract() == 0.0);
            number.map(|number| number as i64)
        }),
        _ => None,
    }
}

/// A whole number in digits, like [`whole_number`].
pub fn whole_number_in(text: &str) -> Option<i64> {
    match text.trim().parse() {
        Ok(number) => Some(number),
        Err(error) => match std::num::ParseIntError::kind(&error) {
            IntErrorKind::PosOverflow => Some(i64::MAX),
            IntErrorKind::NegOverflow => Some(i64::MIN),
            _ => None,
        },
    }
}

/// The name in the schema of a member, however a client may spell it.
pub(super) fn camel_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' if !out.is_empty() => upper = true,
            c if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    if upper {
        out.push('_');
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn aliases_nulls_and_numbers_are_brought_into_form() {
        let body = json!({
            "resource_limits": {"my_key": "1", "x": null},
            "timeout": "600",
            "snapshotId": null,
            "image": {"uri": "a", "auth": null},
            "network_policy": {"default_action": null, "egress": [{"action": "allow", "x_y": 1}]},
            "env": {"A_B": null}
        });
        let want = json!({
            "resourceLimits": {"my_key": "1", "x": null},
            "timeout": 600,
            "image": {"uri": "a"},
            "networkPolicy": {"egress": [{"action": "allow", "xY": 1}]},
            "env": {"A_B": null}
        });
        assert_eq!(create(body), want);
        assert_eq!(create(json!({"timeout": 600.0}))["timeout"], json!(600));
        assert_eq!(create(json!({"timeout": 600.5}))["timeout"], json!(600.5));
        assert_eq!(create(json!([1])), json!([1]));
    }

    #[test]
    fn numbers_beyond_all_bounds_become_the_bound() {
        for (given, bound) in [
            (json!(1e30), i64::MAX),
            (json!(-1e30), i64::MIN),
            (json!(u64::MAX), i64::MAX),
            (json!("1111111111222222222233333333334"), i64::MAX),
            (json!("-1111111111222222222233333333334"), i64::MIN),
        ] {
            let body = create(json!({"timeout": given}));
            assert_eq!(body["timeout"], json!(bound), "{given}");
        }
    }
}

//! The members of a request that the form has no field for.

use serde_json::{Map, Value, json};

/// What stands for the password of a registry wherever a request is shown.
pub(super) const PASSWORD: &str = "REGISTRY_PASSWORD";
/// Members whose members may be in a field and in the further ones.
const SHARED: [&str; 2] = ["resourceLimits", "lifecycle"];

/// Adds further members, written as JSON, to a request.
///
/// # Errors
/// What is wrong with them, in words.
pub(super) fn merge(body: &mut Map<String, Value>, more: &str) -> Result<(), String> {
    if more.trim().is_empty() {
        return Ok(());
    }
    for (name, value) in object(more)? {
        match (body.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(further))
                if SHARED.contains(&name.as_str()) =>
            {
                for (member, value) in further {
                    if known.contains_key(&member) {
                        return Err(taken(&format!("{name}.{member}")));
                    }
                    known.insert(member, value);
                }
            }
            (Some(_), _) => return Err(taken(&name)),
            (None, value) => {
                body.insert(name, value);
            }
        }
    }
    Ok(())
}

fn taken(name: &str) -> String {
    format!("{name} has a field of its own: clear that, or leave it out here.")
}

/// The object that a text is.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("This has to be an object: { … }.".to_owned()),
        Err(error) => Err(format!("This is no JSON: {error}.")),
    }
}

/// Further members as a page may show them again: without the password of a registry.
pub(super) fn without_password(more: String) -> String {
    const NAME: &str = "password";
    let is_named = more.to_lowercase().contains(NAME);
    let mut members = match object(&more) {
        Ok(members) => members,
        // What of it is a password is not known.
        Err(_) if is_named => return String::new(),
        Err(_) => return more,
    };
    let mut is_removed = false;
    // The second one is where it may be by mistake, so that the request is refused.
    for place in ["image", "auth"] {
        if let Some(member) = members.get_mut(place) {
            is_removed |= remove_all(member, NAME);
        }
    }
    // Of members that are written twice, only the last ones were read.
    match is_removed || is_named {
        true => serde_json::to_string_pretty(&members).unwrap_or_default(),
        false => more,
    }
}

/// Removes the members with this name at every depth. Whether there were any.
fn remove_all(value: &mut Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            let before = members.len();
            members.retain(|known, _| !known.eq_ignore_ascii_case(name));
            let is_removed = members.len() < before;
            let inside = members.values_mut();
            inside.fold(is_removed, |is_removed, it| {
                remove_all(it, name) | is_removed
            })
        }
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |is_removed, it| remove_all(it, name) | is_removed),
        _ => false,
    }
}

/// The request as it may be shown: with a word in place of a password.
pub(super) fn masked(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(password) = body.pointer_mut("/image/auth/password") {
        *password = json!(PASSWORD);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_of_a_registry_is_shown_again() {
        for (more, shown) in [
            (
                json!({"image": {"uri": "a", "auth": {"username": "zoe", "password": "xyzzy"}}}),
                json!({"image": {"uri": "a", "auth": {"username": "zoe"}}}),
            ),
            (
                json!({"image": [{"Password": "xyzzy"}], "auth": {"password": ["xyzzy"]}}),
                json!({"image": [{}], "auth": {}}),
            ),
            (
                json!({"env": {"password": "of a program"}}),
                json!({"env": {"password": "of a program"}}),
            ),
        ] {
            let rest = without_password(more.to_string());
            assert_eq!(serde_json::from_str::<Value>(&rest).unwrap(), shown);
        }
        let twice = r#"{"image": {"auth": {"password": "xyzzy"}}, "image": {}}"#;
        let rest = without_password(twice.to_owned());
        assert!(!rest.contains("xyzzy"), "{rest}");
        // What is no object may be anything.
        for unreadable in [
            r#"{"image": {"auth": {"password": "xyzzy}}}"#,
            r#"["password"]"#,
        ] {
            assert_eq!(without_password(unreadable.to_owned()), "");
        }
        for other in ["", "{ \"platform\":  {", "{\"platform\":  {}}"] {
            assert_eq!(without_password(other.to_owned()), other);
        }
    }

    #[test]
    fn a_member_is_in_one_place_only() {
        let mut body = Map::new();
        body.insert("resourceLimits".to_owned(), json!({"cpu": "1"}));
        merge(
            &mut body,
            r#"{"resourceLimits": {"gpu": "1"}, "platform": {}}"#,
        )
        .unwrap();
        assert_eq!(body["resourceLimits"], json!({"cpu": "1", "gpu": "1"}));
        for taken in [r#"{"resourceLimits": {"cpu": "2"}}"#, r#"{"platform": {}}"#] {
            let why = merge(&mut body, taken).unwrap_err();
            assert!(why.contains("field of its own"), "{why}");
        }
        assert_eq!(merge(&mut body, " "), Ok(()));
    }
}

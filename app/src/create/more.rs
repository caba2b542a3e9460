//! The members of a request that the form has no field for, and the form as JSON.

use serde_json::{Map, Value, json};

use super::{CreateForm, lifetime, words};

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
fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("This has to be an object: { … }.".to_owned()),
        Err(error) => Err(format!("This is no JSON: {error}.")),
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

/// Fills a form in from a request. What the form has no field for becomes its further members.
///
/// # Errors
/// What cannot be read, in words; the form is as it was then.
pub(super) fn fill(form: &mut CreateForm, text: &str) -> Result<(), String> {
    let mut request = object(text)?;
    let mut next = CreateForm {
        from: form.from.clone(),
        kept: form.kept.clone(),
        entrypoint: String::new(),
        cpu: String::new(),
        memory: String::new(),
        ..CreateForm::default()
    };
    if let Some(image) = request.remove("image") {
        fill_image(&mut next, image, &form.auth_password)?;
    }
    if let Some(entrypoint) = request.remove("entrypoint") {
        next.entrypoint = words::join(&list(&entrypoint, "entrypoint")?);
    }
    let timeout = match request.remove("timeout") {
        None | Some(Value::Null) => None,
        Some(seconds) => {
            let seconds = seconds.as_i64();
            Some(seconds.ok_or("timeout has to be a whole number of seconds, or null.")?)
        }
    };
    (next.lifetime, next.ttl) = lifetime::of_seconds(timeout);
    let mut limits = members(request.remove("resourceLimits"), "resourceLimits")?;
    for (name, field) in [("cpu", &mut next.cpu), ("memory", &mut next.memory)] {
        if let Some(amount) = limits.remove(name) {
            *field = text_of(&amount, name)?;
        }
    }
    if !limits.is_empty() {
        request.insert("resourceLimits".to_owned(), Value::Object(limits));
    }
    let mut labels = members(request.remove("metadata"), "metadata")?;
    if let Some(name) = labels.remove("name") {
        next.name = text_of(&name, "metadata.name")?;
    }
    next.metadata = lines(labels, "metadata")?;
    next.env = lines(members(request.remove("env"), "env")?, "env")?;
    let extensions = members(request.remove("extensions"), "extensions")?;
    next.extensions = lines(extensions, "extensions")?;
    match request.remove("secureAccess") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(on)) => next.secure_access = on,
        Some(_) => return Err("secureAccess has to be true or false.".to_owned()),
    }
    if let Some(hooks) = request.get_mut("lifecycle").and_then(Value::as_object_mut) {
        let command = hooks.get("preStart").filter(|hook| {
            // Anything else of the hook has no field.
            hook.as_object().is_some_and(|hook| hook.len() == 1)
        });
        let command = command.and_then(|hook| list(hook.get("command")?, "").ok());
        if let Some(command) = command {
            next.pre_start = words::join(&command);
            hooks.remove("preStart");
        }
        if hooks.is_empty() {
            request.remove("lifecycle");
        }
    }
    if !request.is_empty() {
        next.more = serde_json::to_string_pretty(&request).unwrap_or_default();
    }
    *form = next;
    Ok(())
}

fn fill_image(form: &mut CreateForm, image: Value, password: &str) -> Result<(), String> {
    let mut image = members(Some(image), "image")?;
    if let Some(uri) = image.remove("uri") {
        form.image = text_of(&uri, "image.uri")?;
    }
    let mut auth = members(image.remove("auth"), "image.auth")?;
    if let Some(user) = auth.remove("username") {
        form.auth_user = text_of(&user, "image.auth.username")?;
    }
    if let Some(typed) = auth.remove("password") {
        form.auth_password = match text_of(&typed, "image.auth.password")?.as_str() {
            PASSWORD => password.to_owned(),
            other => other.to_owned(),
        };
    }
    let rest = image.into_iter().chain(auth).map(|(name, _)| name);
    match rest.collect::<Vec<_>>().join(", ").as_str() {
        "" => Ok(()),
        names => Err(format!("image has members that are not known: {names}.")),
    }
}

fn members(value: Option<Value>, name: &str) -> Result<Map<String, Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members),
        Some(_) => Err(format!("{name} has to be an object: {{ … }}.")),
    }
}

fn text_of(value: &Value, name: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("{name} has to be a text.")),
    }
}

fn list(value: &Value, name: &str) -> Result<Vec<String>, String> {
    let texts = value.as_array().and_then(|items| {
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| format!("{name} has to be a list of texts."))
}

/// `NAME=value` lines.
fn lines(members: Map<String, Value>, name: &str) -> Result<String, String> {
    let line = |(member, value): (String, Value)| {
        let value = text_of(&value, &format!("{name}.{member}"))?;
        let line = format!("{member}={value}");
        let is_readable = words::pairs(&line)
            .is_ok_and(|pairs| pairs.len() == 1 && pairs.get(&member) == Some(&value));
        match is_readable {
            true => Ok(line),
            false => Err(format!(
                "{name}.{member} cannot be written in the form: no line breaks, and no = or # in names."
            )),
        }
    };
    let lines: Result<Vec<_>, String> = members.into_iter().map(line).collect();
    Ok(lines?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_the_same_after_its_json() {
        let form = CreateForm {
            name: "web".to_owned(),
            image: "debian:12".to_owned(),
            auth_user: "zoe".to_owned(),
            auth_password: "secret".to_owned(),
            entrypoint: "sh -c 'a  b'".to_owned(),
            lifetime: "other".to_owned(),
            ttl: "90s".to_owned(),
            cpu: "500m".to_owned(),
            env: "A=x=y\nB=".to_owned(),
            metadata: "team=a".to_owned(),
            extensions: "k=v".to_owned(),
            secure_access: true,
            pre_start: "sh -c 'c d'".to_owned(),
            more: "{\n  \"platform\": {\n    \"os\": \"linux\"\n  }\n}".to_owned(),
            ..CreateForm::default()
        };
        let request = form.request();
        assert_eq!(request.problems, []);
        let shown = masked(&request.body).to_string();
        assert!(!shown.contains("secret"), "{shown}");
        let mut read = form.clone();
        fill(&mut read, &shown).unwrap();
        assert_eq!(read, form, "with the password that was typed");
        assert_eq!(read.request(), request);
    }

    #[test]
    fn what_has_no_field_is_kept_and_sent_as_it_is() {
        let text = json!({
            "image": {"uri": "a"}, "entrypoint": ["b"],
            "resourceLimits": {"cpu": 2, "gpu": "1"},
            "volumes": [{"name": "v", "mountPath": "/v", "host": {"path": "/x"}}],
            "lifecycle": {"preStart": {"command": ["c"], "timeoutSeconds": 9}},
        });
        let mut form = CreateForm::default();
        fill(&mut form, &text.to_string()).unwrap();
        assert_eq!(form.lifetime, "manual");
        let body = form.request().body;
        assert_eq!(body["resourceLimits"], json!({"cpu": "2", "gpu": "1"}));
        assert_eq!(body["volumes"], text["volumes"]);
        assert_eq!(body["lifecycle"], text["lifecycle"]);
        assert_eq!(form.request().problems, []);
    }

    #[test]
    fn what_cannot_be_read_is_said_and_changes_nothing() {
        for (text, part) in [
            ("", "no JSON"),
            ("{", "no JSON"),
            ("[]", "object"),
            (r#"{"image": "debian"}"#, "image has to be an object"),
            (r#"{"image": {"url": "x"}}"#, "not known: url"),
            (r#"{"entrypoint": "sleep 9"}"#, "list of texts"),
            (r#"{"timeout": "1h"}"#, "whole number"),
            (r#"{"env": {"A": "1\n2"}}"#, "env.A cannot"),
            (r#"{"env": {"A=": "1"}}"#, "env.A= cannot"),
            (r#"{"metadata": {"a": {}}}"#, "metadata.a has to be a text"),
            (r#"{"secureAccess": 1}"#, "true or false"),
        ] {
            let mut form = CreateForm::default();
            let why = fill(&mut form, text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
            assert_eq!(form, CreateForm::default(), "{text}");
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

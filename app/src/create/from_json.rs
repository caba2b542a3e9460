//! The form from a request, written as JSON.

use serde_json::{Map, Value};

use super::{
    CreateForm, lifetime,
    more::{PASSWORD, object},
    network, words,
};

/// Fills a form in from a request. What the form has no field for becomes its further members, whose
/// names are returned.
///
/// # Errors
/// What cannot be read, or what the form cannot have as it is written, in words; the form is as it was
/// then.
pub(super) fn fill(form: &mut CreateForm, text: &str) -> Result<Vec<String>, String> {
    let request = object(text)?;
    let (next, further) = read(form, request.clone())?;
    let mut wanted = Value::Object(request);
    let typed = &form.auth_password;
    let password = wanted.pointer_mut("/image/auth/password");
    let password = password.filter(|it| it.as_str() == Some(PASSWORD) && !typed.is_empty());
    if let Some(password) = password {
        *password = Value::from(typed.clone());
    }
    let mut lost = Vec::new();
    add_lost(&wanted, Some(&next.request().body), "", &mut lost);
    if !lost.is_empty() {
        return Err(format!(
            "The form cannot have this as it is written: {}.",
            lost.join(", ")
        ));
    }
    *form = next;
    Ok(further)
}

/// Adds the places of a value that another one lacks or has otherwise. A form leaves out what says
/// nothing, and numbers and texts of limits and labels are the same.
fn add_lost(wanted: &Value, made: Option<&Value>, place: &str, lost: &mut Vec<String>) {
    let below = |name: &str| match place {
        "" => name.to_owned(),
        place => [place, ".", name].concat(),
    };
    match wanted {
        Value::Null | Value::Bool(false) if made.is_none() => {}
        Value::Object(members) => {
            for (name, value) in members {
                let made = made.and_then(|made| made.get(name));
                add_lost(value, made, &below(name), lost);
            }
        }
        Value::Array(items) => {
            let made = made.and_then(Value::as_array);
            let made = made.map(Vec::as_slice).unwrap_or_default();
            if made.len() != items.len() {
                lost.push(place.to_owned());
                return;
            }
            for (at, (item, made)) in items.iter().zip(made).enumerate() {
                add_lost(item, Some(made), &below(&at.to_string()), lost);
            }
        }
        plain => {
            let text = |value: &Value| text_of(value, "").ok();
            let is_kept = made.is_some_and(|made| {
                made == plain || text(plain).is_some_and(|plain| text(made) == Some(plain))
            });
            if !is_kept {
                lost.push(place.to_owned());
            }
        }
    }
}

/// The form of a request, and the names of its further members.
fn read(
    form: &CreateForm,
    mut request: Map<String, Value>,
) -> Result<(CreateForm, Vec<String>), String> {
    let mut next = CreateForm {
        from: form.from.clone(),
        kept: form.kept.clone(),
        entrypoint: String::new(),
        cpu: String::new(),
        memory: String::new(),
        ..CreateForm::default()
    };
    // Of several sources, one that is not the first stays a further member, and the server says what is
    // wrong.
    let id = |name: &str| {
        let given = request.get(name)?.as_str();
        given.map(str::to_owned)
    };
    let (snapshot, template) = (id("snapshotId"), id("templateId"));
    match (request.contains_key("image"), snapshot, template) {
        (false, Some(snapshot), _) => {
            next.set_snapshot(snapshot);
            request.remove("snapshotId");
        }
        (false, None, Some(template)) => {
            next.set_template(template);
            request.remove("templateId");
        }
        _ => {}
    }
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
    let policy = request.get("networkPolicy").and_then(network::form_of);
    if let Some((choice, list)) = policy {
        choice.clone_into(&mut next.network);
        next.network_rules = list;
        request.remove("networkPolicy");
    }
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
        // An empty one has no field either.
        if let Some(command) = command.filter(|command| !command.is_empty()) {
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
    Ok((next, request.into_iter().map(|(name, _)| name).collect()))
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
    use serde_json::json;

    use super::*;
    use crate::create::more::masked;

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
            network: "only".to_owned(),
            network_rules: "*.example.org\n203.0.113.7".to_owned(),
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
    fn a_snapshot_takes_the_place_of_the_image() {
        let mut form = CreateForm {
            image: "debian:12".to_owned(),
            ..CreateForm::default()
        };
        let text = json!({"snapshotId": "s-1", "resourceLimits": {}});
        assert_eq!(fill(&mut form, &text.to_string()), Ok(Vec::new()));
        assert!(form.is_of_snapshot());
        assert_eq!(form.request().body, text);
        // Two sources are refused by the server, which has to get both.
        let both = json!({"image": {"uri": "a"}, "snapshotId": "s-1", "resourceLimits": {}});
        let further = fill(&mut form, &both.to_string()).unwrap();
        assert_eq!(further, ["snapshotId"]);
        assert!(!form.is_of_snapshot());
        assert_eq!(form.request().body, both);
        let blank = json!({"snapshotId": " ", "resourceLimits": {}});
        let why = fill(&mut form, &blank.to_string()).unwrap_err();
        assert!(why.ends_with(": snapshotId."), "{why}");
    }

    #[test]
    fn a_template_takes_the_place_of_image_command_and_limits() {
        let mut form = CreateForm::default();
        let text = json!({"templateId": "tpl-1", "timeout": 600});
        assert_eq!(fill(&mut form, &text.to_string()), Ok(Vec::new()));
        assert!(form.is_of_template());
        assert_eq!(form.request().body, text);
        let both = json!({"templateId": "tpl-1", "snapshotId": "s-1", "resourceLimits": {}});
        let further = fill(&mut form, &both.to_string()).unwrap();
        assert_eq!(further, ["templateId"]);
        assert!(form.is_of_snapshot());
        // The server refuses it, and the form cannot have it.
        let limited = json!({"templateId": "tpl-1", "entrypoint": ["a"]});
        let why = fill(&mut form, &limited.to_string()).unwrap_err();
        assert!(why.ends_with(": entrypoint."), "{why}");
    }

    #[test]
    fn what_has_no_field_is_kept_and_sent_as_it_is() {
        let text = json!({
            "image": {"uri": "a"}, "entrypoint": ["b"],
            "resourceLimits": {"cpu": 2, "gpu": "1"},
            "volumes": [{"name": "v", "mountPath": "/v", "host": {"path": "/x"}}],
            "networkPolicy": {"egress": [{"action": "deny", "target": "a.example"}]},
            "lifecycle": {"preStart": {"command": ["c"], "timeoutSeconds": 9}},
        });
        let mut form = CreateForm::default();
        fill(&mut form, &text.to_string()).unwrap();
        assert_eq!(form.lifetime, "manual");
        let body = form.request().body;
        assert_eq!(body["resourceLimits"], json!({"cpu": "2", "gpu": "1"}));
        assert_eq!(body["volumes"], text["volumes"]);
        assert_eq!(body["networkPolicy"], text["networkPolicy"]);
        assert_eq!(body["lifecycle"], text["lifecycle"]);
        assert_eq!(form.request().problems, []);
    }

    #[test]
    fn members_without_a_field_are_named() {
        let mut form = CreateForm::default();
        let text = json!({
            "image": {"uri": "a"}, "entrypoint": ["b"], "env": {}, "secureAccess": false,
            "platform": {"os": "linux"}, "resourceLimits": {"cpu": 2, "gpu": 1},
            "lifecycle": {"preStart": {"command": []}},
        });
        let mut further = fill(&mut form, &text.to_string()).unwrap();
        further.sort_unstable();
        assert_eq!(further, ["lifecycle", "platform", "resourceLimits"]);
        let body = form.request().body;
        assert_eq!(body["lifecycle"], text["lifecycle"]);
        assert_eq!(body["resourceLimits"], json!({"cpu": "2", "gpu": 1}));
        let plain = json!({"image": {"uri": "a"}, "entrypoint": ["b"]});
        assert_eq!(fill(&mut form, &plain.to_string()), Ok(Vec::new()));
    }

    #[test]
    fn what_would_change_in_the_form_is_named_and_changes_nothing() {
        for (text, place) in [
            (json!({"metadata": {"name": " web "}}), "metadata.name"),
            (json!({"metadata": {"name": ""}}), "metadata.name"),
            (json!({"image": {"uri": " a"}}), "image.uri"),
            (
                json!({"image": {"uri": "a", "auth": {"username": "", "password": "x"}}}),
                "image.auth.username",
            ),
            (
                json!({"image": {"uri": "a", "auth": {"password": PASSWORD}}}),
                "image.auth.password",
            ),
            (json!({"entrypoint": ["sh", "a\r\nb"]}), "entrypoint.1"),
            (
                json!({"lifecycle": {"preStart": {"command": ["a\r\nb"]}}}),
                "lifecycle.preStart.command.0",
            ),
            (
                json!({"resourceLimits": {"cpu": " "}}),
                "resourceLimits.cpu",
            ),
        ] {
            let mut form = CreateForm::default();
            let why = fill(&mut form, &text.to_string()).unwrap_err();
            assert!(why.ends_with(&format!(": {place}.")), "{text}: {why}");
            assert_eq!(form, CreateForm::default(), "{text}");
        }
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
}

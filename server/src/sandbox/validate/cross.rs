//! Rules over several members (contract: lifecycle §4.1, §A2). They look only at members that have
//! the right type; the schema reports the others.

use std::collections::HashSet;

use osb_protocol::{FieldError, error::Loc, execd::HOOKS_ENV};
use serde_json::{Map, Value};

/// All cross-field rules that the request breaks.
pub(super) fn check(body: &Value) -> Vec<FieldError> {
    let Value::Object(body) = body else {
        return Vec::new();
    };
    let mut wrong = Vec::new();
    if body.get("env").and_then(|env| env.get(HOOKS_ENV)).is_some() {
        wrong.push(error(["env", HOOKS_ENV], "is reserved: use lifecycle"));
    }
    lifecycle(body, &mut wrong);
    volumes(body, &mut wrong);
    if text(body, "templateId").is_some() {
        template_mode(body, &mut wrong);
    } else if extension(body, "poolRef").is_some() {
        pool_mode(body, &mut wrong);
    } else {
        image_mode(body, &mut wrong);
    }
    wrong
}

fn error<const N: usize>(path: [&str; N], rule: &str) -> FieldError {
    FieldError::body("value_error", path, rule)
}

fn missing(field: &str, rule: &str) -> FieldError {
    FieldError::body("missing", [field], rule)
}

/// A string member that is not blank.
fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    body.get(name)?
        .as_str()
        .filter(|text| !text.trim().is_empty())
}

fn extension<'a>(body: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    text(body.get("extensions")?.as_object()?, name)
}

fn template_mode(body: &Map<String, Value>, wrong: &mut Vec<FieldError>) {
    if !body.contains_key("timeout") {
        wrong.push(missing("timeout", "is required with templateId"));
    }
    let forbidden = [
        "image",
        "entrypoint",
        "env",
        "resourceLimits",
        "resourceRequests",
        "volumes",
        "platform",
        "credentialProxy",
        "lifecycle",
    ];
    let present = forbidden
        .into_iter()
        .filter(|name| body.contains_key(*name));
    let snapshot = text(body, "snapshotId").map(|_| "snapshotId");
    let secure = (body.get("secureAccess") == Some(&Value::Bool(true))).then_some("secureAccess");
    for name in present.chain(snapshot).chain(secure) {
        wrong.push(error([name], "must not be given with templateId"));
    }
}

fn pool_mode(body: &Map<String, Value>, wrong: &mut Vec<FieldError>) {
    if text(body, "snapshotId").is_some() {
        wrong.push(error(
            ["snapshotId"],
            "must not be given with extensions.poolRef",
        ));
    }
    if body.contains_key("lifecycle") {
        wrong.push(error(
            ["lifecycle"],
            "must not be given with extensions.poolRef",
        ));
    }
}

fn image_mode(body: &Map<String, Value>, wrong: &mut Vec<FieldError>) {
    let image = body.get("image").and_then(Value::as_object);
    // An image of the wrong type, or without uri, is the schema's to report.
    let uri = image.and_then(|image| image.get("uri"));
    let image_is_wrong = body.contains_key("image") && !uri.is_some_and(Value::is_string);
    let has_image = image.and_then(|image| text(image, "uri")).is_some();
    let has_snapshot = text(body, "snapshotId").is_some();
    if has_image && has_snapshot {
        wrong.push(error(
            ["image"],
            "must not be given together with snapshotId",
        ));
    }
    if !has_image && !has_snapshot && !image_is_wrong {
        wrong.push(missing(
            "image",
            "one of image.uri and snapshotId is required",
        ));
    }
    if has_image && !body.contains_key("entrypoint") {
        wrong.push(missing("entrypoint", "is required with image"));
    }
    if !body.contains_key("resourceLimits") {
        wrong.push(missing("resourceLimits", "is required; {} means no limits"));
    }
    let proxy = body
        .get("credentialProxy")
        .and_then(|proxy| proxy.get("enabled"));
    if proxy == Some(&Value::Bool(true)) && !body.contains_key("networkPolicy") {
        wrong.push(error(["credentialProxy"], "needs networkPolicy"));
    }
}

fn volumes(body: &Map<String, Value>, wrong: &mut Vec<FieldError>) {
    let volumes = body
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (index, volume) in volumes.enumerate() {
        let Value::Object(volume) = volume else {
            continue;
        };
        let kinds = ["host", "pvc", "ossfs"]
            .iter()
            .filter(|kind| volume.contains_key(**kind));
        if kinds.count() != 1 {
            let path = [Loc::from("volumes"), Loc::Index(index)];
            let rule = "must have exactly one of host, pvc and ossfs";
            wrong.push(FieldError::body("value_error", path, rule));
        }
    }
}

fn lifecycle(body: &Map<String, Value>, wrong: &mut Vec<FieldError>) {
    let Some(lifecycle) = body.get("lifecycle") else {
        return;
    };
    let blank = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .is_some_and(|text| text.trim().is_empty())
    };
    // execd refuses such a command, and its sandbox ends.
    let command_rule = |hook: &Value| {
        let words = hook.get("command").and_then(Value::as_array)?;
        if blank(words.first()) {
            return Some("must not begin with a blank");
        }
        let mut words = words.iter().filter_map(Value::as_str);
        let has_nul = words.any(|word| word.contains('\0'));
        has_nul.then_some("must not contain NUL characters")
    };
    if let Some(rule) = lifecycle.get("preStart").and_then(command_rule) {
        wrong.push(error(["lifecycle", "preStart", "command"], rule));
    }
    let mut names = HashSet::new();
    let hooks = lifecycle
        .get("periodic")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (index, hook) in hooks.enumerate() {
        let at = |name: &str| {
            [
                Loc::from("lifecycle"),
                Loc::from("periodic"),
                Loc::Index(index),
                Loc::from(name),
            ]
        };
        for name in ["name", "schedule"] {
            if blank(hook.get(name)) {
                wrong.push(FieldError::body(
                    "value_error",
                    at(name),
                    "must not be blank",
                ));
            }
        }
        if let Some(rule) = command_rule(hook) {
            wrong.push(FieldError::body("value_error", at("command"), rule));
        }
        let name = hook.get("name").and_then(Value::as_str).map(str::trim);
        if name.is_some_and(|name| !names.insert(name.to_owned())) {
            wrong.push(FieldError::body(
                "value_error",
                at("name"),
                "must be unique",
            ));
        }
    }
}

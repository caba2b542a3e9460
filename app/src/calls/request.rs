//! A create request as code, ready to copy.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::language::{
    Language, Target, curl, pretty, python_literal, script_literal, script_request, shell_word,
};

/// A create request in a language.
pub(crate) fn create(language: Language, target: &Target, body: &Value) -> String {
    match language {
        Language::Curl => curl(target, "POST", "/sandboxes", Some(body)),
        Language::Osb => osb(target, body),
        Language::Python => python(target, body),
        Language::TypeScript => typescript(target, body),
    }
}

/// The command line client reads the key from the same variable as the `curl` command.
fn osb(target: &Target, body: &Value) -> String {
    let mut command = format!("{} sandbox create", target.osb());
    // Without an option for a limit, the client sets limits of its own.
    let has_no_limit = body["resourceLimits"]
        .as_object()
        .is_none_or(|it| it.is_empty());
    // With a template, it sets none.
    if (has_no_limit && template(body).is_none()) || !has_options(body) {
        let mut request = body.clone();
        if let Some(members) = request.as_object_mut() {
            // Without it, the client sets a time of its own.
            members.entry("timeout").or_insert(Value::Null);
        }
        let request = shell_word(&pretty(&request));
        return format!("printf %s {request} > sandbox.json\n{command} --file sandbox.json");
    }
    let mut option = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = write!(command, " \\\n  --{name}={}", shell_word(value));
    };
    if let Some(image) = body.pointer("/image/uri").and_then(Value::as_str) {
        option("image", image);
    }
    if let Some(snapshot) = snapshot(body) {
        option("snapshot-id", snapshot);
    }
    if let Some(template) = template(body) {
        option("template", template);
    }
    for (name, member) in [
        ("image-auth-username", "/image/auth/username"),
        ("image-auth-password", "/image/auth/password"),
    ] {
        if let Some(value) = body.pointer(member).and_then(Value::as_str) {
            option(name, value);
        }
    }
    match body.get("timeout") {
        Some(seconds) => option("timeout", &seconds.to_string()),
        None => option("timeout", "none"),
    }
    for (name, member) in [
        ("resource", "resourceLimits"),
        ("env", "env"),
        ("metadata", "metadata"),
        ("extension", "extensions"),
    ] {
        for (key, value) in body[member].as_object().into_iter().flatten() {
            option(
                name,
                &format!("{key}={}", value.as_str().unwrap_or_default()),
            );
        }
    }
    for word in body["entrypoint"].as_array().into_iter().flatten() {
        option("entrypoint", word.as_str().unwrap_or_default());
    }
    command
}

/// Whether the command line client has an option for every member of a request.
fn has_options(body: &Value) -> bool {
    const MEMBERS: [&str; 9] = [
        "image",
        "snapshotId",
        "templateId",
        "timeout",
        "resourceLimits",
        "env",
        "metadata",
        "extensions",
        "entrypoint",
    ];
    let members = body.as_object().into_iter().flatten();
    // The client has an option for one source.
    let is_one_source = (body.get("snapshotId").is_none() || snapshot(body).is_some())
        && (body.get("templateId").is_none() || template(body).is_some());
    is_one_source
        && members.into_iter().all(|(name, value)| {
            let texts = value.as_object().into_iter().flatten();
            let is_texts = name == "image" || texts.into_iter().all(|(_, value)| value.is_string());
            MEMBERS.contains(&name.as_str()) && is_texts
        })
}

/// Members that the code for the SDKs lacks, as a comment. They have classes of their own there.
fn lacking(body: &Value, comment: &str) -> String {
    let has_policy = policy(body).is_some();
    let has_snapshot = snapshot(body).is_some();
    let has_template = template(body).is_some();
    let known = |name: &str| {
        let arguments = ARGUMENTS.iter().any(|(_, member)| *member == name);
        arguments
            || ["image", "timeout", "secureAccess"].contains(&name)
            || (has_snapshot && name == "snapshotId")
            || (has_template && name == "templateId")
            || (has_policy && name == "networkPolicy")
    };
    let members = body.as_object().into_iter().flatten();
    let names = members.map(|(name, _)| name.as_str());
    let names = names.filter(|name| !known(name)).map(in_comment);
    let names: Vec<_> = names.collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("{comment} Not in this code: {}.\n", names.join(", ")),
    }
}

/// A member's name as a part of a comment. It is whatever was typed, and must neither end the comment,
/// which would make code of the rest, nor mean something in it, as `coding:` does to Python: only what
/// names are made of stays as it is.
fn in_comment(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match is_plain(c) {
            true => text.push(c),
            false => text.extend(c.escape_unicode()),
        }
    }
    text
}

/// Members of a request, with their names in the SDKs.
const ARGUMENTS: [(&str, &str); 5] = [
    ("entrypoint", "entrypoint"),
    ("resource", "resourceLimits"),
    ("env", "env"),
    ("metadata", "metadata"),
    ("extensions", "extensions"),
];

/// The official Python SDK. Its context manager closes connections only, so the program deletes the
/// sandbox itself, in every case.
fn python(target: &Target, body: &Value) -> String {
    let protocol = match target.is_https() {
        true => "\n    protocol=\"https\",",
        false => "",
    };
    let policy = policy(body);
    let mut models = Vec::new();
    if policy.is_some() {
        models.extend(["NetworkPolicy", "NetworkRule"]);
    }
    let template = template(body);
    let source = match (snapshot(body), body.pointer("/image/auth")) {
        _ if template.is_some() => python_literal(&json!(template)),
        (Some(snapshot), _) => format!("snapshot_id={}", python_literal(&Value::from(snapshot))),
        (None, Some(auth)) => {
            models.extend(["SandboxImageAuth", "SandboxImageSpec"]);
            format!(
                "SandboxImageSpec({}, auth=SandboxImageAuth(username={}, password={}))",
                python_literal(&image(body)),
                python_literal(&auth["username"]),
                python_literal(&auth["password"]),
            )
        }
        (None, None) => python_literal(&image(body)),
    };
    let import = match models.is_empty() {
        true => String::new(),
        false => format!(
            "from opensandbox.models.sandboxes import {}\n",
            models.join(", ")
        ),
    };
    let create = match template {
        Some(_) => "create_from_template",
        None => "create",
    };
    let mut code = lacking(body, "#");
    let _ = write!(
        code,
        "import asyncio, os\n\
         from datetime import timedelta\n\
         from opensandbox import Sandbox\n\
         from opensandbox.config import ConnectionConfig\n{import}\n\
         config = ConnectionConfig(\n    \
             domain={},{protocol}\n    api_key=os.environ[\"OPEN_SANDBOX_API_KEY\"],\n)\n\n\n\
         async def main():\n    \
             sandbox = await Sandbox.{create}(\n        {},\n        connection_config=config,\n",
        python_literal(&Value::from(target.host())),
        source
    );
    let timeout = match body.get("timeout") {
        Some(seconds) => format!("timedelta(seconds={seconds})"),
        None => "None".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(code, "        timeout={timeout},");
    for (argument, member) in ARGUMENTS {
        if let Some(value) = body.get(member) {
            let _ = writeln!(code, "        {argument}={},", python_literal(value));
        }
    }
    if body["secureAccess"] == true {
        code.push_str("        secure_access=True,\n");
    }
    if let Some(Policy { default, rules }) = policy {
        let default = python_literal(&Value::from(default));
        let _ = writeln!(
            code,
            "        network_policy=NetworkPolicy(\n            default_action={default},\n            egress=["
        );
        for (action, target) in rules {
            let (action, target) = (Value::from(action), Value::from(target));
            let _ = writeln!(
                code,
                "                NetworkRule(action={}, target={}),",
                python_literal(&action),
                python_literal(&target)
            );
        }
        code.push_str("            ],\n        ),\n");
    }
    code.push_str(
        "    )\n    async with sandbox:\n        try:\n            \
             run = await sandbox.commands.run(\"echo hello\")\n            \
             print(run.logs.stdout[0].text)\n        finally:\n            \
             await sandbox.kill()\n\n\nasyncio.run(main())",
    );
    code
}

/// The official TypeScript SDK, which JavaScript uses as well. It has no templates, but can use a sandbox
/// from one.
fn typescript(target: &Target, body: &Value) -> String {
    if template(body).is_some() {
        return typescript_from_template(target, body);
    }
    let protocol = match target.is_https() {
        true => "\n    protocol: \"https\",",
        false => "",
    };
    let (argument, source) = match (snapshot(body), body.pointer("/image/auth")) {
        (Some(snapshot), _) => ("snapshotId", Value::from(snapshot)),
        (None, Some(auth)) => ("image", json!({ "uri": image(body), "auth": auth })),
        (None, None) => ("image", image(body)),
    };
    let mut code = lacking(body, "//");
    let _ = write!(
        code,
        "import {{ Sandbox }} from \"@alibaba-group/opensandbox\";\n\n\
         const sandbox = await Sandbox.create({{\n  \
             connectionConfig: {{\n    domain: {},{protocol}\n    \
                 apiKey: process.env.OPEN_SANDBOX_API_KEY,\n  }},\n  {argument}: {},\n",
        Value::from(target.host()),
        source
    );
    let timeout = body.get("timeout").unwrap_or(&Value::Null);
    // Writing to a string cannot fail.
    let _ = writeln!(code, "  timeoutSeconds: {timeout},");
    for (argument, member) in ARGUMENTS {
        if let Some(value) = body.get(member) {
            let _ = writeln!(code, "  {argument}: {},", script_literal(value));
        }
    }
    if body["secureAccess"] == true {
        code.push_str("  secureAccess: true,\n");
    }
    if policy(body).is_some() {
        let policy = script_literal(&body["networkPolicy"]);
        let _ = writeln!(code, "  networkPolicy: {policy},");
    }
    code.push_str("});\n");
    code.push_str(USE);
    code
}

fn typescript_from_template(target: &Target, body: &Value) -> String {
    let protocol = match target.is_https() {
        true => "\n    protocol: \"https\",",
        false => "",
    };
    let request = script_request(target, "POST", "/sandboxes", Some(body));
    format!(
        "import {{ Sandbox }} from \"@alibaba-group/opensandbox\";\n\n{request}\n\
         const {{ id }} = await answer.json();\n\
         const sandbox = await Sandbox.connect({{\n  sandboxId: id,\n  \
             connectionConfig: {{\n    domain: {},{protocol}\n    \
                 apiKey: process.env.OPEN_SANDBOX_API_KEY,\n  }},\n}});\n{USE}",
        Value::from(target.host()),
    )
}

/// What the code does with a sandbox.
const USE: &str = "try {\n  const run = await sandbox.commands.run(\"echo hello\");\n  \
     console.log(run.logs.stdout[0].text);\n} finally {\n  \
     await sandbox.kill();\n  await sandbox.close();\n}";

/// A network policy that the classes of the SDKs can express.
struct Policy<'a> {
    default: &'a str,
    /// Actions and targets.
    rules: Vec<(&'a str, &'a str)>,
}

/// The network policy of a request; `None` if it has none, or one that only JSON can express.
fn policy(body: &Value) -> Option<Policy<'_>> {
    let members = body.get("networkPolicy")?.as_object()?;
    let is_action = |action: &str| ["allow", "deny"].contains(&action);
    let (mut default, mut rules) = ("deny", Vec::new());
    for (name, value) in members {
        match name.as_str() {
            "defaultAction" => default = value.as_str().filter(|it| is_action(it))?,
            "egress" => {
                for rule in value.as_array()? {
                    let rule = rule.as_object().filter(|rule| rule.len() == 2)?;
                    let action = rule.get("action")?.as_str().filter(|it| is_action(it))?;
                    rules.push((action, rule.get("target")?.as_str()?));
                }
            }
            _ => return None,
        }
    }
    Some(Policy { default, rules })
}

/// The snapshot of a request that names no image, which comes before it.
fn snapshot(body: &Value) -> Option<&str> {
    match body.get("image") {
        None => body.get("snapshotId")?.as_str(),
        Some(_) => None,
    }
}

/// The template of a request that names no other source.
fn template(body: &Value) -> Option<&str> {
    let others = ["image", "snapshotId"];
    let is_alone = others.iter().all(|name| body.get(*name).is_none());
    body.get("templateId")?.as_str().filter(|_| is_alone)
}

fn image(body: &Value) -> Value {
    let image = body.pointer("/image/uri").cloned();
    image.unwrap_or_else(|| Value::from(""))
}

#[cfg(test)]
mod tests;

//! A create request as code, ready to copy.

use std::fmt::Write as _;

use serde_json::Value;

use super::language::{Language, Target, pretty, python_literal, script_literal, shell_word};

/// A create request in a language.
pub(crate) fn create(language: Language, target: &Target, body: &Value) -> String {
    match language {
        Language::Curl => curl(target, body),
        Language::Osb => osb(target, body),
        Language::Python => python(target, body),
        Language::TypeScript => typescript(target, body),
    }
}

fn curl(target: &Target, body: &Value) -> String {
    format!(
        "curl -X POST {} \\\n  \
         -H \"OPEN-SANDBOX-API-KEY: $OPEN_SANDBOX_API_KEY\" \\\n  \
         -H 'Content-Type: application/json' \\\n  \
         -d {}",
        shell_word(&format!("{}/v1/sandboxes", target.origin)),
        shell_word(&pretty(body))
    )
}

/// The command line client reads the key from the same variable as the `curl` command.
fn osb(target: &Target, body: &Value) -> String {
    let mut command = format!("{} sandbox create", target.osb());
    // Without an option for a limit, the client sets limits of its own.
    let has_no_limit = body["resourceLimits"]
        .as_object()
        .is_none_or(|it| it.is_empty());
    if has_no_limit || !has_options(body) {
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
    const MEMBERS: [&str; 7] = [
        "image",
        "timeout",
        "resourceLimits",
        "env",
        "metadata",
        "extensions",
        "entrypoint",
    ];
    let members = body.as_object().into_iter().flatten();
    members.into_iter().all(|(name, value)| {
        let texts = value.as_object().into_iter().flatten();
        let is_texts = name == "image" || texts.into_iter().all(|(_, value)| value.is_string());
        MEMBERS.contains(&name.as_str()) && is_texts
    })
}

/// Members that the code for the SDKs lacks, as a comment. They have classes of their own there.
fn lacking(body: &Value, comment: &str) -> String {
    let known = |name: &str| {
        let arguments = ARGUMENTS.iter().any(|(_, member)| *member == name);
        arguments || ["image", "timeout", "secureAccess"].contains(&name)
    };
    let members = body.as_object().into_iter().flatten();
    let names = members.map(|(name, _)| name.as_str());
    let names: Vec<_> = names.filter(|name| !known(name)).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("{comment} Not in this code: {}.\n", names.join(", ")),
    }
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
    let auth = body.pointer("/image/auth");
    let (import, image) = match auth {
        Some(auth) => (
            "from opensandbox.models.sandboxes import SandboxImageAuth, SandboxImageSpec\n",
            format!(
                "SandboxImageSpec({}, auth=SandboxImageAuth(username={}, password={}))",
                python_literal(&image(body)),
                python_literal(&auth["username"]),
                python_literal(&auth["password"]),
            ),
        ),
        None => ("", python_literal(&image(body))),
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
             sandbox = await Sandbox.create(\n        {},\n        connection_config=config,\n",
        python_literal(&Value::from(target.host())),
        image
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
    code.push_str(
        "    )\n    async with sandbox:\n        try:\n            \
             run = await sandbox.commands.run(\"echo hello\")\n            \
             print(run.logs.stdout[0].text)\n        finally:\n            \
             await sandbox.kill()\n\n\nasyncio.run(main())",
    );
    code
}

/// The official TypeScript SDK, which JavaScript uses as well.
fn typescript(target: &Target, body: &Value) -> String {
    let protocol = match target.is_https() {
        true => "\n    protocol: \"https\",",
        false => "",
    };
    let image = match body.pointer("/image/auth") {
        Some(auth) => serde_json::json!({ "uri": image(body), "auth": auth }),
        None => image(body),
    };
    let mut code = lacking(body, "//");
    let _ = write!(
        code,
        "import {{ Sandbox }} from \"@alibaba-group/opensandbox\";\n\n\
         const sandbox = await Sandbox.create({{\n  \
             connectionConfig: {{\n    domain: {},{protocol}\n    \
                 apiKey: process.env.OPEN_SANDBOX_API_KEY,\n  }},\n  image: {},\n",
        Value::from(target.host()),
        image
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
    code.push_str(
        "});\ntry {\n  const run = await sandbox.commands.run(\"echo hello\");\n  \
             console.log(run.logs.stdout[0].text);\n} finally {\n  \
             await sandbox.kill();\n  await sandbox.close();\n}",
    );
    code
}

fn image(body: &Value) -> Value {
    let image = body.pointer("/image/uri").cloned();
    image.unwrap_or_else(|| Value::from(""))
}

#[cfg(test)]
mod tests;

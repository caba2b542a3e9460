//! The create request as code, ready to copy.

use std::fmt::Write as _;

use serde_json::Value;

/// The server that the code is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Scheme, host and port.
    pub(super) origin: String,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            origin: "http://127.0.0.1:8080".to_owned(),
        }
    }
}

impl Target {
    fn host(&self) -> &str {
        match self.origin.split_once("://") {
            Some((_, host)) => host,
            None => &self.origin,
        }
    }

    fn is_https(&self) -> bool {
        self.origin.starts_with("https://")
    }
}

/// A language of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// `curl`, for any shell.
    Curl,
    /// The command line client.
    Osb,
    /// The Python SDK.
    Python,
    /// The TypeScript SDK.
    TypeScript,
}

impl Language {
    pub(super) const ALL: [Self; 4] = [Self::Curl, Self::Osb, Self::Python, Self::TypeScript];

    /// Its name.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Osb => "osb",
            Self::Python => "Python",
            Self::TypeScript => "TypeScript",
        }
    }

    /// Its name in ids.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Osb => "osb",
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }

    /// A create request in this language. The API key is a variable of the environment: it is never in
    /// the page.
    pub(super) fn code(self, target: &Target, body: &Value) -> String {
        match self {
            Self::Curl => curl(target, body),
            Self::Osb => osb(target, body),
            Self::Python => python(target, body),
            Self::TypeScript => typescript(target, body),
        }
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
    let mut command = format!("osb --domain {}", shell_word(target.host()));
    if target.is_https() {
        command.push_str(" --protocol https");
    }
    command.push_str(" sandbox create");
    // Without an option for a limit, the client sets limits of its own.
    if body["resourceLimits"]
        .as_object()
        .is_none_or(|it| it.is_empty())
    {
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
    match body.get("timeout") {
        Some(seconds) => option("timeout", &seconds.to_string()),
        None => option("timeout", "none"),
    }
    for (name, member) in [
        ("resource", "resourceLimits"),
        ("env", "env"),
        ("metadata", "metadata"),
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

/// Members of a request, with their names in the SDKs.
const ARGUMENTS: [(&str, &str); 4] = [
    ("entrypoint", "entrypoint"),
    ("resource", "resourceLimits"),
    ("env", "env"),
    ("metadata", "metadata"),
];

/// The official Python SDK. Its context manager closes connections only, so the program deletes the
/// sandbox itself, in every case.
fn python(target: &Target, body: &Value) -> String {
    let protocol = match target.is_https() {
        true => "\n    protocol=\"https\",",
        false => "",
    };
    let mut code = format!(
        "import asyncio, os\n\
         from datetime import timedelta\n\
         from opensandbox import Sandbox\n\
         from opensandbox.config import ConnectionConfig\n\n\
         config = ConnectionConfig(\n    \
             domain={},{protocol}\n    api_key=os.environ[\"OPEN_SANDBOX_API_KEY\"],\n)\n\n\n\
         async def main():\n    \
             sandbox = await Sandbox.create(\n        {},\n        connection_config=config,\n",
        python_literal(&Value::from(target.host())),
        python_literal(&image(body))
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
    let mut code = format!(
        "import {{ Sandbox }} from \"@alibaba-group/opensandbox\";\n\n\
         const sandbox = await Sandbox.create({{\n  \
             connectionConfig: {{\n    domain: {},{protocol}\n    \
                 apiKey: process.env.OPEN_SANDBOX_API_KEY,\n  }},\n  image: {},\n",
        Value::from(target.host()),
        image(body)
    );
    let timeout = body.get("timeout").unwrap_or(&Value::Null);
    // Writing to a string cannot fail.
    let _ = writeln!(code, "  timeoutSeconds: {timeout},");
    for (argument, member) in ARGUMENTS {
        if let Some(value) = body.get(member) {
            let _ = writeln!(code, "  {argument}: {},", script_literal(value));
        }
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

fn pretty(body: &Value) -> String {
    serde_json::to_string_pretty(body).unwrap_or_default()
}

/// A word of a shell's command line.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// A JSON value of strings, lists and maps as Python writes it: the same, but for constants.
fn python_literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => literal(other, python_literal, |name| Value::from(name).to_string()),
    }
}

/// A JSON value as JavaScript writes it: the same, but for one name that would not be a member.
fn script_literal(value: &Value) -> String {
    literal(value, script_literal, |name| match name {
        "__proto__" => "[\"__proto__\"]".to_owned(),
        name => Value::from(name).to_string(),
    })
}

fn literal(value: &Value, inner: fn(&Value) -> String, name: fn(&str) -> String) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(inner).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|(key, value)| format!("{}: {}", name(key), inner(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests;

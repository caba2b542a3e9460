//! The languages of the code, and how each writes values. The API key is a variable of the environment:
//! it is never in a page.

use serde_json::Value;

/// The server that the code is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Scheme, host and port.
    pub(crate) origin: String,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            origin: "http://127.0.0.1:8080".to_owned(),
        }
    }
}

impl Target {
    /// Host and port.
    pub(super) fn host(&self) -> &str {
        match self.origin.split_once("://") {
            Some((_, host)) => host,
            None => &self.origin,
        }
    }

    pub(super) fn is_https(&self) -> bool {
        self.origin.starts_with("https://")
    }

    /// The command line client, with the options that name this server.
    pub(super) fn osb(&self) -> String {
        let protocol = match self.is_https() {
            true => " --protocol https",
            false => "",
        };
        format!("osb --domain {}{protocol}", shell_word(self.host()))
    }
}

/// A language of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
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
    pub(crate) const ALL: [Self; 4] = [Self::Curl, Self::Osb, Self::Python, Self::TypeScript];

    /// Its name.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Osb => "osb",
            Self::Python => "Python",
            Self::TypeScript => "TypeScript",
        }
    }

    /// Its name in ids.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Osb => "osb",
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }
}

/// JSON in lines.
pub(super) fn pretty(body: &Value) -> String {
    serde_json::to_string_pretty(body).unwrap_or_default()
}

/// A request as a `curl` command, whose body is JSON in lines if it has one.
pub(super) fn curl(target: &Target, method: &str, path: &str, body: Option<&Value>) -> String {
    let url = shell_word(&format!("{}/v1{path}", target.origin));
    let body = body.map(|body| {
        format!(
            " \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
            shell_word(&pretty(body))
        )
    });
    format!(
        "curl -X {method} {url} \\\n  -H \"OPEN-SANDBOX-API-KEY: $OPEN_SANDBOX_API_KEY\"{}",
        body.unwrap_or_default()
    )
}

/// A call of the manager of the Python SDK.
pub(super) fn python_manager(target: &Target, call: &str) -> String {
    let protocol = match target.is_https() {
        true => "\n    protocol=\"https\",",
        false => "",
    };
    format!(
        "import asyncio, os\n\
         from opensandbox import SandboxManager\n\
         from opensandbox.config import ConnectionConfig\n\n\
         config = ConnectionConfig(\n    \
             domain={},{protocol}\n    api_key=os.environ[\"OPEN_SANDBOX_API_KEY\"],\n)\n\n\n\
         async def main():\n    \
             async with await SandboxManager.create(config) as manager:\n        \
                 {call}\n\n\nasyncio.run(main())",
        python_literal(&Value::from(target.host())),
    )
}

/// A request of the API for JavaScript, where the TypeScript SDK has no call. `answer` is a constant.
pub(super) fn script_request(
    target: &Target,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> String {
    let url = Value::from(format!("{}/v1{path}", target.origin));
    let (kind, body) = match body {
        Some(body) => (
            ", \"Content-Type\": \"application/json\"",
            format!("\n  body: JSON.stringify({}),", script_literal(body)),
        ),
        None => ("", String::new()),
    };
    format!(
        "const answer = await fetch({url}, {{\n  method: \"{method}\",\n  \
             headers: {{ \"OPEN-SANDBOX-API-KEY\": process.env.OPEN_SANDBOX_API_KEY{kind} }},{body}\n}});\n\
         if (!answer.ok) throw new Error(await answer.text());"
    )
}

/// A word of a shell's command line.
pub(super) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// A JSON value of strings, lists and maps as Python writes it: the same, but for constants.
pub(super) fn python_literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => literal(other, python_literal, |name| Value::from(name).to_string()),
    }
}

/// A JSON value as JavaScript writes it: the same, but for one name that would not be a member.
pub(super) fn script_literal(value: &Value) -> String {
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

//! The create request as code, ready to copy.

use std::fmt::Write as _;

use serde_json::Value;

/// The request as a `curl` command. The key is a shell variable: it is never in the page.
#[must_use]
pub(super) fn curl(origin: &str, body: &Value) -> String {
    let body = serde_json::to_string_pretty(body).unwrap_or_default();
    format!(
        "curl -X POST {origin}/v1/sandboxes \\\n  \
         -H \"OPEN-SANDBOX-API-KEY: $OPEN_SANDBOX_API_KEY\" \\\n  \
         -H 'Content-Type: application/json' \\\n  \
         -d '{}'",
        body.replace('\'', r"'\''")
    )
}

/// The request through the official Python SDK. Its context manager closes connections only, so the
/// program deletes the sandbox itself, in every case.
#[must_use]
pub(super) fn python(host: &str, body: &Value) -> String {
    let image = body.pointer("/image/uri").cloned();
    let image = image.unwrap_or_else(|| Value::from(""));
    let mut code = format!(
        "import asyncio, os\n\
         from datetime import timedelta\n\
         from opensandbox import Sandbox\n\
         from opensandbox.config import ConnectionConfig\n\n\
         config = ConnectionConfig(\n    \
             domain={}, api_key=os.environ[\"OPEN_SANDBOX_API_KEY\"]\n)\n\n\n\
         async def main():\n    \
             sandbox = await Sandbox.create(\n        {},\n        connection_config=config,\n",
        literal(&Value::from(host)),
        literal(&image)
    );
    let timeout = match body.get("timeout") {
        Some(seconds) => format!("timedelta(seconds={seconds})"),
        None => "None".to_owned(),
    };
    let arguments = [("entrypoint", "entrypoint"), ("resource", "resourceLimits")];
    let arguments = arguments
        .into_iter()
        .chain([("env", "env"), ("metadata", "metadata")]);
    // Writing to a string cannot fail.
    let _ = writeln!(code, "        timeout={timeout},");
    for (argument, member) in arguments {
        if let Some(value) = body.get(member) {
            let _ = writeln!(code, "        {argument}={},", literal(value));
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

/// A JSON value of strings, lists and maps as Python writes it: the same, but for `null`.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), literal(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quote_cannot_leave_the_shell_string() {
        let code = curl("http://h", &json!({ "env": { "A": "it's; rm -rf" } }));
        assert!(code.contains(r"it'\''s; rm -rf"), "{code}");
    }

    #[test]
    fn python_shows_what_is_set() {
        let body = json!({
            "image": { "uri": "debian:12" }, "entrypoint": ["sh", "-c", "say \"hi\""],
            "env": { "A": "1" }, "resourceLimits": { "cpu": "1" },
        });
        let code = python("127.0.0.1:8080", &body);
        for part in [
            r#"domain="127.0.0.1:8080""#,
            r#"        "debian:12","#,
            r#"entrypoint=["sh", "-c", "say \"hi\""],"#,
            r#"env={"A": "1"},"#,
            r#"resource={"cpu": "1"},"#,
            "timeout=None,",
        ] {
            assert!(code.contains(part), "{part} in {code}");
        }
        assert!(!code.contains("metadata"), "{code}");
    }

    #[test]
    fn python_removes_its_sandbox_in_the_end() {
        let code = python("h", &json!({ "image": { "uri": "debian:12" } }));
        let end = "        finally:\n            await sandbox.kill()\n";
        let (before, after) = code.split_once(end).unwrap_or_else(|| panic!("{code}"));
        assert!(before.contains("        try:\n            run ="), "{code}");
        assert_eq!(after, "\n\nasyncio.run(main())");
    }
}

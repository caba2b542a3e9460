//! The acts on a sandbox as code.

use osb_protocol::{Feature, SandboxId};
use serde_json::json;

use super::language::{Language, Target, python_literal, shell_word};

/// A call about one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Reads it.
    Show,
    /// Moves the expiry to half an hour from now.
    Renew,
    /// Freezes it.
    Pause,
    /// Thaws it.
    Resume,
    /// Sets a label and deletes another.
    Labels,
    /// Asks where a port is reached.
    Endpoint,
    /// Takes a snapshot of it.
    Snapshot,
    /// Deletes it.
    Delete,
}

/// Time of a renewal, in minutes.
const RENEWAL: u32 = 30;
/// A port, as an example.
const PORT: u16 = 8080;
/// Name of a snapshot, as an example.
const SNAPSHOT: &str = "before-update";

impl Call {
    pub(crate) const ALL: [Self; 8] = [
        Self::Show,
        Self::Renew,
        Self::Pause,
        Self::Resume,
        Self::Labels,
        Self::Endpoint,
        Self::Snapshot,
        Self::Delete,
    ];

    /// What it does.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Show => "Show",
            Self::Renew => "Extend",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Labels => "Change labels",
            Self::Endpoint => "Find a port",
            Self::Snapshot => "Take a snapshot",
            Self::Delete => "Delete",
        }
    }

    /// The feature of the runtime that it needs; `None` if every runtime has it.
    pub(crate) fn feature(self) -> Option<Feature> {
        match self {
            Self::Pause | Self::Resume => Some(Feature::Pause),
            Self::Snapshot => Some(Feature::Snapshots),
            Self::Show | Self::Renew | Self::Labels | Self::Endpoint | Self::Delete => None,
        }
    }

    /// The call in a language.
    pub(crate) fn code(self, language: Language, target: &Target, id: &SandboxId) -> String {
        match language {
            Language::Curl => self.curl(target, id),
            Language::Osb => self.osb(target, id),
            Language::Python => self.python(target, id),
            Language::TypeScript => self.typescript(target, id),
        }
    }

    fn curl(self, target: &Target, id: &SandboxId) -> String {
        let (method, path) = match self {
            Self::Show => ("GET", String::new()),
            Self::Renew => ("POST", "/renew-expiration".to_owned()),
            Self::Pause => ("POST", "/pause".to_owned()),
            Self::Resume => ("POST", "/resume".to_owned()),
            Self::Labels => ("PATCH", "/metadata".to_owned()),
            Self::Endpoint => ("GET", format!("/endpoints/{PORT}")),
            Self::Snapshot => ("POST", "/snapshots".to_owned()),
            Self::Delete => ("DELETE", String::new()),
        };
        let body = match self {
            Self::Renew => format!(
                " \\\n  -H 'Content-Type: application/json' \\\n  \
                 -d \"{{\\\"expiresAt\\\": \\\"$(date -u -d '+{RENEWAL} min' +%FT%TZ)\\\"}}\""
            ),
            Self::Labels => format!(
                " \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
                shell_word(&patch().to_string())
            ),
            Self::Snapshot => format!(
                " \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
                shell_word(&json!({ "name": SNAPSHOT }).to_string())
            ),
            _ => String::new(),
        };
        let url = format!("{}/v1/sandboxes/{id}{path}", target.origin);
        format!(
            "curl -X {method} {} \\\n  -H \"OPEN-SANDBOX-API-KEY: $OPEN_SANDBOX_API_KEY\"{body}",
            shell_word(&url)
        )
    }

    fn osb(self, target: &Target, id: &SandboxId) -> String {
        let id = shell_word(id.as_str());
        let command = match self {
            Self::Show => format!("get {id}"),
            Self::Renew => format!("renew {id} --timeout {RENEWAL}m"),
            Self::Pause => format!("pause {id}"),
            Self::Resume => format!("resume {id}"),
            Self::Labels => {
                return "# osb has no command for this: use curl or an SDK.".to_owned();
            }
            Self::Endpoint => format!("endpoint {id} --port {PORT}"),
            Self::Snapshot => {
                return format!("{} snapshot create {id} --name {SNAPSHOT}", target.osb());
            }
            Self::Delete => format!("kill {id}"),
        };
        format!("{} sandbox {command}", target.osb())
    }

    fn python(self, target: &Target, id: &SandboxId) -> String {
        let id = python_literal(&json!(id.as_str()));
        let protocol = match target.is_https() {
            true => "\n    protocol=\"https\",",
            false => "",
        };
        let (class, open, call) = match self {
            Self::Show => manager(format!("print(await manager.get_sandbox_info({id}))")),
            Self::Renew => manager(format!(
                "await manager.renew_sandbox({id}, timedelta(minutes={RENEWAL}))"
            )),
            Self::Pause => manager(format!("await manager.pause_sandbox({id})")),
            Self::Resume => manager(format!("await manager.resume_sandbox({id})")),
            Self::Labels => manager(format!(
                "await manager.patch_sandbox_metadata({id}, {})",
                python_literal(&patch())
            )),
            Self::Snapshot => manager(format!(
                "print(await manager.create_snapshot({id}, name=\"{SNAPSHOT}\"))"
            )),
            Self::Delete => manager(format!("await manager.kill_sandbox({id})")),
            Self::Endpoint => (
                "Sandbox",
                format!("await Sandbox.connect({id}, connection_config=config) as sandbox"),
                format!("print(await sandbox.get_endpoint({PORT}))"),
            ),
        };
        let timedelta = match self {
            Self::Renew => "from datetime import timedelta\n",
            _ => "",
        };
        format!(
            "import asyncio, os\n{timedelta}\
             from opensandbox import {class}\n\
             from opensandbox.config import ConnectionConfig\n\n\
             config = ConnectionConfig(\n    \
                 domain={},{protocol}\n    api_key=os.environ[\"OPEN_SANDBOX_API_KEY\"],\n)\n\n\n\
             async def main():\n    async with {open}:\n        {call}\n\n\nasyncio.run(main())",
            python_literal(&json!(target.host())),
        )
    }

    fn typescript(self, target: &Target, id: &SandboxId) -> String {
        let id = json!(id.as_str());
        let protocol = match target.is_https() {
            true => "\n  protocol: \"https\",",
            false => "",
        };
        let call = match self {
            Self::Show => format!("console.log(await manager.getSandboxInfo({id}));"),
            Self::Renew => format!("await manager.renewSandbox({id}, {});", RENEWAL * 60),
            Self::Pause => format!("await manager.pauseSandbox({id});"),
            Self::Resume => format!("await manager.resumeSandbox({id});"),
            Self::Labels => format!("await manager.patchSandboxMetadata({id}, {});", patch()),
            Self::Snapshot => format!(
                "console.log(await manager.createSnapshot({id}, {{ name: \"{SNAPSHOT}\" }}));"
            ),
            Self::Delete => format!("await manager.killSandbox({id});"),
            Self::Endpoint => format!("console.log(await sandbox.getEndpoint({PORT}));"),
        };
        let (class, name, open) = match self {
            Self::Endpoint => (
                "Sandbox",
                "sandbox",
                format!("await Sandbox.connect({{ connectionConfig, sandboxId: {id} }})"),
            ),
            _ => (
                "SandboxManager",
                "manager",
                "SandboxManager.create({ connectionConfig })".to_owned(),
            ),
        };
        format!(
            "import {{ {class} }} from \"@alibaba-group/opensandbox\";\n\n\
             const connectionConfig = {{\n  domain: {},{protocol}\n  \
                 apiKey: process.env.OPEN_SANDBOX_API_KEY,\n}};\n\
             const {name} = {open};\n{call}\nawait {name}.close();",
            json!(target.host()),
        )
    }
}

/// Class, context and call of a program that manages sandboxes.
fn manager(call: String) -> (&'static str, String, String) {
    let open = "await SandboxManager.create(config) as manager".to_owned();
    ("SandboxManager", open, call)
}

/// A label that is set, and one that is deleted.
fn patch() -> serde_json::Value {
    json!({ "team": "search", "old-label": null })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use super::*;

    fn target() -> Target {
        Target {
            origin: "https://box.example:8443".to_owned(),
        }
    }

    /// What a program prints that reads this.
    fn output(program: &str, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new(program)
            .args(arguments)
            .env("OPEN_SANDBOX_API_KEY", "k")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("this test needs {program}: {error}"));
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {errors}\n{input}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_shell_runs_each_call() {
        let id = SandboxId::from("it's $(id)");
        for call in Call::ALL {
            let code = call.code(Language::Curl, &target(), &id);
            let script = format!("curl() {{ printf '%s\\0' \"$@\"; }}\n{code}");
            let words = output("bash", &["-s"], &script);
            let words: Vec<_> = words.split('\0').collect();
            assert!(words[2].starts_with("https://box.example:8443/v1/sandboxes/it's $(id)"));
            assert!(words.contains(&"OPEN-SANDBOX-API-KEY: k"), "{words:?}");
            let data = words.iter().position(|word| *word == "-d");
            let has_body = matches!(call, Call::Renew | Call::Labels | Call::Snapshot);
            assert_eq!(data.is_some(), has_body, "{call:?}");
            if let Some(data) = data {
                let body: serde_json::Value = serde_json::from_str(words[data + 1]).unwrap();
                assert!(body.is_object(), "{body}");
            }
            let code = call.code(Language::Osb, &target(), &id);
            let script = format!("osb() {{ printf '%s\\0' \"$@\"; }}\n{code}");
            let words = output("bash", &["-s"], &script);
            let has_command = call != Call::Labels;
            assert_eq!(
                words.contains("\0it's $(id)\0"),
                has_command,
                "{call:?}: {words:?}"
            );
        }
    }

    #[test]
    fn interpreters_read_each_call() {
        const STUB: &str = "\
const all = new Proxy({}, { get: (_, name) => name === 'then' ? undefined : async (...a) => console.log(name, JSON.stringify(a)) });
const SandboxManager = { create: () => all };
const Sandbox = { connect: async () => all };
";
        let id = SandboxId::from("it's \"x\"");
        for call in Call::ALL {
            let code = call.code(Language::Python, &target(), &id);
            output(
                "python3",
                &["-c", "import ast, sys; ast.parse(sys.stdin.read())"],
                &code,
            );
            assert!(code.contains(r#""it's \"x\"""#), "{code}");
            let code = call.code(Language::TypeScript, &target(), &id);
            let (import, code) = code.split_once('\n').unwrap();
            assert!(import.starts_with("import {"), "{import}");
            let program = format!("{STUB}{code}");
            let said = output("node", &["--input-type=module", "-"], &program);
            assert!(said.lines().last().unwrap().starts_with("close"), "{said}");
        }
    }
}

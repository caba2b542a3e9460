//! The acts on a snapshot as code.

use serde_json::json;

use super::language::{Language, Target, curl, python_literal, python_manager, shell_word};

/// A call about one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotCall {
    /// Reads it.
    Show,
    /// Deletes it.
    Delete,
}

impl SnapshotCall {
    pub(crate) const ALL: [Self; 2] = [Self::Show, Self::Delete];

    /// What it does.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Show => "Show",
            Self::Delete => "Delete",
        }
    }

    /// The call in a language.
    pub(crate) fn code(self, language: Language, target: &Target, id: &str) -> String {
        match language {
            Language::Curl => {
                let method = match self {
                    Self::Show => "GET",
                    Self::Delete => "DELETE",
                };
                curl(target, method, &format!("/snapshots/{id}"), None)
            }
            Language::Osb => {
                let command = match self {
                    Self::Show => "get",
                    Self::Delete => "delete",
                };
                format!("{} snapshot {command} {}", target.osb(), shell_word(id))
            }
            Language::Python => self.python(target, id),
            Language::TypeScript => self.typescript(target, id),
        }
    }

    fn python(self, target: &Target, id: &str) -> String {
        let id = python_literal(&json!(id));
        let call = match self {
            Self::Show => format!("print(await manager.get_snapshot({id}))"),
            Self::Delete => format!("await manager.delete_snapshot({id})"),
        };
        python_manager(target, &call)
    }

    fn typescript(self, target: &Target, id: &str) -> String {
        let id = json!(id);
        let protocol = match target.is_https() {
            true => "\n  protocol: \"https\",",
            false => "",
        };
        let call = match self {
            Self::Show => format!("console.log(await manager.getSnapshot({id}));"),
            Self::Delete => format!("await manager.deleteSnapshot({id});"),
        };
        format!(
            "import {{ SandboxManager }} from \"@alibaba-group/opensandbox\";\n\n\
             const connectionConfig = {{\n  domain: {},{protocol}\n  \
                 apiKey: process.env.OPEN_SANDBOX_API_KEY,\n}};\n\
             const manager = SandboxManager.create({{ connectionConfig }});\n\
             {call}\nawait manager.close();",
            json!(target.host()),
        )
    }
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
        for (call, method, command) in [
            (SnapshotCall::Show, "GET", "get"),
            (SnapshotCall::Delete, "DELETE", "delete"),
        ] {
            let code = call.code(Language::Curl, &target(), "it's $(id)");
            let script = format!("curl() {{ printf '%s\\0' \"$@\"; }}\n{code}");
            let words = output("bash", &["-s"], &script);
            let wanted =
                format!("-X\0{method}\0https://box.example:8443/v1/snapshots/it's $(id)\0");
            assert!(words.starts_with(&wanted), "{words:?}");
            let code = call.code(Language::Osb, &target(), "it's $(id)");
            let script = format!("osb() {{ printf '%s\\0' \"$@\"; }}\n{code}");
            let words = output("bash", &["-s"], &script);
            let wanted = format!("\0snapshot\0{command}\0it's $(id)\0");
            assert!(words.ends_with(&wanted), "{words:?}");
        }
    }

    #[test]
    fn interpreters_read_each_call() {
        const STUB: &str = "\
const all = new Proxy({}, { get: (_, name) => name === 'then' ? undefined : async (...a) => console.log(name, JSON.stringify(a)) });
const SandboxManager = { create: () => all };
";
        for (call, name) in [
            (SnapshotCall::Show, "getSnapshot"),
            (SnapshotCall::Delete, "deleteSnapshot"),
        ] {
            let code = call.code(Language::Python, &target(), "it's \"x\"");
            let parse = "import ast, sys; ast.parse(sys.stdin.read())";
            output("python3", &["-c", parse], &code);
            assert!(code.contains(r#"_snapshot("it's \"x\"")"#), "{code}");
            let code = call.code(Language::TypeScript, &target(), "it's \"x\"");
            let (import, code) = code.split_once('\n').unwrap();
            assert!(import.starts_with("import { SandboxManager }"), "{import}");
            let program = format!("{STUB}{code}");
            let said = output("node", &["--input-type=module", "-"], &program);
            let wanted = format!(r#"{name} ["it's \"x\""]"#);
            assert!(said.contains(&wanted), "{said}");
            assert!(said.lines().last().unwrap().starts_with("close"), "{said}");
        }
    }
}

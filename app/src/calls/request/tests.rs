//! The code is run by its interpreters, with the client replaced, so that hostile values show.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::json;

use super::*;

/// Values that mean something to a shell, to Python or to JavaScript.
const HOSTILE: [&str; 16] = [
    "",
    " ",
    "it's; rm -rf \"$HOME\" `id` $(id)",
    "-rf",
    "--help",
    "@/etc/passwd",
    "a\\b\\n\\u0041\\",
    "'''\"\"\"",
    "${x} #{x} %s {0} {{x}}",
    "</script><!--",
    "tab\tand\nnewline\r",
    "*?[a-z]!!~",
    "ä ✓ 🦀 \u{2028}\u{85}\u{feff}",
    "\u{1}\u{1b}[31m\u{7f}",
    "# no comment",
    "A=B=C",
];

fn target() -> Target {
    Target {
        origin: "https://box.example:8443".to_owned(),
    }
}

fn bodies() -> impl Iterator<Item = Value> {
    let hostile = HOSTILE.into_iter().map(|text| {
        json!({
            "image": {"uri": text}, "entrypoint": ["sh", text], "timeout": 90,
            "env": {"A": text, "__proto__": text}, "metadata": {"k": text},
            "resourceLimits": {"cpu": text},
        })
    });
    let small = [
        json!({"image": {"uri": "debian:12"}, "resourceLimits": {}}),
        json!({"image": {"uri": "debian:12"}, "resourceLimits": {"cpu": "1"}}),
    ];
    hostile.chain(small)
}

/// What a program prints that reads this.
fn output(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .env("OPEN_SANDBOX_API_KEY", "k")
        .current_dir(std::env::temp_dir())
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
    assert_eq!(errors, "", "{program}: {input}");
    String::from_utf8(output.stdout).unwrap()
}

/// Arguments that a shell passes to the program of a command.
fn arguments(program: &str, code: &str) -> Vec<String> {
    // Scripts are read whole before anything in them runs.
    let script = format!("{program}() {{ printf '%s\\0' \"$@\"; }}\nmain() {{\n{code}\n}}\nmain");
    let output = output("bash", &["-s"], &script);
    let mut words: Vec<String> = output.split('\0').map(str::to_owned).collect();
    assert_eq!(words.pop().as_deref(), Some(""), "{output:?}");
    words
}

#[test]
fn a_shell_passes_every_value_on_to_curl() {
    for body in bodies() {
        let words = arguments("curl", &create(Language::Curl, &target(), &body));
        assert_eq!(
            words[..3],
            ["-X", "POST", "https://box.example:8443/v1/sandboxes"]
        );
        assert!(
            words.contains(&"OPEN-SANDBOX-API-KEY: k".to_owned()),
            "{words:?}"
        );
        let sent: Value = serde_json::from_str(words.last().unwrap()).unwrap();
        assert_eq!(sent, body);
    }
}

#[test]
fn a_shell_passes_every_value_on_to_osb() {
    for body in bodies().filter(|body| body["resourceLimits"] != json!({})) {
        let words = arguments("osb", &osb(&target(), &body));
        let root = [
            "--domain",
            "box.example:8443",
            "--protocol",
            "https",
            "sandbox",
            "create",
        ];
        assert_eq!(words[..6], root);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut wanted = vec![
            format!("--image={}", text(&body["image"]["uri"])),
            match body.get("timeout") {
                Some(seconds) => format!("--timeout={seconds}"),
                None => "--timeout=none".to_owned(),
            },
            format!("--resource=cpu={}", text(&body["resourceLimits"]["cpu"])),
        ];
        for (option, member) in [("env", "env"), ("metadata", "metadata")] {
            for (key, value) in body[member].as_object().into_iter().flatten() {
                wanted.push(format!("--{option}={key}={}", text(value)));
            }
        }
        for word in body["entrypoint"].as_array().into_iter().flatten() {
            wanted.push(format!("--entrypoint={}", text(word)));
        }
        assert_eq!(words[6..], wanted);
    }
}

#[test]
fn osb_gets_a_request_without_limits_and_end_as_a_file() {
    let body = json!({"image": {"uri": "it's"}, "entrypoint": ["x"], "resourceLimits": {}});
    let code = osb(&target(), &body);
    let (file, command) = code.rsplit_once(" > sandbox.json\n").unwrap();
    assert!(
        command.ends_with("sandbox create --file sandbox.json"),
        "{code}"
    );
    let sent: Value = serde_json::from_str(&output("bash", &["-s"], file)).unwrap();
    let mut wanted = body;
    wanted["timeout"] = Value::Null;
    assert_eq!(sent, wanted);
}

#[test]
fn python_reads_every_value() {
    const READ: &str = "\
import ast, json, sys
tree = ast.parse(sys.stdin.buffer.read().decode())
calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
named = lambda call: getattr(call.func, 'attr', getattr(call.func, 'id', ''))
create, = [call for call in calls if named(call) == 'create']
config, = [call for call in calls if named(call) == 'ConnectionConfig']
found = {'image': ast.literal_eval(create.args[0])}
for word in create.keywords + config.keywords:
    if word.arg not in ('connection_config', 'api_key'):
        value = word.value
        if isinstance(value, ast.Call):
            value = value.keywords[0].value
        found[word.arg] = ast.literal_eval(value)
print(json.dumps(found))
";
    for body in bodies() {
        let found = output("python3", &["-c", READ], &python(&target(), &body));
        let mut found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["domain"], "box.example:8443");
        assert_eq!(found["protocol"], "https");
        assert_eq!(found["image"], body["image"]["uri"]);
        assert_eq!(found["timeout"].take(), body["timeout"]);
        for (argument, member) in ARGUMENTS {
            assert_eq!(found[argument], body[member], "{argument}");
        }
    }
}

#[test]
fn javascript_reads_every_value() {
    const CLIENT: &str = "\
const Sandbox = { async create(options) {
  console.log(JSON.stringify(options));
  const run = async () => ({ logs: { stdout: [{ text: '' }] } });
  return { commands: { run }, async kill() {}, async close() {} };
} };
";
    for body in bodies() {
        let code = typescript(&target(), &body);
        let (import, code) = code.split_once('\n').unwrap();
        assert!(import.starts_with("import { Sandbox } from"), "{import}");
        let program = format!("{CLIENT}{code}");
        let found = output("node", &["--input-type=module", "-"], &program);
        let found: Value = serde_json::from_str(found.lines().next().unwrap()).unwrap();
        let connection = json!({"domain": "box.example:8443", "protocol": "https", "apiKey": "k"});
        assert_eq!(found["connectionConfig"], connection);
        assert_eq!(found["image"], body["image"]["uri"]);
        assert!(found.get("timeoutSeconds").is_some(), "{found}");
        assert_eq!(found["timeoutSeconds"], body["timeout"]);
        for (argument, member) in ARGUMENTS {
            assert_eq!(found[argument], body[member], "{argument}");
        }
    }
}

#[test]
fn programs_delete_their_sandbox_in_the_end() {
    let body = json!({ "image": { "uri": "debian:12" } });
    let code = python(&Target::default(), &body);
    let end = "        finally:\n            await sandbox.kill()\n";
    let (before, after) = code.split_once(end).unwrap_or_else(|| panic!("{code}"));
    assert!(before.contains("        try:\n            run ="), "{code}");
    assert_eq!(after, "\n\nasyncio.run(main())");
    assert!(!before.contains("protocol"), "{code}");
    let code = typescript(&Target::default(), &body);
    let (before, after) = code.split_once("} finally {").unwrap();
    assert!(before.contains("try {\n  const run ="), "{code}");
    assert!(after.contains("await sandbox.kill();"), "{code}");
}

#[test]
fn advanced_members_are_in_the_code_or_named_as_missing() {
    let body = json!({
        "image": {"uri": "it's", "auth": {"username": "zo'e", "password": "P"}},
        "entrypoint": ["x"], "resourceLimits": {"cpu": "1"}, "extensions": {"a": "b"},
    });
    let words = arguments("osb", &osb(&target(), &body));
    for word in [
        "--image-auth-username=zo'e",
        "--image-auth-password=P",
        "--extension=a=b",
    ] {
        assert!(words.contains(&word.to_owned()), "{word} in {words:?}");
    }
    let code = python(&target(), &body);
    output(
        "python3",
        &["-c", "import ast, sys; ast.parse(sys.stdin.read())"],
        &code,
    );
    assert!(
        code.contains("SandboxImageAuth(username=\"zo'e\""),
        "{code}"
    );
    let code = typescript(&target(), &body);
    assert!(code.contains(r#""auth":{"#), "{code}");
    let mut more = body;
    more["secureAccess"] = json!(true);
    more["volumes"] = json!([]);
    assert!(osb(&target(), &more).contains("--file sandbox.json"));
    let code = python(&target(), &more);
    assert!(code.starts_with("# Not in this code: volumes.\n"), "{code}");
    assert!(code.contains("secure_access=True"), "{code}");
    let code = typescript(&target(), &more);
    assert!(
        code.starts_with("// Not in this code: volumes.\n"),
        "{code}"
    );
    assert!(code.contains("secureAccess: true"), "{code}");
}

#[test]
fn a_network_policy_is_in_the_code_if_the_sdks_can_express_it() {
    const READ: &str = "\
import ast, json, sys
tree = ast.parse(sys.stdin.buffer.read().decode())
calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
named = lambda call: getattr(call.func, 'attr', getattr(call.func, 'id', ''))
fields = lambda call: {word.arg: word.value for word in call.keywords}
policy, = [fields(call) for call in calls if named(call) == 'NetworkPolicy']
rules = [{name: ast.literal_eval(value) for name, value in fields(rule).items()} for rule in policy['egress'].elts]
print(json.dumps({'defaultAction': ast.literal_eval(policy['default_action']), 'egress': rules}))
";
    for text in HOSTILE {
        let rules = json!([{"action": "deny", "target": text}, {"action": "allow", "target": "b"}]);
        let body = json!({
            "image": {"uri": "debian:12"}, "resourceLimits": {"cpu": "1"},
            "networkPolicy": {"defaultAction": "deny", "egress": rules},
        });
        let code = python(&target(), &body);
        let found: Value = serde_json::from_str(&output("python3", &["-c", READ], &code)).unwrap();
        assert_eq!(found, body["networkPolicy"], "{code}");
        let import = "from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule\n";
        assert!(code.contains(import), "{code}");
        assert!(!code.contains("Not in this code"), "{code}");
        let code = typescript(&target(), &body);
        assert!(code.contains("  networkPolicy: {"), "{code}");
        assert!(!code.contains("Not in this code"), "{code}");
        assert!(osb(&target(), &body).contains("--file sandbox.json"));
    }
    for odd in [
        json!([]),
        json!({"egress": [{"target": "a"}]}),
        json!({"defaultAction": "x"}),
    ] {
        let body = json!({"image": {"uri": "debian:12"}, "networkPolicy": odd});
        for code in [python(&target(), &body), typescript(&target(), &body)] {
            assert!(code.contains("Not in this code: networkPolicy."), "{code}");
        }
    }
}

#[test]
fn a_member_name_does_not_end_the_comment_that_has_it() {
    for (name, shown) in [
        ("volumes", "volumes"),
        ("network policy-2.0_ä", "network policy-2.0_ä"),
        ("a\nimport os", r"a\u{a}import os"),
        ("a\rb", r"a\u{d}b"),
        ("a\u{2028}b\u{2029}c\u{85}d", r"a\u{2028}b\u{2029}c\u{85}d"),
        ("a*/ b /*", r"a\u{2a}\u{2f} b \u{2f}\u{2a}"),
        ("coding: utf-7", r"coding\u{3a} utf-7"),
        ("coding=utf-7", r"coding\u{3d}utf-7"),
        ("a\u{202e}b\u{0}\\", r"a\u{202e}b\u{0}\u{5c}"),
    ] {
        assert_eq!(in_comment(name), shown);
        let mut body = json!({"image": {"uri": "x"}, "entrypoint": ["y"]});
        body[name] = json!("z");
        let code = python(&target(), &body);
        let comment = format!("# Not in this code: {shown}.\nimport asyncio, os\n");
        assert!(code.starts_with(&comment), "{code}");
        let code = typescript(&target(), &body);
        let comment = format!("// Not in this code: {shown}.\nimport {{ Sandbox }} from");
        assert!(code.starts_with(&comment), "{code}");
    }
}

#[test]
fn a_snapshot_takes_the_place_of_the_image() {
    const READ: &str = "\
import ast, json, sys
tree = ast.parse(sys.stdin.buffer.read().decode())
calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
create, = [call for call in calls if getattr(call.func, 'attr', '') == 'create']
found = {word.arg: word.value for word in create.keywords}
print(json.dumps([len(create.args), ast.literal_eval(found['snapshot_id'])]))
";
    for text in HOSTILE {
        let body = json!({
            "snapshotId": text, "entrypoint": ["x"], "timeout": 90,
            "resourceLimits": {"cpu": "1"},
        });
        let words = arguments("osb", &osb(&target(), &body));
        assert!(
            words.contains(&format!("--snapshot-id={text}")),
            "{words:?}"
        );
        assert!(!words.iter().any(|word| word.starts_with("--image")));
        let code = python(&target(), &body);
        let found: Value = serde_json::from_str(&output("python3", &["-c", READ], &code)).unwrap();
        assert_eq!(found, json!([0, text]), "{code}");
        assert!(!code.contains("Not in this code"), "{code}");
        let code = typescript(&target(), &body);
        let member = format!("\n  snapshotId: {},\n", Value::from(text));
        assert!(code.contains(&member), "{code}");
        assert!(!code.contains("image:"), "{code}");
        assert!(!code.contains("Not in this code"), "{code}");
    }
}

#[test]
fn two_sources_are_not_hidden() {
    let body = json!({
        "image": {"uri": "debian:12"}, "snapshotId": "s", "entrypoint": ["x"],
        "resourceLimits": {"cpu": "1"},
    });
    assert!(osb(&target(), &body).contains("--file sandbox.json"));
    for code in [python(&target(), &body), typescript(&target(), &body)] {
        assert!(code.contains("Not in this code: snapshotId."), "{code}");
    }
}

#[test]
fn a_template_takes_the_place_of_image_and_limits() {
    for text in HOSTILE.into_iter().filter(|text| !text.is_empty()) {
        let body = json!({"templateId": text, "timeout": 600, "metadata": {"a": "b"}});
        let words = arguments("osb", &osb(&target(), &body));
        let wanted = [
            format!("--template={text}"),
            "--timeout=600".to_owned(),
            "--metadata=a=b".to_owned(),
        ];
        assert_eq!(words[6..], wanted);
        let code = python(&target(), &body);
        let parse = "import ast, sys; ast.parse(sys.stdin.buffer.read().decode())";
        output("python3", &["-c", parse], &code);
        assert!(code.contains("Sandbox.create_from_template("), "{code}");
        assert!(!code.contains("Not in this code"), "{code}");
        let code = typescript(&target(), &body);
        assert!(code.contains("Sandbox.connect({"), "{code}");
        assert!(code.contains("/v1/sandboxes"), "{code}");
    }
    let policy = json!({"templateId": "tpl-1", "timeout": 600, "networkPolicy": {}});
    assert!(osb(&target(), &policy).contains("--file sandbox.json"));
}

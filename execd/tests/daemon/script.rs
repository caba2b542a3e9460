//! Scripts, and what `bash` makes of them when it reads them from a file.

use std::{
    fs,
    process::{Command, Stdio},
};

/// Exit code and lines of a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    /// Both streams, where the caller does not distinguish them.
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
}

/// Scripts that end, print and fail in a run as in a file.
pub(crate) fn scripts() -> Vec<String> {
    let mut scripts: Vec<String> = [
        // Syntax errors.
        "echo 'abc",
        "if then",
        "fi",
        "echo one\n\nif then",
        "echo \"$((1+\"",
        "case x in",
        "x=(1 2",
        "function { :; }",
        "f() {\n  echo 'a\n}\nf",
        "echo one; )",
        "echo a \\",
        // Exit statuses.
        "exit 3",
        "(exit 3)",
        "f() { exit 7; }; f; echo no",
        "return 3; echo on",
        "break; echo on",
        "! true",
        "no-such-program",
        "\n\ncd /nonexistent",
        "echo $((1/0)); echo no",
        "kill -TERM $$",
        "exec echo hi",
        "exec sh -c 'exit 4'",
        "false | true",
        "\n",
        "# a comment",
        // Options.
        "set -u; echo $NONE; echo no",
        "echo ${NONE:?gone}; echo no",
        "set -e; false; echo no",
        "set -e\n[ -f /nonexistent ] && echo no",
        "set -e; f() { false; echo on; }; f || echo failed",
        "set -eo pipefail; false | true; echo no",
        "set -x; echo x",
        "set -v; echo x\necho y",
        "set -f; echo *",
        "set -o posix; readonly X=1; X=2; echo no",
        // Traps.
        "trap 'echo E $LINENO' ERR\nfalse\n(exit 4)",
        "set -E; trap 'echo E' ERR; f() { false; }; f; echo on",
        "trap 'echo D' DEBUG; :; :",
        "trap 'echo R' RETURN; set -T; f() { :; }; f",
        "trap 'echo X $? $#' EXIT; exit 3",
        "trap 'echo X $? $#' EXIT; (exit 4)",
        "trap 'echo T' TERM; kill -TERM $$; echo on",
        "trap 'echo C' CHLD; sh -c : ; (:); echo on",
        // Here-documents.
        "cat <<E\n$((1+1))\nE\ncat <<'E'\n$x \\n\nE\ncat <<< word",
        "cat <<E\nabc",
        // Lines and names.
        "echo $LINENO\necho $LINENO\n\necho $LINENO",
        "f() {\n  echo $LINENO\n  no-such-program\n}\nf",
        "echo \"$0 $# ${1-none} ${BASH_EXECUTION_STRING-none}\"; echo $?",
        "read -r line; echo \"[$line]\"; cat",
        // Jobs.
        "sleep 0.05 & wait $!; echo $?",
        "{ sleep 0.2; echo late; } & echo now; wait",
        "coproc cat; kill $COPROC_PID; wait $COPROC_PID 2>/dev/null; echo $?",
        // Bytes.
        "echo a\r\nif true; then\r\necho b\r\nfi\r\n",
        "printf '\\xff\\xc3\\n'; echo é $'\\u2028' \u{1}\u{7f}",
        // Names that the commands around the script use, too.
        "exit() { echo no; }; set() { echo no; }; eval() { echo no; }; shift() { echo no; }",
        "shopt -s expand_aliases\nalias exit='echo no' set='echo no' builtin='echo no'\n:",
        "readonly PIPESTATUS; (exit 5)",
    ]
    .map(str::to_owned)
    .into();
    let long = "x".repeat(1 << 20);
    scripts.push(format!("a='{long}'\necho ${{#a}} $LINENO; (exit 6)"));
    scripts
}

/// Runs a script from a file. `merged` sends both streams to `stdout`.
pub(crate) fn from_file(script: &str, merged: bool) -> Ran {
    let place = tempfile::tempdir().unwrap();
    // Named like the program, which is what messages of a run begin with.
    fs::write(place.path().join("bash"), script).unwrap();
    let mut command = Command::new("bash");
    if merged {
        command = Command::new("sh");
        command.args(["-c", "exec bash bash 2>&1"]);
    } else {
        command.arg("bash");
    }
    let output = command
        .current_dir(place.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let lines = |bytes| {
        let text = String::from_utf8_lossy(bytes);
        text.lines().map(as_in_a_file).collect()
    };
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: lines(&output.stdout),
        stderr: lines(&output.stderr),
    }
}

/// Line of a run as a script file would print it: a run evaluates its script, which adds to
/// messages and to the depth of traces, and its functions belong to no file.
pub(crate) fn as_in_a_file(line: &str) -> String {
    let traced = line.trim_start_matches('+');
    if traced.len() < line.len() && traced.starts_with(' ') {
        return format!("+{traced}");
    }
    let line = line.strip_suffix('\r').unwrap_or(line);
    line.replacen("bash: eval: line ", "bash: line ", 1)
        .replacen("main: line ", "bash: line ", 1)
}

//! Scripts in runs, and what the commands around them may show (contract: execd A4.4).

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{Isolated, exit, failure};
use crate::{
    script::{Ran, as_in_a_file, from_file, scripts},
    support::texts,
};

#[tokio::test]
async fn scripts_end_and_print_as_from_a_file() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let mut different = Vec::new();
    for script in scripts() {
        let want = from_file(&script, false);
        // In the second session the run restores a state.
        for first in [None, Some("A=1; trap 'echo usr1' USR1; f() { :; }")] {
            let id = isolated.session(json!({})).await;
            if let Some(first) = first {
                isolated.output_of(&id, first).await;
            }
            let events = isolated.run(&id, &script).await;
            let lines = |kind| texts(&events, kind).into_iter().map(as_in_a_file).collect();
            let ran = Ran {
                code: events.last().unwrap().exit_code().unwrap(),
                stdout: lines(EventKind::Stdout),
                stderr: lines(EventKind::Stderr),
            };
            isolated.delete(&id).await;
            if ran != want {
                let script: String = script.chars().take(200).collect();
                different.push(format!(
                    "{script:?} after {first:?}\n  run  {ran:?}\n  file {want:?}"
                ));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// What a run sets applies to the next run, and not to the commands around its code.
#[tokio::test]
async fn restored_options_and_traps_show_in_the_code_only() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    for (set, code, end, stdout, stderr) in [
        ("set -x", "echo a\necho b", 0, "a|b", "++ echo a|++ echo b"),
        ("set -v", "echo a\necho b", 0, "a|b", "echo a|echo b"),
        (
            "set -x",
            "if then",
            2,
            "",
            "bash: eval: line 1: syntax error near unexpected token `then'|\
             bash: eval: line 1: `if then'",
        ),
        ("trap 'echo E $LINENO' ERR", "\nfalse", 1, "E 2", ""),
        (
            "set -u",
            "echo $NONE",
            1,
            "",
            "bash: line 1: NONE: unbound variable",
        ),
        (
            "set -eo pipefail; trap 'echo E $LINENO' ERR",
            "A=1\nfalse | true\necho no",
            1,
            "E 2",
            "",
        ),
        (
            "IFS=e; set -C",
            "echo $- | grep -o C\necho $LINENO",
            0,
            "C|2",
            "",
        ),
        (
            "shopt -s failglob nullglob extglob; set -f",
            "echo *",
            0,
            "*",
            "",
        ),
        (
            "f() {\n  no-such-program\n}",
            "f",
            127,
            "",
            "main: line N: no-such-program: command not found",
        ),
        (
            "exit() { command echo no; }; set() { exit; }; eval() { exit; }; shift() { exit; }; \
             echo() { exit; }; export() { exit; }",
            "printf on",
            0,
            "on",
            "",
        ),
        (
            "shopt -s expand_aliases\nalias builtin='echo no' set='echo no' eval='echo no'",
            "printf on",
            0,
            "on",
            "",
        ),
        ("set -- a b; (exit 3)", "echo $? $#", 0, "0 0", ""),
        ("N=0; trap 'N=$((N+1))' DEBUG; :; :", "echo $N", 0, "2", ""),
    ] {
        let id = isolated.session(json!({})).await;
        isolated.run(&id, set).await;
        // A second time, because each run reports the restored state again.
        let body = json!({ "code": "A=1", "envs": { "ONCE": "1" } });
        isolated.run_with(&id, body).await;
        let events = isolated.run(&id, code).await;
        let lines = |kind| texts(&events, kind).join("|");
        assert_eq!(lines(EventKind::Stdout), stdout, "{set}: {code}");
        assert_eq!(
            without_number(&lines(EventKind::Stderr), stderr),
            stderr,
            "{set}: {code}"
        );
        let last = events.last().unwrap();
        assert_eq!(last.exit_code(), Some(end), "{set}: {code}: {events:?}");
        isolated.delete(&id).await;
    }
}

/// Replaces the line number by `N` if the expected text has that: a restored function has lines of
/// its own.
fn without_number(text: &str, want: &str) -> String {
    let number = |text: &str| Some(text.split_once("line ")?.1.split_once(':')?.0.to_owned());
    match (number(text), number(want).as_deref()) {
        (Some(number), Some("N")) if number.parse::<u32>().is_ok() => {
            text.replacen(&number, "N", 1)
        }
        _ => text.to_owned(),
    }
}

/// With `set -e` a last command that fails without ending the shell, as in `[ … ] && …`.
#[tokio::test]
async fn a_failing_condition_at_the_end_keeps_the_state_in_spite_of_set_e() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "set -e").await;
    let events = isolated
        .run(&id, "A=1; [ -f /nonexistent ] && echo no")
        .await;
    assert_eq!(failure(&events), exit("1"), "{events:?}");
    assert_eq!(isolated.output_of(&id, "echo $A").await, "1");
    let events = isolated.run(&id, "A=2; false; A=3").await;
    assert_eq!(failure(&events), exit("1"), "{events:?}");
    assert_eq!(isolated.output_of(&id, "echo $A").await, "1");
}

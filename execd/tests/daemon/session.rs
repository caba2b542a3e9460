//! Shell sessions (contract: execd §6, §8, A2.5).

use osb_protocol::execd::event::{Event, EventKind};
use serde_json::{Value, json};

use crate::{
    script::{Ran, as_in_a_file, from_file, scripts},
    support::{Answer, Daemon, KillOnDrop, alive, daemon, events, eventually, texts},
};

async fn session(daemon: &Daemon, body: Value) -> String {
    let answer = daemon.post("/session", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

async fn run_with(daemon: &Daemon, id: &str, body: Value) -> Vec<Event> {
    let answer = daemon.post(&format!("/session/{id}/run"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let events = events(&answer.body);
    assert_eq!(
        (events[0].kind, events[0].text.as_str()),
        (EventKind::Init, id)
    );
    events
}

async fn run(daemon: &Daemon, id: &str, command: &str) -> Vec<Event> {
    run_with(
        daemon,
        id,
        json!({ "command": command, "cwd": null, "timeout": null }),
    )
    .await
}

/// Returns the output of a run that must succeed.
async fn output_of(daemon: &Daemon, id: &str, command: &str) -> String {
    let events = run(daemon, id, command).await;
    assert_eq!(events.last().unwrap().exit_code(), Some(0), "{events:?}");
    texts(&events, EventKind::Stdout).join("|")
}

#[tokio::test]
async fn variables_and_directory_outlive_their_runs() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let new = place.path().join("new/er");
    let id = session(&daemon, json!({ "cwd": new })).await;
    assert_eq!(output_of(&daemon, &id, "pwd").await, new.to_str().unwrap());
    let odd =
        "export ODD=\"two\nlines \\$HOME 'quoted' \\\\ \\`x\\`\" EMPTY= ; seq 1 20000 | tail -1";
    assert_eq!(output_of(&daemon, &id, odd).await, "20000");
    assert_eq!(
        output_of(&daemon, &id, "printf '%s.%s' \"$ODD\" \"${EMPTY-unset}\"").await,
        "two|lines $HOME 'quoted' \\ `x`."
    );
    let big = format!("export BIG={}; unset EMPTY", "b".repeat(100_000));
    output_of(&daemon, &id, &big).await;
    assert_eq!(
        output_of(&daemon, &id, "echo ${#BIG}${EMPTY-unset}").await,
        "100000unset"
    );
    // A failing command keeps its state.
    let events = run(&daemon, &id, "cd /; export A=1; sh -c 'echo out; exit 7'").await;
    let error = events.last().unwrap().error.clone().unwrap();
    assert_eq!(
        (error.ename.as_str(), error.evalue.as_str()),
        ("CommandExecError", "7")
    );
    assert_eq!(error.traceback.unwrap(), ["exit status 7"]);
    assert_eq!(output_of(&daemon, &id, "echo $A$PWD").await, "1/");
    let body = json!({ "command": "pwd", "cwd": "${PWD}tmp" });
    assert_eq!(
        texts(&run_with(&daemon, &id, body).await, EventKind::Stdout),
        ["/tmp"]
    );
    assert_eq!(output_of(&daemon, &id, "pwd").await, "/tmp");
    let other = session(&daemon, json!({})).await;
    assert_eq!(output_of(&daemon, &other, "echo ${A-unset}").await, "unset");
}

#[tokio::test]
async fn the_wrapper_is_invisible_to_scripts() {
    let daemon = daemon();
    // Without a body the defaults apply.
    let answer = daemon.send(http::Method::POST, "/session", &[], "").await;
    let id = Answer::of(answer).await.json()["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for (command, want) in [
        ("printf unfinished", "unfinished"),
        ("true", ""),
        ("echo \"$0 $# ${1-none}\"", "bash 0 none"),
        ("cat <<E\nheredoc $((1+1))\nE", "heredoc 2"),
        // Two backslashes, because the wrapper evaluates the text.
        ("set -x; echo x", "++ echo x|x"),
        ("echo to stderr >&2; echo; echo out", "to stderr|\n|out"),
        ("trap 'echo bye' EXIT; export T=1", "bye"),
        ("# a comment", ""),
        ("echo $T; set -u; echo end", "1|end"),
        ("exec 2>&1 1>/dev/null; export R=1", ""),
        ("echo $R", "1"),
        ("exec > >(cat >/dev/null); export S=1; echo x", ""),
        ("echo $S", "1"),
        (
            "echo __ENV_DUMP_START__; echo __EXIT_CODE__:3",
            "__ENV_DUMP_START__|__EXIT_CODE__:3",
        ),
    ] {
        assert_eq!(output_of(&daemon, &id, command).await, want, "{command}");
    }
}

/// Runs that change the descriptors of their shell; the session stays usable after each.
#[tokio::test]
async fn scripts_may_use_any_descriptor() {
    let place = tempfile::tempdir().unwrap();
    let in_place = place.path().display().to_string();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("SECRET", "the secret");
    });
    let sessions = [
        (session(&daemon, json!({ "cwd": in_place })).await, true),
        (session(&daemon, json!({ "cwd": in_place })).await, false),
    ];
    for (id, by_loop) in &sessions {
        for (command, keeps) in [
            ("exec 100>f100 101>f101", true),
            ("f() { exec 100>&-; exec 200>lock 255>g; }; f 100>h", true),
            (
                "for n in {3..1023}; do exec {x}>auto 2>/dev/null || break; done",
                true,
            ),
            (
                "for n in {3..1023}; do eval \"exec $n>named\"; done 2>/dev/null",
                true,
            ),
            ("exec 3>&1 1>&- 2>&-", true),
            (
                "for n in /proc/$$/fd/*; do n=${n##*/}; \
                 [ \"$n\" -gt 2 ] && eval \"exec $n>&-\"; done",
                false,
            ),
            (
                "for n in /proc/$$/fd/*; do n=${n##*/}; \
                 [ \"$n\" -gt 2 ] && eval \"exec $n>stolen\"; done",
                false,
            ),
        ] {
            output_of(&daemon, id, "export N=before").await;
            let end = if *by_loop { "true" } else { "(exit 5)" };
            let code = if *by_loop { 0 } else { 5 };
            let events = run(&daemon, id, &format!("{command}\nexport N=after; {end}")).await;
            let last = events.last().unwrap();
            assert_eq!(last.exit_code(), Some(code), "{command}: {events:?}");
            let output = texts(&events, EventKind::Stdout).join("|");
            let (kept, notice) = match keeps {
                true => ("after", ""),
                false => ("before", "[execd: what this run exported"),
            };
            assert_eq!(output.is_empty(), keeps, "{command}: {output}");
            assert!(output.starts_with(notice), "{command}: {output}");
            assert_eq!(output_of(&daemon, id, "echo $N").await, kept, "{command}");
            for entry in std::fs::read_dir(place.path()).unwrap() {
                let path = entry.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap();
                assert_eq!(text, "", "{command}: {}", path.display());
            }
        }
    }
}

#[tokio::test]
async fn programs_inherit_no_descriptor_of_the_script() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let text = "for n in /proc/self/fd/*; do readlink $n; done | grep memfd; :";
    let long = format!(": {}\n{text}", "x".repeat(200_000));
    for text in [text, &long] {
        assert_eq!(output_of(&daemon, &id, text).await, "");
    }
    let input = "read -r line; echo \"[$line]\"; mapfile all; echo ${#all[@]}; cat";
    assert_eq!(output_of(&daemon, &id, input).await, "[]|0");
    let own = "echo ${BASH_EXECUTION_STRING-none}; tr '\\0' ' ' </proc/$$/cmdline";
    assert_eq!(
        output_of(&daemon, &id, own).await,
        "none|bash --noprofile --norc "
    );
}

#[tokio::test]
async fn a_run_ends_and_reports_errors_like_a_script() {
    let daemon = daemon();
    for (command, code, want) in [
        (
            "echo 'abc",
            2,
            "bash: eval: line 1: unexpected EOF while looking for matching `''",
        ),
        (
            "if then",
            2,
            "bash: eval: line 1: syntax error near unexpected token `then'|\
             bash: eval: line 1: `if then'",
        ),
        (
            "echo one\n\nif then",
            2,
            "one|bash: eval: line 3: syntax error near unexpected token `then'|\
             bash: eval: line 3: `if then'",
        ),
        ("echo a \\", 0, "a"),
        (
            "echo 'a\\'\\''b' \\\\ \"\\$\" \u{1}\u{7f}",
            0,
            "a\\'b \\ $ \u{1}\u{7f}",
        ),
        (
            "set -u; echo $NONE",
            1,
            "bash: line 1: NONE: unbound variable",
        ),
        (
            "\n\nset -u\necho $NONE",
            1,
            "bash: line 4: NONE: unbound variable",
        ),
        ("echo ${NONE:?gone}", 1, "bash: line 1: NONE: gone"),
        (
            "\n\nno-such-program",
            127,
            "bash: line 3: no-such-program: command not found",
        ),
        ("echo $LINENO\necho $LINENO\n\necho $LINENO", 0, "1|2|4"),
        (
            "cat <<E\nabc",
            0,
            "bash: line 2: warning: here-document at line 1 delimited by end-of-file (wanted `E')|abc",
        ),
        // Once for each command of the script, and never for a command of the wrapper.
        ("trap 'echo E' ERR; false", 1, "E"),
        ("trap 'echo D' DEBUG; :; :", 0, "D|D"),
        ("exit() { echo overridden; }; echo end", 0, "end"),
        ("set() { echo overridden; }; eval() { echo no; }", 0, ""),
        (
            "shopt -s expand_aliases; alias exit='echo no' set='echo no'",
            0,
            "",
        ),
        ("set -v; echo x\necho y", 0, "x|echo y|y"),
        ("set -e; cd /; export A=1", 0, ""),
        ("exec 5>&2; BASH_XTRACEFD=5; : x", 0, ""),
        ("(exit 3)", 3, ""),
        ("return 2>/dev/null; echo on", 0, "on"),
    ] {
        let id = session(&daemon, json!({})).await;
        let events = run(&daemon, &id, command).await;
        let output = texts(&events, EventKind::Stdout).join("|");
        assert_eq!(output, want, "{command}");
        let last = events.last().unwrap();
        assert_eq!(last.exit_code(), Some(code), "{command}: {events:?}");
    }
}

#[tokio::test]
async fn scripts_end_and_print_as_from_a_file() {
    let daemon = daemon();
    let mut different = Vec::new();
    for script in scripts() {
        let id = session(&daemon, json!({})).await;
        let events = run(&daemon, &id, &script).await;
        let lines = texts(&events, EventKind::Stdout);
        let ran = Ran {
            code: events.last().unwrap().exit_code().unwrap(),
            stdout: lines.into_iter().map(as_in_a_file).collect(),
            stderr: Vec::new(),
        };
        let want = from_file(&script, true);
        if ran != want {
            let script: String = script.chars().take(200).collect();
            different.push(format!("{script:?}\n  run  {ran:?}\n  file {want:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// With `set -e` a last command that fails without ending the shell, as in `[ … ] && …`.
#[tokio::test]
async fn a_failing_condition_at_the_end_keeps_the_state_in_spite_of_set_e() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let command = "set -e; cd /usr; export A=1; [ -f /nonexistent ] && echo no";
    let events = run(&daemon, &id, command).await;
    assert_eq!(events.last().unwrap().exit_code(), Some(1), "{events:?}");
    assert_eq!(output_of(&daemon, &id, "echo $A $PWD").await, "1 /usr");
}

#[tokio::test]
async fn a_command_that_does_not_complete_changes_nothing() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    output_of(&daemon, &id, "cd /usr; export A=1").await;
    for (command, code) in [
        ("export A=2; cd /; exit 3", 3),
        ("export A=2; exec sh -c 'exit 4'", 4),
        ("export A=2; kill -KILL $$", -1),
        ("set -e; export A=2; false; true", 1),
    ] {
        let events = run(&daemon, &id, command).await;
        assert_eq!(events.last().unwrap().exit_code(), Some(code), "{command}");
        let complete = |event: &Event| event.kind == EventKind::ExecutionComplete;
        assert!(!events.iter().any(complete));
        assert_eq!(
            output_of(&daemon, &id, "echo $A$PWD").await,
            "1/usr",
            "{command}"
        );
    }
    let events = run(&daemon, &id, "if then").await;
    assert_eq!(events.last().unwrap().exit_code(), Some(2));
    let events = run_with(
        &daemon,
        &id,
        json!({ "command": "sleep 1000", "timeout": 50 }),
    )
    .await;
    let error = events.last().unwrap().error.clone().unwrap();
    assert_eq!(
        error.traceback.unwrap(),
        ["signal: killed", "timeout after 50ms"]
    );
    assert_eq!(output_of(&daemon, &id, "echo $A").await, "1");
}

#[tokio::test]
async fn background_children_of_a_run_block_nothing() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let pid: i32 = output_of(&daemon, &id, "sleep 1000 & echo $!")
        .await
        .parse()
        .unwrap();
    let _killed = KillOnDrop(pid);
    assert_eq!(output_of(&daemon, &id, "echo next").await, "next");
    assert!(alive(pid));
}

#[tokio::test]
async fn runs_of_one_session_take_turns() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    output_of(&daemon, &id, "export N=0").await;
    let one = || run(&daemon, &id, "n=$N; sleep 0.05; export N=$((n+1))");
    tokio::join!(one(), one(), one(), one());
    assert_eq!(output_of(&daemon, &id, "echo $N").await, "4");
}

/// Waits until a run wrote a PID into a file, and returns it.
async fn pid_in(file: &std::path::Path) -> i32 {
    eventually("the run wrote", async || {
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    })
    .await
}

#[tokio::test]
async fn sessions_and_terminals_above_the_limit_are_refused() {
    const MOST: usize = 1024;
    let daemon = daemon();
    for path in ["/session", "/pty"] {
        let mut last = Value::Null;
        for _ in 0..MOST {
            let made = daemon.post(path, json!({})).await;
            assert!(made.status.is_success(), "{}", made.text());
            last = made.json();
        }
        let refused = daemon.post(path, json!({})).await;
        assert_eq!(refused.status, 429, "{path}: {}", refused.text());
        assert_eq!(refused.code(), "TOO_MANY_SESSIONS");
        let id = last["session_id"].as_str().unwrap();
        assert_eq!(daemon.delete(&format!("{path}/{id}")).await.status, 200);
        let made = daemon.post(path, json!({})).await;
        assert!(made.status.is_success(), "{path}: {}", made.text());
    }
}

#[tokio::test]
async fn deleting_or_interrupting_ends_running_and_waiting_runs() {
    let daemon = daemon();
    for route in ["/session/", "/command?id=", "/code?id="] {
        let place = tempfile::tempdir().unwrap();
        let id = session(&daemon, json!({ "cwd": place.path() })).await;
        let end = async {
            let pid = pid_in(&place.path().join("pid")).await;
            let body = json!({ "command": "echo waited" }).to_string();
            let path = format!("/session/{id}/run");
            let waiting = daemon.send(http::Method::POST, &path, &[], body).await;
            let deleted = daemon.delete(&format!("{route}{id}")).await;
            assert_eq!(deleted.status, 200, "{}", deleted.text());
            let waiting = events(&Answer::of(waiting).await.body);
            (pid, waiting)
        };
        let text = "trap '' TERM; echo $$ > pid.new; mv pid.new pid; sleep 1000; echo never";
        let (running, (pid, waiting)) = tokio::join!(run(&daemon, &id, text), end);
        assert_eq!(running.last().unwrap().exit_code(), Some(-1));
        assert!(texts(&waiting, EventKind::Stdout).is_empty());
        eventually("the process is gone", async || (!alive(pid)).then_some(())).await;
        let again = daemon.delete(&format!("/session/{id}")).await;
        assert_eq!(
            (again.status.as_u16(), again.code().as_str()),
            (404, "CONTEXT_NOT_FOUND")
        );
    }
}

#[tokio::test]
async fn a_disconnect_ends_the_run() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let id = session(&daemon, json!({ "cwd": place.path() })).await;
    let body = json!({ "command": "echo $$ > pid.new; mv pid.new pid; sleep 1000" });
    let path = format!("/session/{id}/run");
    let response = daemon
        .send(http::Method::POST, &path, &[], body.to_string())
        .await;
    let pid = pid_in(&place.path().join("pid")).await;
    drop(response);
    eventually("the process is gone", async || (!alive(pid)).then_some(())).await;
    assert_eq!(output_of(&daemon, &id, "echo still").await, "still");
}

#[tokio::test]
async fn the_environment_file_is_read_at_creation_and_bad_requests_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join(".env");
    std::fs::write(&file, "FROM_FILE=1\n").unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("EXECD_ENVS", &file)
            .env("JUPYTER_TOKEN", "hidden");
    });
    let id = session(&daemon, json!({})).await;
    std::fs::write(&file, "FROM_FILE=2\n").unwrap();
    let text = "echo $FROM_FILE ${JUPYTER_TOKEN-absent} $EXECD_ENVS";
    let want = format!("1 absent {}", file.display());
    assert_eq!(output_of(&daemon, &id, text).await, want);

    let run = format!("/session/{id}/run");
    for (path, body, status, code) in [
        (run.as_str(), json!({}), 400, "INVALID_REQUEST_BODY"),
        (&run, json!({ "command": "" }), 400, "INVALID_REQUEST_BODY"),
        (
            &run,
            json!({ "command": "a\0" }),
            400,
            "INVALID_REQUEST_BODY",
        ),
        (&run, json!({ "command": 1 }), 400, "INVALID_REQUEST_BODY"),
        (
            &run,
            json!({ "command": "a", "timeout": -1 }),
            400,
            "INVALID_REQUEST_BODY",
        ),
        (
            &run,
            json!({ "command": "a", "cwd": "/none" }),
            400,
            "INVALID_REQUEST_BODY",
        ),
        (
            "/session/none/run",
            json!({ "command": "a" }),
            404,
            "CONTEXT_NOT_FOUND",
        ),
        (
            "/session",
            json!({ "cwd": "$UNDEFINED/x" }),
            500,
            "RUNTIME_ERROR",
        ),
        (
            "/session",
            json!({ "cwd": "/proc/x" }),
            500,
            "RUNTIME_ERROR",
        ),
        ("/session", json!({ "cwd": 1 }), 400, "INVALID_REQUEST_BODY"),
    ] {
        let answer = daemon.post(path, body.clone()).await;
        assert_eq!(answer.status, status, "{body}");
        assert_eq!(answer.code(), code, "{body}");
    }
}

#[tokio::test]
async fn a_path_variable_without_a_shell_can_be_repaired() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    output_of(&daemon, &id, "export PATH=/nowhere").await;
    let mend = "echo $PATH; export PATH=/usr/bin:/bin";
    assert_eq!(output_of(&daemon, &id, mend).await, "/nowhere");
    assert_eq!(
        output_of(&daemon, &id, "env true; echo $PATH").await,
        "/usr/bin:/bin"
    );

    let envs = json!({ "PATH": "/opt/venv/bin" });
    let events = daemon
        .run(json!({ "command": "echo $PATH", "envs": envs }))
        .await;
    assert_eq!(texts(&events, EventKind::Stdout), ["/opt/venv/bin"]);
    // Programs are looked up in this path only.
    let events = daemon.run(json!({ "argv": ["true"], "envs": envs })).await;
    assert!(events.last().unwrap().error.is_some(), "{events:?}");
}

/// Starts a daemon whose shell is the system's `sh`.
fn with_sh(place: &tempfile::TempDir) -> Daemon {
    std::os::unix::fs::symlink("/bin/sh", place.path().join("sh")).unwrap();
    Daemon::start(&["--port", "0"], |command| {
        command.env("PATH", place.path());
    })
}

#[tokio::test]
async fn only_variables_too_long_for_a_program_are_lost_with_a_warning() {
    let place = tempfile::tempdir().unwrap();
    for daemon in [daemon(), with_sh(&place)] {
        let id = session(&daemon, json!({})).await;
        let twice = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        for (command, lost) in [
            // A variable that is too long for a program, with various shell options.
            (
                format!("v=x; {twice} 17 18; do v=$v$v; done; export BIG=$v; set -eu"),
                "BIG",
            ),
            // Lengths are counted in bytes.
            (
                format!("LC_ALL=C.UTF-8; v=\u{20ac}; {twice}; do v=$v$v; done; export BIG=$v"),
                "BIG",
            ),
            // Variables that are too long together.
            (
                format!("v=x; {twice}; do v=$v$v; done; ulimit -s 512; export A=$v B=$v C=$v"),
                "A, B, C",
            ),
        ] {
            let all = "export BIG=1 A=1 B=1 C=1 KEPT=0; cd /; unset LC_ALL; export LONG=";
            output_of(&daemon, &id, &format!("{all}{}", "l".repeat(20_000))).await;
            let command = format!("export KEPT='two\nexport BIG=lines'; cd /usr; {command}");
            let events = run(&daemon, &id, &command).await;
            assert_eq!(events.last().unwrap().exit_code(), Some(0), "{events:?}");
            let complaint = texts(&events, EventKind::Stderr);
            let want = format!("[execd: too long to outlive the run: {lost}]");
            assert_eq!(complaint, [want], "{command}");
            let text = "echo ${BIG-}${A-}${B-}${C-} ${#KEPT} ${#LONG} $PWD; set | while read -r l; do \
                 case $l in __execd*) echo \"$l\";; esac; done";
            let want = match lost {
                "BIG" => "111 20 20000 /usr",
                _ => "1 20 20000 /usr",
            };
            assert_eq!(output_of(&daemon, &id, text).await, want, "{command}");
        }
    }
}

#[tokio::test]
async fn commands_may_be_longer_than_an_argument() {
    let place = tempfile::tempdir().unwrap();
    for daemon in [daemon(), with_sh(&place)] {
        let id = session(&daemon, json!({})).await;
        // Not every shell reports line numbers.
        let want = output_of(&daemon, &id, "\n\necho \"$0 0 none $LINENO\"").await;
        for len in [60_000, 131_071, 131_072, 3_000_000] {
            // With an extra line, so that the last line is number 3.
            let long = format!("x={}\n", "x".repeat(len));
            let command = format!(
                "{long}export N=${{#x}}; cd /usr\n\
                 echo \"$0 $# ${{1-none}} $LINENO\"; (exit 3)"
            );
            let events = run(&daemon, &id, &command).await;
            assert_eq!(events.last().unwrap().exit_code(), Some(3), "{len}");
            assert_eq!(texts(&events, EventKind::Stdout), [want.as_str()], "{len}");
            let state = output_of(&daemon, &id, "echo $N $PWD; cd /").await;
            assert_eq!(state, format!("{len} /usr"));
        }
        let command = format!("export N=0; : {}\nexit 4", "x".repeat(200_000));
        let events = run(&daemon, &id, &command).await;
        assert_eq!(events.last().unwrap().exit_code(), Some(4));
        assert_eq!(output_of(&daemon, &id, "echo $N").await, "3000000");
    }
}

/// A later run starts elsewhere, in spite of the directory that the session remembers.
#[tokio::test]
async fn a_session_survives_the_loss_of_its_directory() {
    let place = tempfile::tempdir().unwrap();
    for daemon in [daemon(), with_sh(&place)] {
        let place = tempfile::tempdir().unwrap();
        let lost = place.path().join("it's\nlost");
        let shown = lost.to_str().unwrap().replace('\n', "?");
        let id = session(&daemon, json!({})).await;
        let home = output_of(&daemon, &id, "pwd").await;
        let enter = json!({ "command": ":", "cwd": lost });
        for (replacement, why) in [
            (None, "No such file or directory"),
            (Some("a file"), "Not a directory"),
        ] {
            let _ = std::fs::remove_file(&lost);
            std::fs::create_dir(&lost).unwrap();
            run_with(&daemon, &id, enter.clone()).await;
            std::fs::remove_dir(&lost).unwrap();
            if let Some(text) = replacement {
                std::fs::write(&lost, text).unwrap();
            }
            let events = run(&daemon, &id, "echo $PWD; pwd; export A=1").await;
            assert_eq!(events.last().unwrap().exit_code(), Some(0), "{events:?}");
            let want = format!("cd: {shown}: {why}");
            assert_eq!(texts(&events, EventKind::Stderr), [want], "{why}");
            assert_eq!(
                texts(&events, EventKind::Stdout),
                [home.as_str(), home.as_str()]
            );
            // The notice appears once.
            let events = run(&daemon, &id, "cd /; echo $A").await;
            assert!(texts(&events, EventKind::Stderr).is_empty(), "{events:?}");
            assert_eq!(texts(&events, EventKind::Stdout), ["1"]);
        }
        // A directory that the request names must exist.
        let answer = daemon.post(&format!("/session/{id}/run"), enter).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("working directory"));
    }
}

/// Lists the inherited pipes and sockets of a shell in `$fds`, without its standard streams.
const CHANNELS: &str = "fds=; for n in /proc/$$/fd/*; do case $n:$(/usr/bin/readlink $n) in \
     (*/[012]:*) ;; (*:pipe:*|*:socket:*) fds=\"$fds ${n##*/}\";; esac; done; [ \"$fds\" ]";

#[tokio::test]
async fn writes_to_the_descriptor_of_the_report_do_not_change_the_state() {
    let place = tempfile::tempdir().unwrap();
    for daemon in [daemon(), with_sh(&place)] {
        let id = session(&daemon, json!({ "cwd": "/usr" })).await;
        let fds = output_of(&daemon, &id, &format!("{CHANNELS}; echo $fds")).await;
        // The others belong to the program that runs the tests.
        let fds = fds.split(' ').map(|fd| fd.parse::<i32>().unwrap());
        let fd = fds.max().unwrap();
        // Other shells than bash name descriptors up to 9 only, but their programs inherit all.
        let write = format!("printf \"/tmp\\0A=2\\0\\0\" >&{fd}");
        let junk = format!("/usr/bin/bash -c 'echo junk >&{fd}; {write}'");
        for (command, code) in [
            (format!("export A=1; {junk}"), 0),
            (format!("{junk}; export A=1"), 0),
            (format!("export A=2; {junk}; exit 3"), 3),
        ] {
            let events = run(&daemon, &id, &command).await;
            assert_eq!(events.last().unwrap().exit_code(), Some(code), "{events:?}");
            assert_eq!(texts(&events, EventKind::Stdout), [""; 0], "{command}");
            assert_eq!(output_of(&daemon, &id, "echo $A $PWD").await, "1 /usr");
        }
        // A child that writes before, while and after the state is reported.
        let flag = place.path().join(format!("flag{fd}{id}"));
        let flag = flag.display();
        let endless = format!("exec >/dev/null 2>&1; while :; do {write}; : >{flag}; done");
        let long = "l".repeat(100_000);
        let start = format!(
            "/usr/bin/bash -c '{endless}' & echo $!; until [ -e {flag} ]; do :; done; \
             export A=3 LONG={long}; cd /var/.."
        );
        let pid = output_of(&daemon, &id, &start).await;
        let _killed = KillOnDrop(pid.parse().unwrap());
        let state = output_of(&daemon, &id, "echo $A ${#LONG} $PWD").await;
        assert_eq!(state, "3 100000 /");
    }
}

#[tokio::test]
async fn the_depth_of_shells_does_not_grow() {
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("SHLVL", "998");
    });
    let id = session(&daemon, json!({})).await;
    for _ in 0..3 {
        // bash warns above 999.
        assert_eq!(output_of(&daemon, &id, "echo $SHLVL").await, "999");
    }
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env_remove("SHLVL");
    });
    let id = session(&daemon, json!({})).await;
    output_of(&daemon, &id, "export SHLVL=5").await;
    let first = output_of(&daemon, &id, "echo $SHLVL").await;
    assert_eq!(output_of(&daemon, &id, "echo $SHLVL").await, first);
    assert_eq!(first, "1");
}

#[tokio::test]
async fn the_state_of_a_session_is_bounded_by_the_next_shell_s_arguments() {
    // Programs of this daemon get one MiB for arguments and variables.
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -S -s 4096; exec \"$@\"", "sh"])
        .args([env!("CARGO_BIN_EXE_execd"), "--port", "0"]);
    let daemon = Daemon::launch(command, |_| {});
    let id = session(&daemon, json!({})).await;
    let much = "export KEPT=1; ulimit -S -s $(ulimit -H -s); v=x; \
         for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do v=$v$v; done; \
         for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do export V$i=$v; done";
    let events = run(&daemon, &id, much).await;
    assert_eq!(events.last().unwrap().exit_code(), Some(0), "{events:?}");
    let complaint = texts(&events, EventKind::Stderr).join("|");
    assert!(complaint.contains("outlive the run: V"), "{complaint}");
    let command = format!("echo $KEPT; : {}", "x".repeat(60_000));
    assert_eq!(output_of(&daemon, &id, &command).await, "1");
}

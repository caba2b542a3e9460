//! Streams, exit codes, signals, timeouts, background commands (contract: execd §4, §5, §8).

mod user;

use std::os::unix::fs::PermissionsExt;

use http::Method;
use http_body_util::BodyExt;
use osb_protocol::execd::event::{Event, EventKind};
use rustix::process::Signal;
use serde_json::json;
use tokio::{io::AsyncWriteExt, time::timeout};

use crate::support::{Daemon, LONG, alive, daemon, events, eventually, texts, written};

#[tokio::test]
async fn a_stream_begins_with_init_and_ends_with_its_last_event() {
    let daemon = daemon();
    let text = "printf 'a\\n\\nb'; printf 'two\\r\\nlines\\xff\\n' >&2; exit 3";
    let events = daemon.run(json!({ "command": text })).await;
    assert_eq!(events[0].kind, EventKind::Init);
    assert_eq!(events[0].text.len(), 32);
    assert_eq!(
        (events[1].kind, events[1].text.as_str()),
        (EventKind::Ping, "pong")
    );
    assert_eq!(texts(&events, EventKind::Stdout), ["a", "\n", "b"]);
    assert_eq!(texts(&events, EventKind::Stderr), ["two", "lines\u{FFFD}"]);
    let last = events.last().unwrap();
    let error = last.error.as_ref().unwrap();
    assert_eq!(
        (error.ename.as_str(), error.evalue.as_str()),
        ("CommandExecError", "3")
    );
    assert_eq!(error.traceback.as_ref().unwrap(), &["exit status 3"]);
    let status = daemon
        .get(&format!("/command/status/{}", events[0].text))
        .await
        .json();
    assert_eq!(
        (&status["running"], &status["exit_code"]),
        (&json!(false), &json!(3))
    );
    assert_eq!(status["content"], text);
}

/// Returns the sources and texts of the output.
fn output(events: &[Event]) -> Vec<(EventKind, &str)> {
    let kinds = [EventKind::Stdout, EventKind::Stderr];
    events
        .iter()
        .filter(|event| kinds.contains(&event.kind))
        .map(|event| (event.kind, event.text.as_str()))
        .collect()
}

#[tokio::test]
async fn lines_of_both_outputs_come_in_the_order_in_which_they_were_written() {
    use EventKind::{Stderr, Stdout};
    let daemon = daemon();
    // Again and again: if execd did not know the order, chance would decide.
    for _ in 0..50 {
        let events = daemon.run(json!({ "command": "echo a >&2; echo b" })).await;
        assert_eq!(output(&events), [(Stderr, "a"), (Stdout, "b")]);
        let events = daemon
            .run(json!({ "command": "echo a; echo b >&2; exit 3" }))
            .await;
        assert_eq!(output(&events), [(Stdout, "a"), (Stderr, "b")]);
    }
    // Lines without an end.
    let events = daemon
        .run(json!({ "command": "printf a >&2; printf b" }))
        .await;
    assert_eq!(output(&events), [(Stderr, "a"), (Stdout, "b")]);
}

#[tokio::test]
async fn the_order_of_lines_is_known_anew_after_each_read() {
    use EventKind::{Stderr, Stdout};
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    // The command writes its next lines when the client has received the last ones.
    let text = "proceed() { until test -e \"$PLACE/$1\"; do sleep 0.01; done; }
        echo 1; echo 2 >&2; proceed 2
        echo 3 >&2; echo 4; proceed 4
        echo 5 >&2; echo 6; proceed 6
        echo 7; echo 8 >&2";
    let body = json!({ "command": text, "envs": { "PLACE": place.path() } }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let mut body = Vec::new();
    while let Some(frame) = timeout(LONG, response.body_mut().frame()).await.unwrap() {
        body.extend_from_slice(&frame.unwrap().into_data().unwrap());
        // A frame may end within an event.
        let complete = body.windows(2).rposition(|pair| pair == b"\n\n");
        let events = events(&body[..complete.map_or(0, |at| at + 2)]);
        let count = output(&events).len();
        if count > 0 && count.is_multiple_of(2) {
            std::fs::write(place.path().join(count.to_string()), "").unwrap();
        }
    }
    let events = events(&body);
    let want = [
        (Stdout, "1"),
        (Stderr, "2"),
        (Stderr, "3"),
        (Stdout, "4"),
        (Stderr, "5"),
        (Stdout, "6"),
        (Stdout, "7"),
        (Stderr, "8"),
    ];
    assert_eq!(output(&events), want);
    assert_eq!(events.last().unwrap().exit_code(), Some(0));
}

#[tokio::test]
async fn success_signals_and_failed_starts_are_reported() {
    let daemon = daemon();
    let events = daemon
        .run(json!({ "command": "true", "envs": null, "timeout": null }))
        .await;
    assert_eq!(events.last().unwrap().exit_code(), Some(0));
    let events = daemon.run(json!({ "command": "kill -TERM $$" })).await;
    let error = events.last().unwrap().error.clone().unwrap();
    assert_eq!(error.evalue, "-1");
    assert_eq!(error.traceback.unwrap(), ["signal: terminated"]);
    let events = daemon.run(json!({ "argv": ["no-such-program"] })).await;
    let error = events.last().unwrap().error.clone().unwrap();
    assert_eq!(error.traceback.unwrap(), [error.evalue]);
}

#[tokio::test]
async fn argv_runs_without_a_shell_and_environments_are_layered() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join(".env");
    std::fs::write(&file, "FROM_FILE='of file'\nBOTH=file\n").unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("EXECD_ENVS", &file)
            .env("JUPYTER_TOKEN", "hidden");
    });
    let events = daemon
        .run(json!({ "argv": ["printf", "%s\\n", "$HOME", "a b"], "cwd": place.path() }))
        .await;
    assert_eq!(texts(&events, EventKind::Stdout), ["$HOME", "a b"]);
    let text = "echo \"$FROM_FILE|$BOTH|$JUPYTER_TOKEN|$PWD|$EXECD_ENVS\"";
    let envs = json!({ "BOTH": "request", "D": place.path() });
    let events = daemon
        .run(json!({ "command": text, "envs": envs, "cwd": "$D" }))
        .await;
    let (place, file) = (place.path().display(), file.display());
    assert_eq!(
        texts(&events, EventKind::Stdout),
        [format!("of file|request||{place}|{file}")]
    );
}

#[tokio::test]
async fn a_timeout_kills_the_whole_tree() {
    let daemon = daemon();
    // One child in the group, one in a session of its own. Both must print their PID before the
    // timeout. On a busy machine the next round allows more time.
    let text = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";
    let mut limit = 1000;
    let events = loop {
        let body = json!({ "command": text, "timeout": limit });
        let events = daemon.run(body).await;
        if texts(&events, EventKind::Stdout).len() == 2 {
            break events;
        }
        limit *= 2;
        assert!(limit < 60_000, "the children never print their PIDs");
    };
    let error = events.last().unwrap().error.as_ref().unwrap();
    assert_eq!(error.evalue, "-1");
    assert!(
        error
            .traceback
            .as_ref()
            .unwrap()
            .iter()
            .any(|line| line.contains("timeout"))
    );
    let pids: Vec<i32> = texts(&events, EventKind::Stdout)
        .iter()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        eventually("the child is dead", async || (!alive(pid)).then_some(())).await;
    }
}

#[tokio::test]
async fn commands_of_a_background_daemon_can_be_interrupted() {
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "trap '' INT QUIT; exec \"$0\" --port 0"])
        .arg(env!("CARGO_BIN_EXE_execd"));
    let daemon = Daemon::launch(command, |_| {});
    let text = "kill -QUIT $$; kill -INT $$; echo not reached";
    let events = daemon.run(json!({ "argv": ["sh", "-c", text] })).await;
    assert!(texts(&events, EventKind::Stdout).is_empty(), "{events:?}");
    assert_eq!(events.last().unwrap().exit_code(), Some(-1));
}

#[tokio::test]
async fn commands_start_with_default_signal_dispositions() {
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal", "--block-signal"]).args([
        env!("CARGO_BIN_EXE_execd"),
        "--port",
        "0",
    ]);
    let daemon = Daemon::launch(command, |_| {});
    // The C library reserves two signals and ignores them in spawned processes.
    let defaults = |output: &[Event]| {
        let lines = texts(output, EventKind::Stdout);
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in lines {
            let bits = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
            assert_eq!(bits & !(0b11 << 31), 0, "{line}");
        }
    };
    // A program of its own, because bash ignores SIGQUIT.
    let text = "grep -E '^Sig(Ign|Blk)' /proc/self/status";
    defaults(&daemon.run(json!({ "command": text })).await);
    let session = daemon.post("/session", json!({})).await.json();
    let path = format!("/session/{}/run", session["session_id"].as_str().unwrap());
    let run = daemon.post(&path, json!({ "command": text })).await;
    defaults(&events(&run.body));
    // The daemon itself still ignores them, as it was started.
    for signal in [Signal::HUP, Signal::QUIT, Signal::USR1] {
        daemon.signal(signal);
    }
    assert_eq!(daemon.get("/ping").await.status, 200);
}

#[tokio::test]
async fn a_fatal_signal_is_reported_by_name() {
    let daemon = daemon();
    let names = [
        (1, "hangup"),
        (10, "user defined signal 1"),
        (16, "stack fault"),
        (24, "CPU time limit exceeded"),
        (26, "virtual timer expired"),
        (27, "profiling timer expired"),
        (29, "I/O possible"),
        (30, "power failure"),
        (31, "bad system call"),
        (34, "signal 34"),
        (64, "signal 64"),
    ];
    for (number, name) in names {
        let text = format!("ulimit -c 0; kill -{number} $$; echo survived");
        let events = daemon.run(json!({ "command": text })).await;
        let error = events.last().unwrap().error.clone().unwrap();
        assert_eq!(error.evalue, "-1", "{number}");
        assert_eq!(error.traceback.unwrap(), [format!("signal: {name}")]);
    }
}

#[tokio::test]
async fn an_interrupted_command_ends_with_an_error() {
    let daemon = daemon();
    let started = daemon
        .post(
            "/command",
            json!({ "command": "sleep 1000", "background": true }),
        )
        .await;
    let id = events(&started.body)[0].text.clone();
    let stopped = daemon.delete(&format!("/command?id={id}")).await;
    assert_eq!((stopped.status.as_u16(), stopped.text()), (200, ""));
    assert_eq!(stopped.headers["content-length"], "0");
    eventually("the command ended", async || {
        let status = daemon.get(&format!("/command/status/{id}")).await.json();
        (status["exit_code"] == -1).then_some(())
    })
    .await;
    let again = daemon.delete(&format!("/code?id={id}")).await;
    assert_eq!(
        (again.status.as_u16(), again.code().as_str()),
        (500, "RUNTIME_ERROR")
    );
    assert!(again.text().contains("is not running"));
    assert_eq!(daemon.delete("/command?id=unknown").await.status, 500);
    assert_eq!(daemon.delete("/command").await.code(), "MISSING_QUERY");
}

#[tokio::test]
async fn an_interrupt_reaches_every_process_of_the_group() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    // One child obeys the signal, one ignores it, and the leader ends at once.
    let text = "cd $PLACE; sh -c 'trap \"echo > heard; exit\" TERM; echo $$ > obeys; \
        while :; do sleep 0.05; done' & sh -c 'trap \"\" TERM; echo $$ > ignores; \
        while :; do sleep 0.05; done' & wait";
    let body = json!({ "command": text, "background": true, "envs": { "PLACE": place.path() } });
    let started = daemon.post("/command", body).await;
    let id = events(&started.body)[0].text.clone();
    let mut members = Vec::new();
    for name in ["obeys", "ignores"] {
        let pid = written(&at(name)).await;
        members.push(pid.trim().parse().unwrap());
    }
    let stopped = daemon.delete(&format!("/command?id={id}")).await;
    assert_eq!(stopped.status, 200);
    assert!(at("heard").exists(), "SIGTERM came to the leader only");
    for pid in members {
        eventually("the process ended", async || (!alive(pid)).then_some(())).await;
    }
}

#[tokio::test]
async fn a_directory_is_entered_as_the_user_that_the_command_runs_as() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test changes identities, so it needs root"
    );
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(place.path(), 0o755);
    let at = |name: &str| {
        let path = place.path().join(name);
        std::fs::create_dir(&path).unwrap();
        mode(&path, 0o700);
        path
    };
    let (of_root, of_user) = (at("root"), at("user"));
    std::os::unix::fs::chown(&of_user, Some(12345), Some(12345)).unwrap();
    for (cwd, uid, enters) in [
        (&of_root, 12345, false),
        (&of_user, 12345, true),
        (&of_root, 0, true),
    ] {
        for background in [false, true] {
            let body = json!({
                "argv": ["/bin/pwd"], "cwd": cwd, "uid": uid, "background": background,
            });
            let events = daemon.run(body).await;
            let status = format!("/command/status/{}", events[0].text);
            if background {
                let status = eventually("the command ended", async || {
                    let status = daemon.get(&status).await.json();
                    (status["running"] == false).then_some(status)
                })
                .await;
                let error = status["error"].as_str().unwrap_or_default();
                assert_eq!(error.contains("Permission denied"), !enters, "{status}");
            } else if enters {
                assert_eq!(texts(&events, EventKind::Stdout), [cwd.to_str().unwrap()]);
            } else {
                let error = events.last().unwrap().error.clone().unwrap();
                assert!(error.evalue.contains("Permission denied"), "{error:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_command_of_another_user_has_none_of_the_daemon_s_groups() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root to become another user"
    );
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--groups", "0,4", env!("CARGO_BIN_EXE_execd")])
        .args(["--port", "0"]);
    let daemon = Daemon::launch(command, |_| {});
    for (request, want) in [
        (json!({ "uid": 12345 }), "12345 12345 12345"),
        (json!({ "uid": 65534 }), "65534 65534 65534"),
        (json!({ "uid": 12345, "gid": 54321 }), "12345 54321 54321"),
    ] {
        let mut body = json!({ "command": "echo $(id -u) $(id -g) $(id -G)", "cwd": "/" });
        let members = body.as_object_mut().unwrap();
        members.extend(request.as_object().unwrap().clone());
        let events = daemon.run(body).await;
        assert_eq!(texts(&events, EventKind::Stdout), [want], "{request}");
    }
}

#[tokio::test]
async fn an_interrupt_continues_without_its_client() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let ready = place.path().join("ready");
    let heard = place.path().join("heard");
    let text = "trap 'echo > \"$HEARD\"' TERM; echo > \"$READY\"; while :; do sleep 0.05; done";
    let envs = json!({ "READY": &ready, "HEARD": &heard });
    let body = json!({ "command": text, "background": true, "envs": envs });
    let started = daemon.post("/command", body).await;
    let id = events(&started.body)[0].text.clone();
    eventually("the trap is set", async || ready.exists().then_some(())).await;
    let mut client = tokio::net::TcpStream::connect(("127.0.0.1", daemon.port()))
        .await
        .unwrap();
    let request = format!("DELETE /command?id={id} HTTP/1.1\r\nhost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    eventually("SIGTERM arrived", async || heard.exists().then_some(())).await;
    drop(client);
    eventually("the command was killed", async || {
        let status = daemon.get(&format!("/command/status/{id}")).await.json();
        (status["exit_code"] == -1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn background_commands_are_read_by_cursor() {
    let daemon = daemon();
    let text = "echo one; echo two >&2; exit 4";
    let events = daemon
        .run(json!({ "command": text, "background": true }))
        .await;
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::Init,
            EventKind::Ping,
            EventKind::ExecutionComplete
        ]
    );
    let id = &events[0].text;
    let status = eventually("the command ended", async || {
        let status = daemon.get(&format!("/command/status/{id}")).await.json();
        (status["running"] == false).then_some(status)
    })
    .await;
    assert_eq!(
        (&status["exit_code"], &status["error"]),
        (&json!(4), &json!("exit status 4"))
    );
    let logs = daemon.get(&format!("/command/{id}/logs")).await;
    assert_eq!(logs.text(), "one\ntwo\n");
    assert_eq!(logs.headers["execd-commands-tail-cursor"], "8");
    let rest = daemon.get(&format!("/command/{id}/logs?cursor=4")).await;
    assert_eq!(rest.text(), "two\n");
    for cursor in ["8", "99"] {
        let rest = daemon
            .get(&format!("/command/{id}/logs?cursor={cursor}"))
            .await;
        assert_eq!((rest.status.as_u16(), rest.text()), (200, ""));
        assert_eq!(rest.headers["execd-commands-tail-cursor"], cursor);
    }
    let foreground = daemon.run(json!({ "command": "true" })).await;
    for path in [
        format!("/command/{id}/logs?cursor=-1"),
        format!("/command/{}/logs", foreground[0].text),
        "/command/unknown/logs".to_owned(),
    ] {
        let refused = daemon.get(&path).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (400, "INVALID_REQUEST_BODY")
        );
    }
    let unknown = daemon.get("/command/status/unknown").await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code().as_str()),
        (404, "INVALID_REQUEST_BODY")
    );
}

#[tokio::test]
async fn exit_codes_of_background_commands_are_reported() {
    let daemon = daemon();
    for (request, code) in [
        (json!({ "command": "exit 7" }), 7),
        (json!({ "command": "sleep 1000", "timeout": 300 }), -1),
        (json!({ "argv": ["/no/such/program"] }), 255),
    ] {
        let mut body = request.clone();
        body["background"] = json!(true);
        let started = events(&daemon.post("/command", body).await.body);
        let path = format!("/command/status/{}", started[0].text);
        let status = eventually("it ended", async || {
            let status = daemon.get(&path).await.json();
            (status["running"] == json!(false)).then_some(status)
        })
        .await;
        assert_eq!(status["exit_code"], json!(code), "{request}: {status}");
    }
}

#[tokio::test]
async fn streams_have_their_headers_and_a_tilde_is_the_home() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("work")).unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("HOME", place.path());
    });
    let body = json!({ "command": "pwd; echo $SET", "cwd": "~/work", "envs": { "SET": "yes" } });
    let answer = daemon.post("/command", body).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("connection", "keep-alive"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(answer.headers[name], value, "{name}");
    }
    let work = place.path().join("work").display().to_string();
    let events = events(&answer.body);
    assert_eq!(texts(&events, EventKind::Stdout), [work.as_str(), "yes"]);
}

#[tokio::test]
async fn the_environment_file_is_read_for_each_command() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("HOME", place.path())
            .env("EXECD_ENVS", "~/variables");
    });
    let read_variable = async || {
        let events = daemon
            .run(json!({ "command": "echo ${FROM_FILE-unset}" }))
            .await;
        texts(&events, EventKind::Stdout)[0].to_owned()
    };
    assert_eq!(read_variable().await, "unset");
    for value in ["one", "two"] {
        let file = place.path().join("variables");
        std::fs::write(file, format!("FROM_FILE={value}\n")).unwrap();
        assert_eq!(read_variable().await, value);
    }
}

#[tokio::test]
async fn a_request_that_breaks_a_rule_is_refused() {
    let daemon = daemon();
    for body in [
        json!({}),
        json!({ "command": "a", "argv": ["a"] }),
        json!({ "command": "a", "cwd": "/none" }),
    ] {
        let refused = daemon.post("/command", body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (400, "INVALID_REQUEST_BODY")
        );
    }
}

#[tokio::test]
async fn many_commands_run_at_once() {
    let daemon = daemon();
    let text = |index| format!("echo {index}; echo error {index} >&2; exit {index}");
    let runs = (0..50).map(|index| daemon.run(json!({ "command": text(index) })));
    for (index, events) in futures::future::join_all(runs)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(
            events.last().unwrap().exit_code(),
            Some(i32::try_from(index).unwrap())
        );
        assert_eq!(texts(&events, EventKind::Stdout), [index.to_string()]);
        let error = format!("error {index}");
        assert_eq!(texts(&events, EventKind::Stderr), [error]);
    }
}

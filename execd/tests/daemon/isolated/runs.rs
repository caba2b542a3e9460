//! Foreground runs, and the shell state that they preserve (contract: execd A4.4).

use http::Method;
use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{Isolated, exit, failure};
use crate::support::{Answer, events, eventually, texts};

#[tokio::test]
async fn the_state_of_the_shell_outlives_runs_that_fail() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    assert_eq!(
        isolated.output_of(&id, "pwd").await,
        isolated.work().to_str().unwrap()
    );
    let set = "cd /usr; A=1; export B=\"two\nlines 'q'\"; f() { echo \"f $1\"; }; arr=(a 'b c'); set -u; umask 077";
    assert_eq!(isolated.output_of(&id, set).await, "");
    let ask = "pwd; f x; echo \"$A $B ${arr[1]}\"; umask; set -o | grep nounset; env | grep -c ^A=";
    let events = isolated.run(&id, ask).await;
    let lines = texts(&events, EventKind::Stdout).join("|");
    assert_eq!(
        lines,
        "/usr|f x|1 two|lines 'q' b c|0077|nounset        \ton|0"
    );
    assert_eq!(
        failure(&events),
        exit("1"),
        "the status of its last command"
    );
    // A run that does not complete leaves the state unchanged.
    for (code, end) in [
        ("A=2; cd /; exit 7", exit("7")),
        ("A=2; exec sh -c 'exit 4'", exit("4")),
        ("A=2; kill -KILL $$", exit("-1")),
        ("A=2; kill -RTMIN $$", exit("-1")),
        ("if then", exit("2")),
    ] {
        assert_eq!(failure(&isolated.run(&id, code).await), end, "{code}");
        assert_eq!(
            isolated.output_of(&id, "echo $A $PWD").await,
            "1 /usr",
            "{code}"
        );
    }
    assert_eq!(
        failure(&isolated.run(&id, "bash -c 'exit 42'").await),
        exit("42")
    );
    let other = isolated.session(json!({})).await;
    assert_eq!(isolated.output_of(&other, "echo ${A-unset}").await, "unset");
}

#[tokio::test]
async fn lines_of_both_outputs_come_in_the_order_in_which_they_were_written() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let order = [EventKind::Stderr, EventKind::Stdout];
    for _ in 0..20 {
        let events = isolated.run(&id, "echo a >&2; echo b").await;
        let kinds = events.iter().map(|event| event.kind);
        let kinds: Vec<_> = kinds.filter(|kind| order.contains(kind)).collect();
        assert_eq!(kinds, order);
    }
}

#[tokio::test]
async fn a_session_survives_the_loss_of_its_directory() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let work = isolated.work().to_str().unwrap().to_owned();
    let lose = "mkdir lost; cd lost; A=1; rmdir ../lost";
    isolated.output_of(&id, lose).await;
    let events = isolated.run(&id, "pwd; echo $PWD $A").await;
    let complaint = texts(&events, EventKind::Stderr);
    let want = format!("cd: {work}/lost: No such file or directory");
    assert!(
        complaint.len() == 1 && complaint[0].ends_with(&want),
        "{events:?}"
    );
    let want = [work.clone(), format!("{work} 1")];
    assert_eq!(texts(&events, EventKind::Stdout), want);
    // The notice appears once.
    let events = isolated.run(&id, "cd /; echo $A").await;
    assert!(texts(&events, EventKind::Stderr).is_empty(), "{events:?}");
    assert_eq!(texts(&events, EventKind::Stdout), ["1"]);
}

#[tokio::test]
async fn output_is_sent_by_stream_and_line() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let events = isolated
        .run(&id, "echo a; echo; echo b >&2; printf c")
        .await;
    assert_eq!(texts(&events, EventKind::Stdout), ["a", "\n", "c"]);
    assert_eq!(texts(&events, EventKind::Stderr), ["b"]);
    let events = isolated.run(&id, "no-such-program").await;
    assert!(
        texts(&events, EventKind::Stderr)[0].contains("line 1: no-such-program"),
        "{events:?}"
    );
    assert_eq!(failure(&events), exit("127"));
    // Background children of a run block no later run, and survive.
    let started = isolated.output_of(&id, "sleep 1000 & echo $!").await;
    assert_eq!(
        isolated
            .output_of(&id, &format!("kill -0 {started} && echo there"))
            .await,
        "there"
    );
}

#[tokio::test]
async fn kept_traps_and_options_move_no_line_and_lose_nothing() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let set = "trap 'echo \"it'\\''s\nhere\"' USR1\ntrap '' HUP\ntrap 'echo term' TERM\nset -C -u";
    isolated.output_of(&id, set).await;
    // A second time, because each run reports the kept state again.
    isolated.output_of(&id, "X=1").await;
    let events = isolated.run(&id, "echo $LINENO\nno-such-program").await;
    assert_eq!(texts(&events, EventKind::Stdout), ["1"]);
    assert!(
        texts(&events, EventKind::Stderr)[0].contains("line 2: no-such-program"),
        "{events:?}"
    );
    let ask = "trap -p HUP; kill -USR1 $$; kill -TERM $$; echo $- | grep -o '[Cu]'; echo $X";
    assert_eq!(
        isolated.output_of(&id, ask).await,
        "trap -- '' SIGHUP|it's|here|term|u|C|1"
    );
}

#[tokio::test]
async fn variables_of_one_run_do_not_outlive_it() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "export OLD='was'; PLAIN=p").await;
    let body = json!({
        "code": "echo \"$OLD $PLAIN $NEW\"; printenv odd.name; KEPT=$NEW; OLD=changed; PLAIN=changed",
        "envs": { "OLD": "it's", "PLAIN": "q", "NEW": "n\nm", "odd.name": "o", "EMPTY": null },
    });
    let events = isolated.run_with(&id, body).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["it's q n", "m", "o"]);
    let ask = "echo \"$OLD $PLAIN ${NEW-unset} ${EMPTY-unset} $KEPT\"; env | grep -c ^PLAIN=; true";
    assert_eq!(
        isolated.output_of(&id, ask).await,
        "was p unset unset n|m|0"
    );
}

#[tokio::test]
async fn a_timeout_ends_the_run_and_nothing_else() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let pid = isolated.output_of(&id, "A=1; sleep 1000 & echo $!").await;
    let code = "trap '' INT TERM; setsid sleep 1001 & A=2; sleep 1002; sleep 1003";
    let body = json!({ "code": code, "timeout_seconds": 1 });
    let (name, value) = failure(&isolated.run_with(&id, body).await);
    assert_eq!(name, "TimeoutError");
    assert!(value.parse::<i64>().is_err());
    let ask = format!("echo $A; kill -0 {pid} && ps -e -o args= | grep -c '[s]leep 100'");
    assert_eq!(
        isolated.output_of(&id, &ask).await,
        "1|1",
        "only what was there before"
    );
}

#[tokio::test]
async fn a_disconnect_ends_the_run_and_not_the_session() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "A=1").await;
    let body = json!({ "code": "A=2; echo running > there; sleep 1000" }).to_string();
    let path = format!("/v1/isolated/session/{id}/run");
    let response = isolated.daemon.send(Method::POST, &path, &[], body).await;
    let there = format!("/v1/isolated/session/{id}/files/download?path=there");
    eventually("the run is under way", async || {
        (isolated.daemon.get(&there).await.text() == "running\n").then_some(())
    })
    .await;
    drop(response);
    assert_eq!(
        isolated
            .output_of(
                &id,
                "echo $A; ps -e -o args= | grep -c '[s]leep 1000'; true"
            )
            .await,
        "1|0"
    );
}

#[tokio::test]
async fn runs_of_one_session_take_turns_and_sessions_run_in_parallel() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "N=0").await;
    let one = || isolated.run(&id, "n=$N; sleep 0.05; N=$((n+1))");
    tokio::join!(one(), one(), one());
    assert_eq!(isolated.output_of(&id, "echo $N").await, "3");
    let other = isolated.session(json!({})).await;
    let path = format!("/v1/isolated/session/{id}/run");
    let body = json!({ "code": "sleep 1000" }).to_string();
    let busy = || isolated.daemon.send(Method::POST, &path, &[], body.clone());
    let mut under_way = vec![busy().await];
    assert_eq!(isolated.output_of(&other, "echo free").await, "free");
    for _ in 0..8 {
        under_way.push(busy().await);
    }
    isolated.delete(&id).await;
    // Whether the runs had started, were starting, or waited for their turn.
    for run in under_way {
        let (name, value) = failure(&events(&Answer::of(run).await.body));
        assert_eq!(
            (name.as_str(), value.as_str()),
            ("RuntimeError", "session terminated")
        );
    }
}

#[tokio::test]
async fn a_session_of_another_user_has_that_user_s_home() {
    let prepare = |command: &mut std::process::Command| {
        command.env("HOME", "/root").env_remove("USER");
    };
    let Some(isolated) = Isolated::with("", prepare).await else {
        return;
    };
    for (user, home) in [
        (json!({ "uid": 2, "gid": 2 }), "/bin"),
        (json!({ "uid": 4242, "gid": 4343 }), "/"),
        (json!({}), "/root"),
    ] {
        let id = isolated.session(user).await;
        assert_eq!(isolated.output_of(&id, "echo $HOME").await, home);
    }
}

//! Foreground runs, and the state that they hand on (contract: execd A4.4).

use http::Method;
use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{Isolated, exit, failure};
use crate::support::{Answer, events, eventually, texts};

#[tokio::test]
async fn the_state_of_the_shell_outlives_runs_and_what_ends_them() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    assert_eq!(
        isolated.told(&id, "pwd").await,
        isolated.work().to_str().unwrap()
    );
    let set = "cd /usr; A=1; export B=\"two\nlines 'q'\"; f() { echo \"f $1\"; }; arr=(a 'b c'); set -u; umask 077";
    assert_eq!(isolated.told(&id, set).await, "");
    let ask = "pwd; f x; echo \"$A $B ${arr[1]}\"; umask; set -o | grep nounset; env | grep -c ^A=";
    let events = isolated.run(&id, ask).await;
    let told = texts(&events, EventKind::Stdout).join("|");
    assert_eq!(
        told,
        "/usr|f x|1 two|lines 'q' b c|0077|nounset        \ton|0"
    );
    assert_eq!(
        failure(&events),
        exit("1"),
        "the status of its last command"
    );
    // What does not come to its end leaves the state as it was.
    for (code, end) in [
        ("A=2; cd /; exit 7", exit("7")),
        ("A=2; exec sh -c 'exit 4'", exit("4")),
        ("A=2; kill -KILL $$", exit("-1")),
        ("A=2; kill -RTMIN $$", exit("-1")),
        ("if then", exit("2")),
    ] {
        assert_eq!(failure(&isolated.run(&id, code).await), end, "{code}");
        assert_eq!(isolated.told(&id, "echo $A $PWD").await, "1 /usr", "{code}");
    }
    assert_eq!(
        failure(&isolated.run(&id, "bash -c 'exit 42'").await),
        exit("42")
    );
    let other = isolated.session(json!({})).await;
    assert_eq!(isolated.told(&other, "echo ${A-unset}").await, "unset");
}

#[tokio::test]
async fn output_is_told_by_stream_and_line() {
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
    // What a run leaves behind holds nobody, and stays.
    let started = isolated.told(&id, "sleep 1000 & echo $!").await;
    assert_eq!(
        isolated
            .told(&id, &format!("kill -0 {started} && echo there"))
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
    isolated.told(&id, set).await;
    // A second time, because what is kept is told anew by each run.
    isolated.told(&id, "X=1").await;
    let events = isolated.run(&id, "echo $LINENO\nno-such-program").await;
    assert_eq!(texts(&events, EventKind::Stdout), ["1"]);
    assert!(
        texts(&events, EventKind::Stderr)[0].contains("line 2: no-such-program"),
        "{events:?}"
    );
    let ask = "trap -p HUP; kill -USR1 $$; kill -TERM $$; echo $- | grep -o '[Cu]'; echo $X";
    assert_eq!(
        isolated.told(&id, ask).await,
        "trap -- '' SIGHUP|it's|here|term|u|C|1"
    );
}

#[tokio::test]
async fn variables_of_one_run_are_gone_and_everything_else_stays() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.told(&id, "export OLD='was'; PLAIN=p").await;
    let body = json!({
        "code": "echo \"$OLD $PLAIN $NEW\"; printenv odd.name; KEPT=$NEW; OLD=changed; PLAIN=changed",
        "envs": { "OLD": "it's", "PLAIN": "q", "NEW": "n\nm", "odd.name": "o", "EMPTY": null },
    });
    let events = isolated.run_with(&id, body).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["it's q n", "m", "o"]);
    let ask = "echo \"$OLD $PLAIN ${NEW-unset} ${EMPTY-unset} $KEPT\"; env | grep -c ^PLAIN=; true";
    assert_eq!(isolated.told(&id, ask).await, "was p unset unset n|m|0");
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended_and_nothing_else() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let pid = isolated.told(&id, "A=1; sleep 1000 & echo $!").await;
    let code = "trap '' INT TERM; setsid sleep 1001 & A=2; sleep 1002; sleep 1003";
    let body = json!({ "code": code, "timeout_seconds": 1 });
    let (name, value) = failure(&isolated.run_with(&id, body).await);
    assert_eq!(name, "TimeoutError");
    assert!(value.parse::<i64>().is_err());
    let ask = format!("echo $A; kill -0 {pid} && ps -e -o args= | grep -c '[s]leep 100'");
    assert_eq!(
        isolated.told(&id, &ask).await,
        "1|1",
        "only what was there before"
    );
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run_and_not_its_session() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.told(&id, "A=1").await;
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
            .told(
                &id,
                "echo $A; ps -e -o args= | grep -c '[s]leep 1000'; true"
            )
            .await,
        "1|0"
    );
}

#[tokio::test]
async fn runs_of_a_session_take_turns_and_sessions_do_not_wait() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.told(&id, "N=0").await;
    let one = || isolated.run(&id, "n=$N; sleep 0.05; N=$((n+1))");
    tokio::join!(one(), one(), one());
    assert_eq!(isolated.told(&id, "echo $N").await, "3");
    let other = isolated.session(json!({})).await;
    let path = format!("/v1/isolated/session/{id}/run");
    let body = json!({ "code": "sleep 1000" }).to_string();
    let busy = || isolated.daemon.send(Method::POST, &path, &[], body.clone());
    let mut under_way = vec![busy().await];
    assert_eq!(isolated.told(&other, "echo free").await, "free");
    for _ in 0..8 {
        under_way.push(busy().await);
    }
    isolated.delete(&id).await;
    // Whether they had begun, were about to, or waited for their turn.
    for run in under_way {
        let (name, value) = failure(&events(&Answer::of(run).await.body));
        assert_eq!(
            (name.as_str(), value.as_str()),
            ("RuntimeError", "session terminated")
        );
    }
}

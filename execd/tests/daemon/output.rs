//! Output that is large, read slowly, or outlives its command.

use http::Method;
use http_body_util::BodyExt;
use osb_protocol::execd::event::EventKind;
use serde_json::json;

use crate::support::{Answer, alive, daemon, events, eventually, texts};

#[tokio::test]
async fn every_line_arrives_once_and_in_order() {
    let daemon = daemon();
    let events = daemon.run(json!({ "command": "seq 1 100000" })).await;
    let lines = texts(&events, EventKind::Stdout);
    assert_eq!(lines.len(), 100_000);
    assert!(
        lines
            .iter()
            .zip(1..)
            .all(|(line, number)| *line == number.to_string())
    );
}

#[tokio::test]
async fn a_long_line_is_one_event() {
    let daemon = daemon();
    let events = daemon
        .run(json!({ "command": "head -c 3000000 /dev/zero | tr '\\0' x" }))
        .await;
    let lines = texts(&events, EventKind::Stdout);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].len(), 3_000_000);
}

#[tokio::test]
async fn a_line_above_three_mebibytes_is_several_events() {
    const MOST: usize = 3 << 20;
    let daemon = daemon();
    for len in [MOST - 1, MOST, MOST + 1, 2 * MOST, 2 * MOST + 1] {
        let text = format!("head -c {len} /dev/zero | tr '\\0' x; echo; echo; echo end");
        let events = daemon.run(json!({ "command": text })).await;
        let lines = texts(&events, EventKind::Stdout);
        let (long, rest) = lines.split_at(len.div_ceil(MOST));
        assert_eq!(rest, ["\n", "end"], "{len}");
        assert!(long.iter().all(|part| part.len() <= MOST), "{len}");
        assert!(long.concat().len() == len, "{len}");
    }
    // Of nine bytes, so that a part of equal length would end within a character.
    let text = "yes 'ä€😀' | tr -d '\\n' | head -c 9000000 >&2";
    let events = daemon.run(json!({ "command": text })).await;
    let parts = texts(&events, EventKind::Stderr);
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.len() <= MOST + 3));
    assert!(parts.concat() == "ä€😀".repeat(1_000_000));
}

#[tokio::test]
async fn a_long_line_is_not_escaped_in_memory() {
    const LEN: usize = 8 << 20;
    let daemon = daemon();
    let text = format!("head -c {LEN} /dev/zero");
    let events = daemon.run(json!({ "command": text })).await;
    let lines = texts(&events, EventKind::Stdout);
    let lengths: Vec<_> = lines.iter().map(|line| line.len()).collect();
    assert_eq!(lengths, [3 << 20, 3 << 20, 2 << 20]);
    assert!(lines.concat().bytes().all(|byte| byte == 0));
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.unwrap().trim().trim_end_matches(" kB");
    // The escaped line would take 48 MiB more.
    assert!(most.parse::<usize>().unwrap() < 48 << 10, "{most} KiB");
}

/// Returns the anonymous memory of a process, in KiB.
fn anonymous_kib(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

#[tokio::test]
async fn memory_is_given_back_after_large_outputs() {
    const BOUND: usize = 8 << 10;
    let daemon = daemon();
    let lines = "seq 1 400000";
    let long = "head -c 20000000 /dev/zero | tr '\\0' x";
    for _ in 0..6 {
        let run = async |text: &str| {
            let answer = daemon.post("/command", json!({ "command": text })).await;
            assert!(answer.body.len() > 1_000_000);
        };
        let runs = [lines, long, lines, lines].map(run);
        futures::future::join_all(runs).await;
    }
    // The kernel's figures lag a little.
    eventually("the memory is given back", async || {
        let now = anonymous_kib(daemon.pid());
        eprintln!("{now} KiB");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        (now < BOUND).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_blocks_no_command_and_loses_nothing() {
    let daemon = daemon();
    let text = "seq 1 2000000 | tee /dev/stderr | wc -c > /dev/null; echo done > \"$MARK\"";
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    let body = json!({ "command": text, "envs": { "MARK": &mark } }).to_string();
    let response = daemon.send(Method::POST, "/command", &[], body).await;
    // The client reads nothing until the command has ended.
    eventually("the command ended", async || mark.exists().then_some(())).await;
    let answer = Answer::of(response).await;
    let events = events(&answer.body);
    let lines = texts(&events, EventKind::Stderr);
    assert_eq!(lines.len(), 2_000_000);
    assert_eq!(lines.last(), Some(&"2000000"));
    assert_eq!(events.last().unwrap().exit_code(), Some(0));
}

#[tokio::test]
async fn a_child_that_keeps_the_pipe_open_blocks_nothing_and_survives() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    // The child writes after the command ended: a closed pipe would kill it before it leaves its mark.
    let child =
        "while ! test -e \"$GO\"; do sleep 0.05; done; echo late; echo later; echo x > \"$MARK\"";
    let go = place.path().join("go");
    let text = format!("({child}) & echo $!");
    let events = daemon
        .run(json!({ "command": text, "envs": { "MARK": &mark, "GO": &go } }))
        .await;
    assert_eq!(events.last().unwrap().exit_code(), Some(0));
    let pid = texts(&events, EventKind::Stdout)[0].parse().unwrap();
    assert!(alive(pid));
    std::fs::write(&go, "").unwrap();
    eventually("the child left its mark", async || {
        mark.exists().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_disconnect_does_not_end_the_command() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let (go, mark) = (place.path().join("go"), place.path().join("mark"));
    let text =
        "echo out; while ! test -e \"$GO\"; do echo more; sleep 0.05; done; echo x > \"$MARK\"";
    let body = json!({ "command": text, "envs": { "MARK": &mark, "GO": &go } }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    assert!(response.body_mut().frame().await.is_some());
    drop(response);
    std::fs::write(&go, "").unwrap();
    eventually("the command went on", async || mark.exists().then_some(())).await;
}

//! Replay of events: numbering, resumed streams, and repeated requests.

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use osb_protocol::execd::event::{Event, EventKind};
use serde_json::{Value, json};

use crate::support::{Answer, Daemon, daemon, events, eventually, texts};

/// Returns the numbered events, each with its number and the frame as sent. Pings have no number, and
/// their count depends on timing.
fn numbered(body: &[u8]) -> Vec<(u64, &str)> {
    let text = std::str::from_utf8(body).unwrap();
    text.split_terminator("\n\n")
        .filter_map(|frame| {
            let event: Value = serde_json::from_str(frame).unwrap();
            Some((event.get("seq")?.as_u64().unwrap(), frame))
        })
        .collect()
}

fn numbers(body: &[u8]) -> Vec<u64> {
    numbered(body).into_iter().map(|(seq, _)| seq).collect()
}

async fn since(daemon: &Daemon, id: &str, since: u64) -> Answer {
    let path = format!("/command/{id}/events?since={since}");
    Answer::of(daemon.send(Method::GET, &path, &[], "").await).await
}

fn id_of(events: &[Event]) -> &str {
    assert_eq!(events[0].kind, EventKind::Init);
    &events[0].text
}

#[tokio::test]
async fn events_are_numbered_and_can_be_replayed() {
    let daemon = daemon();
    let body = json!({ "command": "seq 1 5000; echo x >&2; exit 3" }).to_string();
    let answer = Answer::of(daemon.send(Method::POST, "/command", &[], body).await).await;
    let first = events(&answer.body);
    let count = 2 + 5000 + 1 + 1;
    assert_eq!(numbers(&answer.body), (1..=count).collect::<Vec<_>>());
    let id = id_of(&first);
    let again = since(&daemon, id, 0).await;
    assert_eq!(again.headers["content-type"], "text/event-stream");
    let all = numbered(&answer.body);
    assert_eq!(numbered(&again.body), all);
    for from in [1, 2, 3, 2500, count - 1, count] {
        let rest = since(&daemon, id, from).await;
        let want = all.iter().filter(|(seq, _)| *seq > from).copied();
        assert_eq!(numbered(&rest.body), want.collect::<Vec<_>>(), "{from}");
    }
}

#[tokio::test]
async fn a_client_resumes_a_lost_stream() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let go = place.path().join("go");
    let text = "echo one; while ! test -e \"$GO\"; do sleep 0.05; done; echo two";
    let body = json!({ "command": text, "envs": { "GO": &go } }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let mut seen = Vec::new();
    while !seen.windows(3).any(|part| part == b"one") {
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        seen.extend_from_slice(&frame.into_data().unwrap());
    }
    drop(response);
    let id = id_of(&events(&seen)).to_owned();
    let last = *numbers(&seen).last().unwrap();
    // The request waits for further events, whether or not the command has ended by then.
    let rest = since(&daemon, &id, last);
    let (rest, written) = tokio::join!(rest, tokio::fs::write(&go, ""));
    written.unwrap();
    assert_eq!(numbers(&rest.body), [4, 5]);
    let rest = events(&rest.body);
    assert_eq!(texts(&rest, EventKind::Stdout), ["two"]);
    assert_eq!(rest.last().unwrap().exit_code(), Some(0));
}

#[tokio::test]
async fn several_clients_follow_one_command() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let go = place.path().join("go");
    let text = "while ! test -e \"$GO\"; do sleep 0.05; done; seq 1 200000";
    let body = json!({ "command": text, "envs": { "GO": &go } }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    let opening = frame.into_data().unwrap().to_vec();
    let id = id_of(&events(&opening)).to_owned();
    let followers = (0..3).map(|_| since(&daemon, &id, 0));
    let followers = futures::future::join_all(followers);
    let (followers, (), rest) = tokio::join!(
        followers,
        async { tokio::fs::write(&go, "").await.unwrap() },
        Answer::of(response)
    );
    let mut whole = opening;
    whole.extend_from_slice(&rest.body);
    let numbered = numbers(&whole);
    assert_eq!(numbered.len(), 200_003);
    for follower in followers {
        assert_eq!(numbers(&follower.body), numbered);
        let events = events(&follower.body);
        let lines = texts(&events, EventKind::Stdout);
        assert!(
            lines
                .iter()
                .zip(1..)
                .all(|(line, n)| *line == n.to_string())
        );
    }
}

#[tokio::test]
async fn requests_that_cannot_be_replayed_are_refused_with_a_reason() {
    let daemon = daemon();
    let run = daemon.run(json!({ "command": "true" })).await;
    let id = id_of(&run);
    for (path, status, why) in [
        (format!("/command/{id}/events?since=x"), 400, "since"),
        (format!("/command/{id}/events?since=-1"), 400, "since"),
        (format!("/command/{id}/events?since=4"), 400, "3"),
        ("/command/none/events".to_owned(), 404, "none"),
    ] {
        let answer = Answer::of(daemon.send(Method::GET, &path, &[], "").await).await;
        assert_eq!(answer.status, status, "{path}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    let background = json!({ "command": "echo x", "background": true });
    let start = daemon.post("/command", background).await;
    let again = since(&daemon, id_of(&events(&start.body)), 0).await;
    assert!(!numbered(&start.body).is_empty());
    assert_eq!(numbered(&again.body), numbered(&start.body));
}

#[tokio::test]
async fn a_request_sent_twice_runs_once() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let count = place.path().join("count");
    let text = "echo x >> \"$COUNT\"; sleep 0.2; echo done";
    let body = json!({ "command": text, "envs": { "COUNT": &count } }).to_string();
    let key = [("idempotency-key", "k1")];
    let send = async |key: &[(&str, &str)], body: String| {
        Answer::of(daemon.send(Method::POST, "/command", key, body).await).await
    };
    let (first, second) = tokio::join!(send(&key, body.clone()), send(&key, body.clone()));
    let third = send(&key, body.clone()).await;
    assert_eq!(numbered(&first.body), numbered(&second.body));
    assert_eq!(numbered(&first.body), numbered(&third.body));
    assert_eq!(texts(&events(&first.body), EventKind::Stdout), ["done"]);
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\n");
    send(&[("idempotency-key", "k2")], body).await;
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\nx\n");
    let other = send(&key, json!({ "command": "true" }).to_string()).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    let empty = send(
        &[("idempotency-key", "")],
        json!({ "command": "true" }).to_string(),
    )
    .await;
    assert_eq!(empty.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_repeated_background_command_or_failed_start_is_joined() {
    let daemon = daemon();
    for (key, body) in [
        ("b", json!({ "command": "echo x", "background": true })),
        ("f", json!({ "argv": ["no-such-program"] })),
        (
            "n",
            json!({ "argv": ["no-such-program"], "background": true }),
        ),
    ] {
        let key = [("idempotency-key", key)];
        let send = async || {
            let body = body.to_string();
            Answer::of(daemon.send(Method::POST, "/command", &key, body).await).await
        };
        let (first, second) = (send().await, send().await);
        assert_eq!(first.status, StatusCode::OK);
        assert!(!numbered(&first.body).is_empty());
        assert_eq!(numbered(&first.body), numbered(&second.body));
    }
    // A refused request does not reserve its key.
    let key = [("idempotency-key", "r")];
    let bad = json!({ "command": "true", "cwd": "/nowhere" }).to_string();
    let bad = Answer::of(daemon.send(Method::POST, "/command", &key, bad).await).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    let good = json!({ "command": "true" }).to_string();
    let good = Answer::of(daemon.send(Method::POST, "/command", &key, good).await).await;
    assert_eq!(good.status, StatusCode::OK);
}

#[tokio::test]
async fn a_command_without_a_reader_keeps_its_last_output() {
    let daemon = daemon();
    // More output than execd keeps for replay.
    let text = "yes 0123456789012345678901234567890123456789 | head -n 1500000";
    let body = json!({ "command": text }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    let opening = frame.into_data().unwrap();
    drop(response);
    let opening = events(&opening);
    let id = id_of(&opening);
    let status = format!("/command/status/{id}");
    eventually("the command ended", async || {
        let status = daemon.get(&status).await.json();
        (status["running"] == false).then_some(())
    })
    .await;
    // The final event may displace another old one between the two requests, so the first number
    // that is kept is asked for again if execd no longer has it.
    let (first, rest) = eventually("the kept events are sent", async || {
        let refused = since(&daemon, id, 2).await;
        assert_eq!(refused.status, StatusCode::GONE);
        let body: Value = serde_json::from_slice(&refused.body).unwrap();
        let message = body["message"].as_str().unwrap();
        let first: u64 = message
            .split_whitespace()
            .find_map(|word| word.parse().ok())
            .expect("the message names the first event that is kept");
        let rest = since(&daemon, id, first - 1).await;
        (rest.status == StatusCode::OK).then_some((first, rest))
    })
    .await;
    assert_eq!(numbers(&rest.body), (first..=1_500_003).collect::<Vec<_>>());
}

//! Tokens, request ids, unknown routes, metrics (contract: execd §2, §11).

use std::process::Command;

use http::Method;
use http_body_util::BodyExt;
use osb_protocol::execd::event::EventKind;
use serde_json::{Value, json};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Answer, Daemon, LONG, daemon, events, texts};

const TOKEN: &str = "a-token-of-this-test";

fn guarded() -> Daemon {
    Daemon::confined(&["--port", "0"], |command| {
        command.env("EXECD_ACCESS_TOKEN", TOKEN);
    })
}

#[tokio::test]
async fn every_route_but_ping_needs_the_token() {
    let daemon = guarded();
    assert_eq!(daemon.get("/ping").await.status, 200);
    let through_itself = format!("/proxy/{}", daemon.port());
    assert_eq!(
        daemon.get(&format!("{through_itself}/ping")).await.status,
        200
    );
    for path in [
        "/metrics",
        "/unknown",
        "/proxy/1/ping",
        "/files/info",
        &format!("{through_itself}/metrics"),
    ] {
        for headers in [[].as_slice(), &[("x-execd-access-token", "wrong")]] {
            let refused = daemon.get_with(path, headers).await;
            assert_eq!(
                (refused.status.as_u16(), refused.code().as_str()),
                (401, "UNAUTHORIZED"),
                "{path}"
            );
            assert!(
                refused.json()["error"]
                    .as_str()
                    .unwrap()
                    .starts_with("Unauthorized")
            );
        }
    }
    let headers = [("x-execd-access-token", TOKEN)];
    assert_eq!(daemon.get_with("/metrics", &headers).await.status, 200);
    assert_eq!(daemon.get_with("/unknown", &headers).await.status, 404);
    assert_eq!(
        daemon
            .get_with(&format!("{through_itself}/metrics"), &headers)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn no_process_can_read_the_token() {
    let daemon = guarded().with_header("x-execd-access-token", TOKEN);
    let text = "env; tr '\\0' '\\n' < /proc/self/environ; \
                cat /proc/$PPID/environ /proc/$PPID/mem > \"$COPY\" 2> /dev/null || echo refused";
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("copy");
    let events = daemon
        .run(json!({ "command": text, "envs": { "COPY": &copy } }))
        .await;
    let seen = texts(&events, EventKind::Stdout).join("\n");
    assert!(seen.contains("PATH="));
    assert!(!seen.contains(TOKEN));
    assert!(seen.ends_with("refused"), "{seen}");
    assert_eq!(std::fs::read(copy).unwrap(), b"");
}

#[tokio::test]
async fn the_log_filter_is_not_taken_from_rust_log() {
    for filter in ["off", "no=such=filter"] {
        // The daemon starts and writes to its log, whatever the filter.
        let daemon = Daemon::start(&["--port", "0"], |command| {
            command.env("RUST_LOG", filter);
        });
        let events = daemon.run(json!({ "command": "echo $RUST_LOG" })).await;
        assert_eq!(texts(&events, EventKind::Stdout), [filter]);
    }
}

#[tokio::test]
async fn request_ids_and_unknown_routes() {
    let daemon = daemon();
    let echoed = daemon.get_with("/ping", &[("x-request-id", "mine")]).await;
    assert_eq!(echoed.headers["x-request-id"], "mine");
    assert_eq!(echoed.headers["content-length"], "0");
    for (method, path) in [
        (Method::GET, "/none"),
        (Method::PUT, "/command"),
        (Method::HEAD, "/ping"),
        (Method::GET, "/ping/"),
    ] {
        let response = daemon.send(method.clone(), path, &[], "").await;
        assert_eq!(response.status(), 404, "{method} {path}");
        assert_eq!(response.headers()["x-request-id"].len(), 32);
    }
    assert_eq!(daemon.get("/none").await.text(), "404 page not found");
}

#[tokio::test]
async fn metrics_answer_at_once_and_are_watched_line_by_line() {
    let daemon = daemon();
    let metrics = daemon.get("/metrics").await.json();
    assert!(metrics["cpu_count"].as_u64().unwrap() > 0);
    let number = |name: &str| metrics[name].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&number("cpu_used_pct")));
    assert!((0.0..=number("mem_total_mib")).contains(&number("mem_used_mib")));
    let mut response = daemon.send(Method::GET, "/metrics/watch", &[], "").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    for _ in 0..2 {
        let line = response
            .body_mut()
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        let sample: Value = serde_json::from_slice(line.strip_suffix(b"\n\n").unwrap()).unwrap();
        assert_eq!(sample["cpu_used_pct"], sample["cpu_used_percentage"]);
    }
}

#[test]
fn unknown_flags_and_taken_ports_end_the_daemon() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_execd"))
            .args(args)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        (output.status.code(), stderr)
    };
    let (code, stderr) = run(&["--no-such-flag"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("usage:") && stderr.contains("no-such-flag"));
    assert_eq!(run(&["-version"]).0, Some(0));
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, stderr) = run(&["init", &format!("--port={port}"), "--", "sleep", "1000"]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains(&format!("cannot listen on port {port}")),
        "{stderr}"
    );
}

/// Opens a connection and sends this text.
async fn sent(daemon: &Daemon, text: &str) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", daemon.port()))
        .await
        .unwrap();
    client.write_all(text.as_bytes()).await.unwrap();
    client
}

/// Reads up to the end of a connection, in lower case.
async fn rest(mut client: TcpStream) -> String {
    let mut answers = String::new();
    let read = tokio::time::timeout(LONG, client.read_to_string(&mut answers)).await;
    read.unwrap().expect("no reset");
    answers.to_ascii_lowercase()
}

#[tokio::test]
async fn a_connection_with_an_unread_body_announces_its_close() {
    let daemon = guarded();
    for route in ["POST /files/upload", "POST /nowhere", "GET /ping"] {
        // The body is never sent.
        let head = format!("{route} HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n");
        let answer = rest(sent(&daemon, &head).await).await;
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    // A short body is read, and the next request is served.
    let ping = "GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let both = format!("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody{ping}");
    let answers = rest(sent(&daemon, &both).await).await;
    assert!(answers.starts_with("http/1.1 401 "), "{answers}");
    assert!(answers.contains("http/1.1 200 ok"), "{answers}");
    // A long body is not read, but the client gets the reply before it has sent all.
    const LEN: usize = 8 << 20;
    let head = format!("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: {LEN}\r\n\r\n");
    let mut client = sent(&daemon, &head).await;
    client.write_all(&vec![b'x'; LEN]).await.unwrap();
    let answer = rest(client).await;
    assert!(answer.starts_with("http/1.1 401 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn many_headers_and_a_long_target_are_accepted() {
    let daemon = daemon();
    let me = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let names: Vec<String> = (0..250).map(|n| format!("x-{n}")).collect();
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    for path in [
        "/ping".to_owned(),
        format!("/v1/filesystem/{me}/{group}/files/info"),
        format!("/ping?{}", "x".repeat(60 << 10)),
    ] {
        let answer = daemon.get_with(&path, &headers).await;
        assert_eq!(answer.status, 200, "{path:.40}: {}", answer.text());
    }
    let longer = format!("/ping?{}", "x".repeat(64 << 10));
    let head = format!("GET {longer} HTTP/1.1\r\nhost: x\r\n\r\n");
    let answer = rest(sent(&daemon, &head).await).await;
    assert!(answer.starts_with("http/1.1 414 "), "{answer}");
}

#[tokio::test]
async fn paths_that_are_not_utf_8_are_refused_with_code_and_message() {
    let daemon = daemon();
    for path in ["/pty/%ff", "/command/status/%C3", "/session/a%80/run"] {
        let refused = daemon.get(path).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (400, "INVALID_REQUEST_BODY")
        );
    }
    // A program behind the proxy may accept such paths.
    assert_eq!(daemon.get("/proxy/1/%ff").await.status, 502);
}

#[tokio::test]
async fn half_a_surrogate_pair_in_json_is_a_replacement_character() {
    let daemon = daemon();
    let body = r#"{"command":"printf %s 'cut \ud83d'"}"#;
    let answer = daemon.send(Method::POST, "/command", &[], body).await;
    let answer = Answer::of(answer).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let events = events(&answer.body);
    assert_eq!(texts(&events, EventKind::Stdout), ["cut \u{fffd}"]);
}

#[tokio::test]
async fn routes_of_missing_features_say_so() {
    let daemon = daemon();
    for (method, path) in [
        (Method::POST, "/code"),
        (Method::POST, "/code/context"),
        (Method::GET, "/code/contexts"),
        (Method::GET, "/code/contexts?language=python"),
        (Method::DELETE, "/code/contexts?language=python"),
        (Method::GET, "/code/contexts/an-id"),
        (Method::DELETE, "/code/contexts/an-id"),
    ] {
        let body = json!({ "code": "1", "language": "python" }).to_string();
        let answer = Answer::of(daemon.send(method.clone(), path, &[], body).await).await;
        assert_eq!(answer.status, 501, "{method} {path}");
        assert_eq!(answer.code(), "NOT_SUPPORTED", "{method} {path}");
        assert!(answer.text().contains("code contexts"), "{}", answer.text());
    }
    // The same through execd's own proxy, which the addresses of sandboxes contain.
    let path = format!("/proxy/{}/code/contexts", daemon.port());
    let answer = daemon.get(&path).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (501, "NOT_SUPPORTED")
    );
    // Unknown addresses, and the interrupt, are not among them.
    assert_eq!(daemon.get("/code").await.status, 404);
    assert_eq!(daemon.get("/code/other").await.status, 404);
    assert_eq!(daemon.delete("/code").await.code(), "MISSING_QUERY");
}
